package native_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laggard/collector/internal/rig"
	"laggard/collector/internal/rig/catch"
	"laggard/collector/native"
)

// live runs a command of testdata/live.c, drains it every 20 ms, as the agent does, and
// returns what it says.
func live(b *testing.B, args ...string) string {
	b.Helper()
	lib, run := rig.Library(b), rig.Shared(b)
	out := filepath.Join(b.TempDir(), "live")
	if err := native.Program(b.Context(), "", lib, "testdata/live.c", out); err != nil {
		b.Fatal(err)
	}
	cmd := command(b, out, run, args...)
	var said strings.Builder
	cmd.Stdout = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := catch.New(b, run)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				b.Fatalf("%v: %v\n%s", args, err, said.String())
			}
			running = false
		case <-tick.C:
		}
		if _, err := c.Pass(); err != nil {
			b.Fatal(err)
		}
		for _, w := range c.Writers {
			w.Records = w.Records[:0]
		}
	}
	c.Finish(b)
	if n := c.Only(b).Lost(); n != 0 {
		b.Errorf("%d records found a full ring", n)
	}
	return said.String()
}

// BenchmarkTail is P5: what one record takes at 50,000/s and 400,000/s, drained, while something
// writes to the disk as fast as it takes it; beside it what nothing takes, measured
// alike and in turns. The agent and the disk take the processor 50 times a second and
// leave cold caches behind: at 50,000/s that is the 99.9th record.
func BenchmarkTail(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "dirt"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		dirt := make([]byte, 1<<20)
		for at := int64(0); ; at = (at + 1<<20) % (256 << 20) {
			select {
			case <-stop:
				return
			default:
				if _, err := f.WriteAt(dirt, at); err != nil {
					b.Error(err)
					return
				}
			}
		}
	}()
	for _, rate := range []int{50000, 400000} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) { tail(b, rate) })
	}
}

func tail(b *testing.B, rate int) {
	var nothing, one [4]float64 // p50, p99, p99.9, most
	for b.Loop() {
		said := live(b, "tail", strconv.Itoa(5*rate), strconv.Itoa(rate))
		for i, v := range strings.Fields(said) {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil || i >= 8 {
				b.Fatalf("%q: %v", said, err)
			}
			if i < 4 {
				nothing[i] = x
			} else {
				one[i-4] = x
			}
		}
		b.Logf("p50, p99, p99.9 and most of a record %.0f ns, of nothing %.0f ns", one, nothing)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(one[0], "p50-ns")
	b.ReportMetric(one[2], "p99.9-ns")
	b.ReportMetric(nothing[2], "nothing-p99.9-ns")
}

// BenchmarkLoop is P6: by how much a compute loop is slowed by 50,000 ranges/s, from
// rounds of short blocks with and without them, and the 95 % interval of that, by
// bootstrap; in the same rounds, by how much it is slowed by the least that a range
// could cost.
func BenchmarkLoop(b *testing.B) {
	var without, with, least []float64
	for b.Loop() {
		without, with, least = nil, nil, nil
		for line := range strings.Lines(live(b, "loop", "6000")) {
			var x, y, z float64
			if _, err := fmt.Sscan(line, &x, &y, &z); err != nil {
				b.Fatal(err)
			}
			without, with, least = append(without, x), append(with, y), append(least, z)
		}
	}
	mid, low, high := slower(without, with)
	floor, floorLow, floorHigh := slower(without, least)
	const perRange = 20000 / 100 // ns of a percent: 20 us a range
	b.Logf("slowed by %.3f %% (95 %% interval %.3f to %.3f), %.0f ns a range, %d rounds of 1 ms", mid, low, high, perRange*mid, len(with))
	b.Logf("by the least %.3f %% (%.3f to %.3f), %.0f ns", floor, floorLow, floorHigh, perRange*floor)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid, "slower-%")
	b.ReportMetric(high, "upper-%")
	b.ReportMetric(floor, "least-%")
}

// slower returns by how many percent with is slower than without, and the 95 %
// interval of that. It is the median of the ratios: a block that another process
// disturbed says nothing.
func slower(without, with []float64) (mid, low, high float64) {
	const draws = 2000
	random := rand.New(rand.NewPCG(rig.Seed(), 1))
	ratios := make([]float64, len(with))
	for i := range ratios {
		ratios[i] = with[i] / without[i]
	}
	r := make([]float64, len(ratios))
	percent := func(pick func(i int) int) float64 {
		for i := range r {
			r[i] = ratios[pick(i)]
		}
		slices.Sort(r)
		return 100 * (r[len(r)/2] - 1)
	}
	mid = percent(func(i int) int { return i })
	all := make([]float64, draws)
	for d := range all {
		all[d] = percent(func(int) int { return random.IntN(len(r)) })
	}
	slices.Sort(all)
	return mid, all[draws/40], all[draws-1-draws/40]
}
