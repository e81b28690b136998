package native_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// BenchmarkAgainstTheLeast prints what C ranges cost beside the least they could:
// P1 and P2 of the benchmark table. Times are the thread's own CPU time in ns:
// the median of 15 interleaved rounds of 20000, and the spread. The ratios are of
// the smallest: what others do on the machine only adds.
func BenchmarkAgainstTheLeast(b *testing.B) {
	lib, run := ringtest.Library(b), ringtest.Shared(b)
	out := filepath.Join(b.TempDir(), "bench")
	if err := ringtest.Program(context.Background(), lib, "testdata/bench.c", out); err != nil {
		b.Fatal(err)
	}

	best := make(map[string]float64)
	for b.Loop() {
		cmd := command(b, out, run+fmt.Sprint(b.N), run, filepath.Join(b.TempDir(), "lines"))
		cmd.Env = append(cmd.Env, "LAGGARD_RUN="+run)
		for line := range strings.Lines(runs(b, cmd)) {
			var name string
			var mid, least, most float64
			if _, err := fmt.Sscan(line, &name, &mid, &least, &most); err != nil {
				b.Fatalf("%q: %v", line, err)
			}

			best[name] = least
			b.Logf("%-13s %8.2f ns (%.2f to %.2f)", name, mid, least, most)
		}
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best["mark"]/best["copy"], "publish/copy")
	b.ReportMetric(best["range"]/best["copy_clocks"], "range/copy+clocks")
	b.ReportMetric(best["write_line"]/best["range"], "write/range")
	b.ReportMetric(best["off"], "off-ns")
}
