package detect

import (
	"slices"
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
