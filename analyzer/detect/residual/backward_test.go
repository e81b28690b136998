package residual

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// peers is a layout of n ranks that do the same work.
func peers(n int) *frame.Layout {
	l := &frame.Layout{Stages: 1, Roles: []frame.Role{{Size: n}}}
	for r := range n {
		l.Ranks, l.Role = append(l.Ranks, r), append(l.Role, 0)
		l.Roles[0].Rows = append(l.Roles[0].Rows, int32(r))
	}

	return l
}

// TestBackward_WaitsInBackward tells a backward pass that is a rank's own from one in which it
// waits for the slowest forward pass.
func TestBackward_WaitsInBackward(t *testing.T) {
	const n, slow = 8, 5
	for name, c := range map[string]struct {
		forward, backward float64 // factors of the slow rank
		waits, want       bool
	}{
		"healthy":                     {1, 1, false, false},
		"healthy, waits for the last": {1, 1, true, true},
		"slow device":                 {1.2, 1.2, false, false},
		"slow forward":                {1.2, 1, false, false},
		"slow backward":               {1, 1.2, false, false},
		"slow forward, others wait":   {1.2, 1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			p := NewBackward(peers(n))
			forward, backward := make([]float32, n), make([]float32, n)
			var got []float32
			for range 64 {
				last := float32(0)
				for r := range forward {
					forward[r] = float32(0.1 * math.Exp(0.02*rng.NormFloat64()))
					backward[r] = float32(0.2 * math.Exp(0.02*rng.NormFloat64()))
					if r == slow {
						forward[r], backward[r] = forward[r]*float32(c.forward), backward[r]*float32(c.backward)
					}

					last = max(last, forward[r])
				}

				for r := range backward {
					if c.waits {
						backward[r] += last - forward[r]
					}
				}

				got = p.Compute(forward, backward)
			}

			if p.Waiting != c.want {
				t.Errorf("waiting %v, want %v (correlation %.2f)", p.Waiting, c.want, p.passes.correlation())
			}

			want := forward[slow]
			if !c.want {
				want += backward[slow]
			}

			if got[slow] != want {
				t.Errorf("compute of the slow rank %v, want %v", got[slow], want)
			}
		})
	}
}
