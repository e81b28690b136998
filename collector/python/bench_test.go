package python_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

var (
	costs  = regexp.MustCompile(`(?m)^with (span|communication) +(\d+) +(\d+)$`)
	ratios = regexp.MustCompile(`(?m)^with (span|communication): ([0-9.]+) times`)
)

// BenchmarkAgainstJSON is P4: a range of the Python recorder with its extension beside
// json.dumps and a write of the same record, in turns in one process.
// benchmark/emit.py measures; its table is in the log.
func BenchmarkAgainstJSON(b *testing.B) {
	environment := append(os.Environ(), "LAGGARD_EXTENSION=load", "XDG_CACHE_HOME="+extension(b))
	for b.Loop() {
		c := exec.Command(interpreter, "-B", "benchmark/emit.py")
		c.Env = environment
		out, err := c.CombinedOutput()
		if err != nil {
			b.Fatalf("benchmark/emit.py: %v\n%s", err, out)
		}

		b.Logf("%s", out)
		report(b, costs, out, 3, "-ns")
		report(b, ratios, out, 2, "-x-json")
	}

	b.ReportMetric(0, "ns/op")
}

// report reports group n of each match under the name in group 1.
func report(b *testing.B, of *regexp.Regexp, out []byte, n int, unit string) {
	b.Helper()
	found := of.FindAllSubmatch(out, -1)
	if len(found) != 2 {
		b.Fatalf("not the output of benchmark/emit.py:\n%s", out)
	}

	for _, m := range found {
		v, err := strconv.ParseFloat(string(m[n]), 64)
		if err != nil {
			b.Fatal(err)
		}

		b.ReportMetric(v, string(m[1])+unit)
	}
}
