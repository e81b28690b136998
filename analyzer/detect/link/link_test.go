package link

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestLinks_GustsOfTheJob lets gusts of ten steps pass over all groups but one. When
// that one meets a gust as well it is no slow wire, until it has lasted longer than
// gusts do.
func TestLinks_GustsOfTheJob(t *testing.T) {
	const groups, first, last = 12, 400, 700
	l := &frame.Layout{World: 2 * groups}
	for g := range int32(groups) {
		l.Ranks = append(l.Ranks, int(2*g), int(2*g+1))
		l.Groups = append(l.Groups, frame.Group{Name: fmt.Sprint("dp-", g), Dim: "dp", Rows: []int32{2 * g, 2*g + 1}, Size: 2})
	}

	cfg := threshold.Default()
	w := New(&cfg, l)
	rng := rand.New(rand.NewPCG(11, 12))
	left := make([]int, groups)
	accused := -1
	for step := range last {
		v := make([]float32, 2*groups)
		for g := range groups {
			if left[g]--; left[g] < 0 && g > 0 && step > 64 && rng.Float64() < 0.02 {
				left[g] = 4 + rng.IntN(16)
			}

			x := 0.5 * float32(math.Exp(0.05*rng.NormFloat64()))
			if left[g] > 0 || g == 0 && step >= first {
				x *= 2.5
			}

			v[2*g], v[2*g+1] = x, x
		}

		c := &frame.Column{Layout: l, Step: int64(step)}
		c.V[frame.DP] = v
		w.Observe(c, 10)
		if accused < 0 && w.slow[0] {
			accused = step
		}

		for g := 1; g < groups; g++ {
			if w.slow[g] {
				t.Fatalf("step %d: %s is accused for a gust", step, l.Groups[g].Name)
			}
		}
	}

	if accused < first+50 || accused > first+200 {
		t.Errorf("the slow group is accused at step %d, want 50 to 200 steps after %d", accused, first)
	}
}
