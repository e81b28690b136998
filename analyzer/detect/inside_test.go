package detect

import (
	"math"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestCosts_WaitsInsidePasses: all ranks that meet in their passes take as long as a slow one, and nobody told that they
// wait there. It costs what its own time is longer by, and computing is not longer on all ranks alike.
func TestCosts_WaitsInsidePasses(t *testing.T) {
	for name, set := range map[string]func(j *job){
		"tensor groups":      func(*job) {},
		"sharded parameters": func(j *job) { j.sharded, j.tp, j.dp = true, 1, 16 },
		"untold groups":      func(j *job) { j.untold = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				j := newJob(seed)
				j.shape(1, 4, 4, 4)
				j.tpShared, j.covered, j.seq, j.unrecorded, j.steps = true, true, 0, 0, 240
				set(j)
				j.fault = func(r, _, step int) effect {
					if r == 5 && step >= 80 {
						return effect{forward: 1.4, backward: 1.4}
					}

					return effect{}
				}
				v := Analyze(j.frame(), Default())
				const want = 1.2 / 4.56 // of three passes more, and what a step has beside them
				if got := blamed(v); !slices.Equal(got, []string{"host-01"}) || v.Nodes[0].Cause != verdict.Compute || math.Abs(v.JobImpact-want) > 0.15*want {
					t.Errorf("seed %d: %+v, findings %+v, want host-01 for %.3f", seed, v.Nodes, v.Findings, want)
				}

				for _, f := range v.Findings {
					t.Errorf("seed %d: %s", seed, f.Detail)
				}
			}
		})
	}
}

// TestOwn_MeasuredAnew: where it turns out that ranks wait for each other in their passes, own time is another one from then on, and
// so is its noise: uneven sequences, which waits for the slowest hid. The code before named somebody in each of these healthy jobs, the
// seven of the first 300 seeds.
func TestOwn_MeasuredAnew(t *testing.T) {
	for _, seed := range []uint64{5, 18, 75, 134, 155, 170, 174} {
		j := newJob(seed)
		j.shape(1, 8, 1, 2)
		j.sharded, j.tpShared, j.covered, j.seq, j.unrecorded, j.steps = true, true, true, 0.1, 0, 260
		if v := Analyze(j.frame(), Default()); len(blamed(v)) > 0 || !v.Decided {
			t.Errorf("seed %d: %+v, decided %v", seed, v.Nodes, v.Decided)
		}
	}
}

// TestCosts_GathersFromTheStart: where parameters are gathered ahead own time says by how much more than it is a rank is late, and
// no steps before tell how much that is: between what its passes and what its own time are longer by.
func TestCosts_GathersFromTheStart(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(1, 16, 1, 4)
		j.sharded, j.tpShared, j.covered, j.seq, j.unrecorded, j.steps = true, true, true, 0, 0, 240
		j.slowRanks(map[int]float64{5: 1.4})
		v := Analyze(j.frame(), Default())
		const want = 1.2 / 4.56
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) || v.JobImpact > 0.15*want || v.Most() < 0.85*want || v.Nodes[0].Most() < 0.85*want {
			t.Errorf("seed %d: %v costs %.3f to %.3f, want host-01, for %.3f at most", seed, got, v.JobImpact, v.Most(), want)
		}
	}
}

// TestCosts_BesideARankThatDied: what nobody recorded of a rank that is gone hides no cost of all together.
func TestCosts_BesideARankThatDied(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(1, 4, 4, 4)
		j.tpShared, j.covered, j.seq, j.unrecorded, j.steps = true, true, 0, 0, 160
		j.slowRanks(map[int]float64{5: 1.4})
		f := j.frame()
		for _, c := range f.Columns {
			for m := range c.V {
				if c.Step >= 90 && c.V[m] != nil {
					c.V[m][12] = frame.NaN
				}
			}
		}

		v := Analyze(f, Default())
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) || v.JobImpact < v.Nodes[0].JobImpact || v.JobImpact == 0 {
			t.Errorf("seed %d: %v costs %.3f, all together %.3f", seed, got, v.Nodes[0].JobImpact, v.JobImpact)
		}
	}
}

// TestCosts_LostRecords: where records of Communication are missing here and there, who lacks one looks as busy as the
// culprit in that step. That is neither work nor a reason why the culprit costs nothing.
func TestCosts_LostRecords(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(1, 16, 1, 4)
		j.seq, j.unrecorded, j.jitter, j.spread, j.lost, j.steps = 0, 0, 0.01, 0.01, 0.3, 240 // a step ends for all at once
		j.slowRanks(map[int]float64{5: 1.6})
		v := Analyze(j.frame(), Default())
		const want = 1.8 / 5.16
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) || v.JobImpact < 0.75*want || v.JobImpact > 1.1*want || v.Most() < 0.95*want {
			t.Errorf("seed %d: %v costs %.3f to %.3f, want host-01 for %.3f", seed, got, v.JobImpact, v.Most(), want)
		}

		for _, f := range v.Findings {
			if f.Kind == verdict.WorkloadImbalance {
				t.Errorf("seed %d: %s", seed, f.Detail)
			}
		}
	}
}

// TestCosts_AsFarAsGrown: where nobody recorded backward passes, gradients that are reduced beside them count as exposed, and the
// one that waits least for its peers has more own time by more than it is late. Steps tell by how much that is at least.
func TestCosts_AsFarAsGrown(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(1, 16, 1, 4)
		j.seq, j.unrecorded, j.sigma, j.spread, j.gc, j.heavy, j.steps = 0, 0, 0.002, 0, 0, false, 240
		j.fault = func(r, _, step int) effect {
			if r == 5 && step >= 80 {
				return effect{forward: 1.1, backward: 1.1}
			}

			return effect{}
		}
		f := j.frame()
		f.Estimated = 1
		for _, c := range f.Columns {
			for r := range c.V[frame.Self] {
				beside := c.V[frame.FP][r] // of which the last one has nothing to wait for
				if r == 5 && c.Step >= 80 {
					beside = 0.5 * c.V[frame.FP][r]
				}

				c.V[frame.Self][r], c.V[frame.Exposed][r] = c.V[frame.Self][r]-beside, c.V[frame.Exposed][r]+beside
			}
		}

		v := Analyze(f, Default())
		const want = 0.3 / 3.66
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) || math.Abs(v.JobImpact-want) > 0.15*want || v.Most() < v.JobImpact {
			t.Errorf("seed %d: %v costs %.3f to %.3f, want host-01 for %.3f", seed, got, v.JobImpact, v.Most(), want)
		}
	}
}
