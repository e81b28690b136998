package rollup

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestIntervals holds unions and uncovered to counting moment by moment.
func TestIntervals(t *testing.T) {
	const moments = 60
	draw := func(t *rapid.T, what string, least int) []interval {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) interval {
			from := rapid.Int64Range(0, moments-1).Draw(t, "from")
			return interval{
				from: from, to: from + rapid.Int64Range(0, moments-from).Draw(t, "length"),
				side: record.Side(rapid.IntRange(0, 1).Draw(t, "side")), dim: dim(rapid.IntRange(0, 5).Draw(t, "dim")),
			}
		}), least, 12).Draw(t, what)
	}
	covers := func(all []interval, at int64, ok func(interval) bool) bool {
		return slices.ContainsFunc(all, func(iv interval) bool { return ok(iv) && at >= iv.from && at < iv.to })
	}
	rapid.Check(t, func(t *rapid.T) {
		sc := &sums{comm: draw(t, "comm", 1), compute: draw(t, "compute", 0)}
		start := rapid.Int64Range(0, moments).Draw(t, "start")
		self := &pendingRange{start: start, dur: rapid.Int64Range(0, moments).Draw(t, "dur"), side: record.Side(rapid.IntRange(0, 1).Draw(t, "self"))}
		sc.sort()

		all, dims := unions(sc.comm)
		var wantAll int64
		var wantDims [dimCount]int64
		for d := range dims {
			wantDims[d] = -1
			if slices.ContainsFunc(sc.comm, func(iv interval) bool { return iv.dim == dim(d) }) {
				wantDims[d] = 0
			}
		}

		var exposed [2]int64
		for at := range int64(2 * moments) {
			if covers(sc.comm, at, func(interval) bool { return true }) {
				wantAll++
			}

			for d := range dims {
				if covers(sc.comm, at, func(iv interval) bool { return iv.dim == dim(d) }) {
					wantDims[d]++
				}
			}

			for side := range exposed {
				mine := func(iv interval) bool { return iv.side == record.Side(side) }
				inside := self.side != record.Side(side) || at >= self.start && at < self.end()
				if inside && covers(sc.comm, at, mine) && !covers(sc.compute, at, mine) {
					exposed[side]++
				}
			}
		}

		if all != wantAll || dims != wantDims {
			t.Fatalf("unions=%d %v, want %d %v", all, dims, wantAll, wantDims)
		}

		for side := range exposed {
			if got := sc.uncovered(self, record.Side(side)); got != exposed[side] {
				t.Fatalf("uncovered on side %d = %d, want %d", side, got, exposed[side])
			}
		}
	})
}

// TestPasses holds the runs to a plain count.
func TestPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p passes
		plain := map[int64]uint16{}
		n := int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "numbers") {
			n += rapid.SampledFrom([]int64{1, 1, 1, 1, 2, -3, -10}).Draw(t, "by")
			if got := p.add(n, maxRuns); got != plain[n] {
				t.Fatalf("add(%d)=%d, want %d", n, got, plain[n])
			}

			plain[n]++
			for i := range p.Runs {
				if r := p.Runs[i]; r.From > r.To || i > 0 && p.Runs[i-1].To >= r.From {
					t.Fatalf("runs %v", p.Runs)
				}
			}
		}

		for n, want := range plain {
			if got := p.count(n); got != want {
				t.Fatalf("count(%d)=%d, want %d", n, got, want)
			}
		}
	})
}

func TestPasses_Bounded(t *testing.T) {
	var p passes
	for n := range int64(10 * maxRuns) {
		p.add(3*n, maxRuns)
	}

	if len(p.Runs) > maxRuns || p.count(3*(10*maxRuns-1)) != 1 {
		t.Fatalf("%d runs", len(p.Runs))
	}
}
