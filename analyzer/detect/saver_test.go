package detect

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// saved is a data-parallel job of one rank a node that saves 12 times, each save
// exp(0.7 σ) of 3 ms: what small files cost on a busy machine. slow is the last
// rank's factor.
func saved(seed uint64, ranks int, slow float64) *verdict.Verdict {
	rng := rand.New(rand.NewPCG(seed, 3))
	b := &feed.History{}
	for r := range uint32(ranks) {
		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: uint32(ranks), Node: nodeName(int(r)), StartedNs: 1e18})
		for s := 1; s <= 120; s++ {
			fp, save := int64(3e7*(1+0.02*rng.NormFloat64())), int64(-1)
			if s%10 == 0 {
				save = int64(3e6 * math.Exp(0.7*rng.NormFloat64()))
				if int(r) == ranks-1 {
					save = int64(slow * float64(save))
				}
			}

			wait := int64(1e7)
			b.AddStep(&row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e8, StepNs: 3*fp + wait + max(save, 0), FPNs: fp,
				CommNs: wait, ExposedNs: wait, CommTPNs: -1, CommPPNs: -1, CommDPNs: wait, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
				DataLoaderNs: -1, CheckpointNs: save, CheckpointCount: 1, SelfNs: 3 * fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1})
		}
	}

	f, err := b.Frame(nil)
	if err != nil {
		panic(err)
	}

	return Analyze(f, Default())
}

// TestSavers_Few: few ranks whose saves differ fourfold by chance. One that takes
// thirty times as long is named; nobody is by chance. Two others are a weak measure of
// a third: it may stay unnamed. LAGGARD_SEEDS=all takes 200 jobs of each kind.
func TestSavers_Few(t *testing.T) {
	seeds := int(seedsOf(50, 200))
	for _, c := range []struct{ ranks, missed, late int }{{3, 50, 120}, {4, 5, 70}, {6, 2, 30}} { // of 200
		accused, missed, late := 0, 0, 0 // late: after more than six saves
		for seed := range uint64(seeds) {
			if v := saved(seed, c.ranks, 1); len(v.Nodes) > 0 {
				accused++
			}

			v := saved(seed, c.ranks, 30)
			i := slices.IndexFunc(v.Nodes, func(n verdict.Node) bool {
				return n.Cause == verdict.Checkpoint && n.Node == nodeName(c.ranks-1)
			})
			switch {
			case i < 0 || len(v.Nodes) > 1:
				missed++
			case v.Nodes[i].DetectedStep > 60:
				late++
			}
		}

		t.Logf("%d ranks: of %d jobs each %d healthy ones accused, %d slow ones missed, %d late", c.ranks, seeds, accused, missed, late)
		if 200*accused > 2*seeds || 200*missed > c.missed*seeds || 200*late > c.late*seeds {
			t.Errorf("%d ranks: %d accused, %d missed, %d late", c.ranks, accused, missed, late)
		}
	}
}

// TestSavers_StageAtHome: the ranks of a node that is a stage of its own all save slowly every second or third time. None of their
// peers is elsewhere, so what they took before tells; and that one of them does is no sign that the other's slow saves are health.
func TestSavers_StageAtHome(t *testing.T) {
	for _, tt := range []struct{ replicas, every int }{{4, 2}, {2, 3}} {
		for seed := range uint64(6) {
			j := newJob(seed)
			j.shape(4, tt.replicas, 1, tt.replicas)
			j.seq, j.unrecorded, j.saveEvery, j.steps = 0, 0, 10, 300
			if v := Analyze(j.frame(), Default()); len(blamed(v)) > 0 {
				t.Errorf("seed %d: %v of healthy savers", seed, blamed(v))
			}

			j = newJob(seed)
			j.shape(4, tt.replicas, 1, tt.replicas)
			j.seq, j.unrecorded, j.saveEvery, j.steps = 0, 0, 10, 300
			j.fault = func(_, node, step int) effect {
				if node == 2 && step >= 60 && step/10%tt.every == 0 {
					return effect{save: 6}
				}

				return effect{}
			}
			v := Analyze(j.frame(), Default())
			if got := blamed(v); !slices.Equal(got, []string{"host-02"}) || v.Nodes[0].Cause != verdict.Checkpoint {
				t.Errorf("every %d, seed %d: %+v, want host-02 for its saves", tt.every, seed, v.Nodes)
			}
		}
	}
}
