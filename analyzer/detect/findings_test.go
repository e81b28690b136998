package detect

import (
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Work that comes to replicas in turn makes none of them the last in most steps.
func TestFindings_LastMostOften(t *testing.T) {
	for _, c := range []struct {
		last  []int
		lane  int
		often bool
	}{
		{[]int{9, 7, 10, 6}, 2, false},
		{[]int{2, 1, 28, 1}, 2, true},
		{[]int{20, 12}, 0, false},
		{[]int{4, 28}, 1, true},
		{[]int{4, 3, 5, 3, 12, 2, 1, 2}, 4, false}, // three times its share, but a third of the steps
		{[]int{0, 0}, 0, false},
	} {
		if lane, often := mostOften(c.last); lane != c.lane || often != c.often {
			t.Errorf("%v: lane %d, %v; want %d, %v", c.last, lane, often, c.lane, c.often)
		}
	}
}

// TestFindings_WorkBesideExperts: replicas that share experts wait for each other inside their
// forward passes, which are as long on all of them; own time tells that their work differs.
func TestFindings_WorkBesideExperts(t *testing.T) {
	for _, seed := range []uint64{33550364, 33550368} {
		v, _ := simulated(t, "sequence-length", seed, 0)
		if !slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.WorkloadImbalance }) {
			t.Errorf("seed %d: findings %+v, want uneven work", seed, v.Findings)
		}
	}
}

// TestWork_LastInMostSteps: the work of replicas of one rank each varies, and one of them is the last in most steps. It gets
// more work, or is slow: who can't say which can't call the job healthy. Where work alone varies nobody is the last so often.
func TestWork_LastInMostSteps(t *testing.T) {
	undecided := 0
	for seed := range uint64(12) {
		for _, times := range []float64{1, 1.15} {
			j := newJob(seed)
			j.shape(1, 8, 1, 1)
			j.seq, j.steps, j.heavy = 0.07, 24, false
			j.slowRanks(map[int]float64{5: times})
			v := Analyze(j.frame(), Default())
			open := strings.Contains(said(v, verdict.LowCoverage), "it gets more work, or it is slow")
			if times == 1 && v.Exit(0.01) != verdict.ExitHealthy || strings.Contains(said(v, verdict.WorkloadImbalance), "the last in") && v.Exit(0.01) == verdict.ExitHealthy || open && v.Exit(0.01) != verdict.ExitUndecided {
				t.Errorf("x%v, seed %d: exit %d, findings %+v", times, seed, v.Exit(0.01), v.Findings)
			}

			if open {
				undecided++
			}
		}
	}

	if undecided < 3 {
		t.Errorf("%d of 12 were left open", undecided)
	}
}
