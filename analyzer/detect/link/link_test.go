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
	w, l := pairs(groups)
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

		observe(w, l, step, v)
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

// pairs returns a watch of groups of two ranks each.
func pairs(groups int) (*Watch, *frame.Layout) {
	l := &frame.Layout{World: 2 * groups}
	for g := range int32(groups) {
		l.Ranks = append(l.Ranks, int(2*g), int(2*g+1))
		l.Groups = append(l.Groups, frame.Group{Name: fmt.Sprint("dp-", g), Dim: "dp", Rows: []int32{2 * g, 2*g + 1}, Size: 2})
	}

	cfg := threshold.Default()
	return New(&cfg, l), l
}

// observe shows a watch the seconds that each rank was in communication in a step of ten.
func observe(w *Watch, l *frame.Layout, step int, seconds []float32) {
	c := &frame.Column{Layout: l, Step: int64(step)}
	c.V[frame.DP] = seconds
	w.Observe(c, 10)
}

// TestLinks_LongGust: congestion of 100 steps is taken for a slow wire where the job has
// seen none yet. It ends, so it was a gust: the next one accuses nobody, on whatever node.
func TestLinks_LongGust(t *testing.T) {
	const groups = 12
	w, l := pairs(groups)
	rng := rand.New(rand.NewPCG(13, 14))
	named := map[string]int{}
	for step := range 900 {
		v := make([]float32, 2*groups)
		for g := range groups {
			x := 0.5 * float32(math.Exp(0.05*rng.NormFloat64()))
			if g == 0 && step >= 100 && step < 200 || g == 1 && step >= 400 && step < 500 || g == 0 && step >= 700 && step < 800 {
				x *= 2.5
			}

			v[2*g], v[2*g+1] = x, x
		}

		observe(w, l, step, v)
		for g := range groups {
			if w.slow[g] {
				named[l.Groups[g].Name] = step
			}
		}
	}

	if last := named["dp-0"]; last < 150 || last > 250 || len(named) > 1 {
		t.Errorf("named last: %v, want dp-0 alone, between steps 150 and 250", named)
	}
}

// TestLinks_CongestedMostOfTheTime: a wire without equals that is congested in two thirds
// of the steps, for twenty or so at a time, is as it always was. That takes some hundred steps to know.
func TestLinks_CongestedMostOfTheTime(t *testing.T) {
	accused := 0
	for seed := range uint64(20) {
		w, l := pairs(1)
		rng := rand.New(rand.NewPCG(15, seed))
		congested := false
		for step := range 600 {
			if leave := 0.1; congested && rng.Float64() < leave/2 || !congested && rng.Float64() < leave {
				congested = !congested
			}

			x := 0.3 * float32(math.Exp(0.1*rng.NormFloat64()))
			if congested {
				x *= 3
			}

			observe(w, l, step, []float32{x, x})
			if w.slow[0] && step >= 200 {
				accused++
				break
			}
		}
	}

	if accused > 3 { // its congestion is nearly all that its noise is known by
		t.Errorf("%d of 20 such wires were called slow", accused)
	}
}

// TestLinks_GustsBesideJitter: transfers differ by a few single steps and by gusts of sixteen steps on average, whose
// lengths have no memory. A gust five times as long, the last one, is one of them: the single steps tell nothing of it.
func TestLinks_GustsBesideJitter(t *testing.T) {
	const groups, last = 8, 480
	for seed := range uint64(20) {
		w, l := pairs(groups)
		rng := rand.New(rand.NewPCG(17, seed))
		left := make([]int, groups)
		for step := range last {
			v := make([]float32, 2*groups)
			for g := range groups {
				if left[g]--; left[g] < 0 && rng.Float64() < 0.002 && step < last-80 && g > 0 {
					left[g] = 1 + int(15*rng.ExpFloat64())
				}

				x := 0.5 * float32(math.Exp(0.05*rng.NormFloat64()))
				if left[g] > 0 || g == 0 && step >= last-80 || rng.Float64() < 0.08 {
					x *= 2.5
				}

				v[2*g], v[2*g+1] = x, x
			}

			observe(w, l, step, v)
			if w.slow[0] {
				t.Errorf("seed %d, step %d: %s is accused for a gust of %d steps", seed, step, l.Groups[0].Name, step-last+80)
				break
			}
		}
	}
}
