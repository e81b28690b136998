package residual

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestExposure_WaitsInsidePasses: data-parallel ranks that gather parameters in their passes end them together, and wait there;
// where each computes on beside the reduction of gradients, as one that is late makes its peers' take longer, nobody waits.
func TestExposure_WaitsInsidePasses(t *testing.T) {
	const n = 8
	l := &frame.Layout{From: "topology", Ranks: make([]int, n), Groups: []frame.Group{{Dim: "dp", Size: n, Rows: []int32{0, 1, 2, 3, 4, 5, 6, 7}}}}
	for _, waits := range []bool{true, false} {
		rng := rand.New(rand.NewPCG(1, 2))
		x := NewExposure(l)
		x.ObserveTransfer(&frame.Transfer{Dim: "dp", Op: "allgather", Calls: 8})
		anew, work := 0, make([]float64, n)
		for range 4 * backwardColumns {
			c := &frame.Column{Layout: l}
			for _, m := range [...]frame.Metric{frame.Step, frame.FP, frame.Comm, frame.Exposed, frame.DP, frame.Self} {
				c.V[m] = make([]float32, n)
			}

			last := 0.0
			for r := range work {
				work[r] = 1 + 0.02*rng.NormFloat64()
				last = max(last, work[r])
			}

			for r, w := range work {
				late := last - w
				self, exposed, forward := w, late, w/3
				if waits {
					self, exposed, forward = last, 0, last/3
				}

				c.V[frame.Step][r], c.V[frame.FP][r], c.V[frame.Self][r], c.V[frame.Exposed][r] = float32(last), float32(forward), float32(self), float32(exposed)
				c.V[frame.Comm][r], c.V[frame.DP][r] = float32(exposed+late), float32(exposed+late)
			}

			right, now := x.Correct(c, false)
			if now {
				anew++
			}

			for r, w := range work {
				if got := float64(right.V[frame.Self][r]); x.kinds[gathering].Waits == waits && math.Abs(got-w) > 1e-5 {
					t.Fatalf("waits %v: own time of row %d is %.4f, want %.4f", waits, r, got, w)
				}
			}
		}

		if x.kinds[gathering].Waits != waits || anew > 1 {
			t.Errorf("waits %v, want %v; %d times anew", x.kinds[gathering].Waits, waits, anew)
		}
	}
}

// TestExposure_LostRecords: a rank without the Communication that most others of its group recorded has no own time that
// anybody knows; where most recorded none, it is not theirs to record.
func TestExposure_LostRecords(t *testing.T) {
	l := &frame.Layout{From: "topology", Ranks: make([]int, 4), Groups: []frame.Group{{Dim: "dp", Size: 4, Rows: []int32{0, 1, 2, 3}}}}
	some := []float32{1, 1, 1, 1}
	for _, c := range []struct {
		dp   []float32
		lost []bool
	}{
		{[]float32{1, robust.NaN, 1, 1}, []bool{false, true, false, false}},
		{[]float32{1, robust.NaN, robust.NaN, robust.NaN}, make([]bool, 4)},
	} {
		column := &frame.Column{Layout: l}
		for _, m := range [...]frame.Metric{frame.Step, frame.Comm, frame.Exposed, frame.Self} {
			column.V[m] = some
		}

		column.V[frame.DP] = c.dp
		right, _ := NewExposure(l).Correct(column, false)
		for r, x := range right.V[frame.Self] {
			if (x != x) != c.lost[r] {
				t.Errorf("dp %v: own time of row %d is %v", c.dp, r, x)
			}
		}
	}
}
