package detect

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// dense makes a node's ranks slow in k of every n steps from step 80 on.
func (j *job) dense(node, k, n int, e effect) {
	j.fault = func(_, at, step int) effect {
		if at == node && step >= 80 && step%n < k {
			return e
		}

		return effect{}
	}
}

// TestDense_EverySecondStep: what is slow in a third to two thirds of the steps lies between what lasts and what comes
// now and then. It is named within some dozens of times, with its cause and what it costs.
func TestDense_EverySecondStep(t *testing.T) {
	for name, c := range map[string]struct {
		k, n  int
		e     effect
		cause string
	}{
		"host, every second":    {1, 2, effect{host: 0.5}, verdict.HostDelay},
		"loader, every third":   {1, 3, effect{load: 0.4}, verdict.DataLoader},
		"loader, two of three":  {2, 3, effect{load: 0.4}, verdict.DataLoader},
		"compute, every second": {1, 2, effect{forward: 1.5, backward: 1.5}, verdict.Compute},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				j := newJob(seed)
				j.shape(1, 16, 1, 2)
				j.seq, j.steps = 0, 180
				j.dense(3, c.k, c.n, c.e)
				v := Analyze(j.frame(), Default())
				share := float64(c.k) / float64(c.n) * (c.e.host + c.e.load + max(0, c.e.forward-1)*3/3.2)
				want := share / (1 + share) // of all steps
				if got := blamed(v); !slices.Equal(got, []string{"host-03"}) || v.Nodes[0].Cause != c.cause || v.JobImpact < 0.6*want || v.JobImpact > 1.3*want {
					t.Errorf("seed %d: %v costs %.3f, want host-03 for %s, about %.3f; %+v", seed, got, v.JobImpact, c.cause, want, v.Nodes)
				}
			}
		})
	}
}

// TestDense_Passing: fifteen slow steps with ordinary ones among them are one passing time, and what is slow on changing
// nodes in every second step is no node's.
func TestDense_Passing(t *testing.T) {
	for seed := range uint64(12) {
		j := newJob(seed)
		j.shape(1, 16, 1, 2)
		j.seq, j.steps = 0, 240
		j.fault = func(_, at, step int) effect {
			switch {
			case at == 3 && step >= 80 && step < 100 && step%4 > 0:
				return effect{host: 0.4}
			case step%2 == 0 && at == step*7919%61%8:
				return effect{load: 0.4}
			}

			return effect{}
		}
		if v := Analyze(j.frame(), Default()); len(blamed(v)) > 0 {
			t.Errorf("seed %d: %v, %+v", seed, blamed(v), v.Nodes)
		}
	}
}
