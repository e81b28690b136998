package detect

import (
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// said puts what findings of a kind say into one text.
func said(v *verdict.Verdict, kind string) string {
	var b strings.Builder
	for _, f := range v.Findings {
		if f.Kind == kind {
			b.WriteString(f.Detail + "\n")
		}
	}

	return b.String()
}

// TestHalf_OfASmallJob: all ranks of one of two nodes take far longer than those of the other, which do the same work. Their
// middle is as far from either, so no rank is set apart; but nobody can call that healthy, and a verdict says who it is
// about and by how much, not that so many can't be bad. A few hundredths are a mix of hardware.
func TestHalf_OfASmallJob(t *testing.T) {
	for times, exit := range map[float64]int{1.86: verdict.ExitUndecided, 1.04: verdict.ExitHealthy} {
		for seed := range uint64(8) {
			j := newJob(seed)
			j.shape(1, 8, 1, 4)
			j.seq = 0
			j.fault = func(_, node, _ int) effect {
				return []effect{{forward: times, backward: times}, {}}[node]
			}
			v := Analyze(j.frame(), Default())
			low := said(v, verdict.LowCoverage)
			if v.Exit(0.01) != exit || len(blamed(v)) > 0 || said(v, verdict.JobSlow) != "" || (exit == verdict.ExitUndecided) != strings.Contains(low, "(host-00: up to 1.8") {
				t.Errorf("x%v, seed %d: exit %d, want %d; nodes %v, findings %+v", times, seed, v.Exit(0.01), exit, blamed(v), v.Findings)
			}
		}
	}
}

// TestHalf_WorkOfReplicas: half of the nodes take longer, each for a stage of the replica with more work. On a node of
// its own such a replica may be slow as well.
func TestHalf_WorkOfReplicas(t *testing.T) {
	exactly(t, "uneven-replica", 31348, func(*simulate.Config) {})
	exactly(t, "uneven-replica", 5394, func(*simulate.Config) {})          // two replicas a node, one of which has more
	exactly(t, "uneven-replica", 1795965140231, func(*simulate.Config) {}) // now this, now that rank of eight in lockstep is the last
	exactly(t, "uneven-replica", 1796009140160, func(*simulate.Config) {}) // nor is own time of one of them a slow rank that nothing proves
	exactly(t, "replica-drift", 31344, func(*simulate.Config) {})
	exactly(t, "replica-drift", 1795965140163, func(*simulate.Config) {}) // steps grow by what one replica's work does
	exactly(t, "replica-drift", 1795965140212, func(*simulate.Config) {}) // and slowly
	for seed := range uint64(3) {
		v, _ := judged(t, "healthy", seed, 0, plain(simulate.Config{
			Shape:  simulate.Shape{DP: 4, PP: 2, MicroBatches: 8, RanksPerNode: 4, Order: "tp-cp-pp-dp"},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 0, Factor: 1.5, From: 280}},
		}))
		if v.Exit(0.01) == verdict.ExitHealthy {
			t.Errorf("seed %d: healthy, nodes %v, findings %+v", seed, v.Nodes, v.Findings)
		}
	}
}
