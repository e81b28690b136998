package native_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// least is the ring of testdata/live.c that costs the least, read as the agent reads
// ours.
type least struct {
	path string
	f    *os.File
	buf  [64 << 10]byte
	tail int64
}

func (l *least) read() (err error) {
	const slots, first = 32768, 8192
	if l.f == nil {
		if l.f, err = os.Open(l.path); err != nil {
			return nil // not made yet
		}
	}

	for range 2 { // a header is read twice
		if _, err := l.f.ReadAt(l.buf[:512], 0); err != nil {
			return err
		}
	}

	head := int64(binary.LittleEndian.Uint64(l.buf[192:]))
	for l.tail < head {
		at := l.tail % slots
		n := min(head-l.tail, slots-at, int64(len(l.buf))/64)
		if _, err := l.f.ReadAt(l.buf[:64*n], first+64*at); err != nil {
			return err
		}

		l.tail += n
	}

	return nil
}

// live runs a command of testdata/live.c, drains it every 20 ms, as the agent does, and
// returns what it says.
func live(b *testing.B, what string, args ...string) string {
	b.Helper()
	lib, run := ringtest.Library(b), ringtest.Shared(b)
	out := filepath.Join(b.TempDir(), "live")
	if err := ringtest.Program(b.Context(), lib, "testdata/live.c", out); err != nil {
		b.Fatal(err)
	}

	l := least{path: filepath.Join(filepath.Dir(run), "least")}
	cmd := command(b, out, run, append([]string{what, l.path}, args...)...)
	var said strings.Builder
	cmd.Stdout = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}

	c := ringtest.NewDrain(b, run)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				b.Fatalf("%s %v: %v\n%s", what, args, err, said.String())
			}

			running = false
		case <-tick.C:
		}

		_, err := c.Pass()
		if err = errors.Join(err, l.read()); err != nil {
			b.Fatal(err)
		}

		for _, w := range c.Writers {
			w.Records = w.Records[:0]
		}
	}

	l.f.Close()
	c.Finish(b)
	if n := c.Only(b).Lost(); n != 0 {
		b.Errorf("%d records found a full ring", n)
	}

	return said.String()
}

// BenchmarkTail is P5: what one record takes at 50,000/s and 400,000/s, drained, while something
// writes to the disk as fast as it takes it; beside it what nothing takes and what the
// least takes, measured alike and in turns. The agent and the disk take the processor 50 times a second and
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
	var took [3][4]float64 // nothing, ours, the least: p50, p99, p99.9, most
	for b.Loop() {
		said := strings.Fields(live(b, "tail", strconv.Itoa(5*rate), strconv.Itoa(rate)))
		if len(said) != 12 {
			b.Fatalf("%q", said)
		}

		for i, v := range said {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				b.Fatalf("%q: %v", said, err)
			}

			took[i/4][i%4] = x
		}

		b.Logf("p50, p99, p99.9 and most of a record %.0f ns, of the least %.0f ns, of nothing %.0f ns", took[1], took[2], took[0])
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[1][0], "p50-ns")
	b.ReportMetric(took[1][2], "p99.9-ns")
	b.ReportMetric(took[2][2], "least-p99.9-ns")
	b.ReportMetric(took[0][2], "nothing-p99.9-ns")
}

// BenchmarkLoop is P6: by how much a compute loop is slowed by 50,000 ranges/s, from
// rounds of short blocks with and without them, and the 95 % interval of that, by
// bootstrap; in the same rounds, by how much it is slowed by the least that a range
// could cost.
func BenchmarkLoop(b *testing.B) {
	var without, with, least []float64
	for b.Loop() {
		without, with, least = nil, nil, nil
		for line := range strings.Lines(live(b, "loop", "30000")) {
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
	b.Logf("slowed by %.3f %% (95 %% interval %.3f to %.3f), %.0f ns a range, %d rounds of 0.2 ms", mid, low, high, perRange*mid, len(with))
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
	const draws = 1000
	random := rand.New(rand.NewPCG(ringtest.Seed(), 1))
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
