package detect

import (
	"math"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestNetwork_OfANode: the network of one node is slow, and its ranks send to other stages and receive from there. Where a node
// has a stage, nothing but the quickest of these calls tells; where it has one rank group of several, the groups of its stage are all as slow, and
// the sends tell which of their nodes it is. Since the start there is no past to compare with.
func TestNetwork_OfANode(t *testing.T) {
	for _, tt := range []struct {
		shape  simulate.Shape
		model  simulate.Model
		node   int
		from   int
		factor float64
	}{
		{simulate.Shape{DP: 4, PP: 4, RanksPerNode: 4}, simulate.Model{PPShare: 0.06}, 1, 100, 3},
		{simulate.Shape{DP: 4, PP: 4, RanksPerNode: 4}, simulate.Model{PPShare: 0.06}, 0, 100, 4},
		{simulate.Shape{DP: 4, PP: 4, RanksPerNode: 4}, simulate.Model{PPShare: 0.06}, 2, 0, 3},
		{simulate.Shape{TP: 4, DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 4}, simulate.Model{PPShare: 0.04}, 5, 100, 3},
		{simulate.Shape{TP: 4, DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 4}, simulate.Model{PPShare: 0.04}, 5, 0, 3},
	} {
		for seed := range uint64(2) {
			v, truth := weighed(t, "healthy", seed, 0, plain(simulate.Config{
				Shape: tt.shape, Model: tt.model, FirstStep: 4884,
				Faults: []simulate.Fault{{Kind: simulate.NIC, Node: tt.node, Factor: tt.factor, From: tt.from}},
			}))
			if len(v.Nodes) != 1 || v.Nodes[0].Node != truth.SlowNodes[0] || v.Nodes[0].Cause != verdict.Communication {
				t.Errorf("%+v, seed %d: nodes %+v, links %+v; want %v", tt, seed, v.Nodes, v.Links, truth.SlowNodes)
				continue
			}

			if v.Nodes[0].SinceStep < v.Steps.First {
				t.Errorf("%+v, seed %d: since step %d, and the first one is %d", tt, seed, v.Nodes[0].SinceStep, v.Steps.First)
			}

			if math.Abs(v.JobImpact-truth.Impact) > max(0.02, truth.Impact/2) {
				t.Errorf("%+v, seed %d: it costs %.4f, want %.4f", tt, seed, v.JobImpact, truth.Impact)
			}
		}
	}
}

// TestNetwork_BesideLateRanks: the last stage of the same pipelines looks late, for its receives wait where no range is, but the sends of
// a stage that has another beside it do not all wait for it; and that all networks are slow for a while ends nothing.
func TestNetwork_BesideLateRanks(t *testing.T) {
	for _, seed := range []uint64{1795965140197, 1795965140201, 1795965140206, 1796009140151} {
		v, truth := weighed(t, "node-network", seed, 0, withGroups)
		if len(v.Nodes) != 1 || v.Nodes[0].Node != truth.SlowNodes[0] || v.Nodes[0].Cause != verdict.Communication {
			t.Errorf("seed %d: nodes %+v, links %+v; want %v", seed, v.Nodes, v.Links, truth.SlowNodes)
		}

		if most := v.Most(); most < truth.Impact && truth.Impact-v.JobImpact > 0.15*truth.Impact {
			t.Errorf("seed %d: it costs %.4f to %.4f, want %.4f", seed, v.JobImpact, most, truth.Impact)
		}
	}
}

// TestLink_OfTwoEquals: a group that always took many times as long as the only other one on as many nodes may be slow, or on a slower
// network: nobody is accused, not even those who wait to send to its ranks, and nothing is called healthy.
func TestLink_OfTwoEquals(t *testing.T) {
	for _, seed := range []uint64{1795965140177, 1795965140186} {
		v, truth := judged(t, "standing-link", seed, 0, withGroups)
		if v.Decided || v.Healthy || len(v.Nodes)+len(v.Links) > 0 || !slices.Equal(truth.ExpectExit, []int{verdict.ExitUndecided}) {
			t.Errorf("seed %d: decided %v, nodes %+v, links %+v; want exit %v", seed, v.Decided, v.Nodes, v.Links, truth.ExpectExit)
		}
	}
}

// TestLink_CostAsGrown: a link that is slow for a large part of a step, of which hardly anything is waited for, costs no more than steps
// grew; at most what is recorded of waits for it.
func TestLink_CostAsGrown(t *testing.T) {
	v, truth := weighed(t, "standing-link", 1795965140314, 0, withGroups)
	if len(v.Links) != 1 || v.JobImpact > truth.Impact+0.02 || v.Most() < truth.Impact {
		t.Errorf("links %+v cost %.4f to %.4f, want %.4f", v.Links, v.JobImpact, v.JobImpactMax, truth.Impact)
	}
}

// TestLink_HiddenBesideStages: where no collective ends a step for all ranks, a later stage's link is slow while earlier stages still work,
// and no step before it is known: it costs between what outlasts their passes and all that is waited for it.
func TestLink_HiddenBesideStages(t *testing.T) {
	for _, seed := range []uint64{1795983140151, 1795983140188} {
		v, truth := weighed(t, "standing-link", seed, 0, withGroups)
		if len(v.Links) != 1 || v.Links[0].JobImpact > truth.Impact || v.Links[0].Most() < truth.Impact || v.Exit(0.03) != verdict.ExitDegraded {
			t.Errorf("seed %d: links %+v, exit %d; want %.4f within", seed, v.Links, v.Exit(0.03), truth.Impact)
		}
	}

	for _, seed := range []uint64{207707988857, 207707988874, 207707988927, 207707988938, 207707988953} {
		v, truth := weighed(t, "standing-link", seed, 0, withGroups)
		if len(v.Links) != 1 || v.Links[0].JobImpact > truth.Impact+0.005 || v.Links[0].JobImpact < truth.Impact/2 || v.Links[0].Most() < truth.Impact {
			t.Errorf("seed %d: links %+v; want %.4f within, and at least half of it", seed, v.Links, truth.Impact)
		}
	}
}

// TestLink_OfAnAbsentRank: the first rank of a slow group is not recorded, so it has no role: the others tell the group's stage.
func TestLink_OfAnAbsentRank(t *testing.T) {
	cfg, err := simulate.Sized("standing-link", 207707988938, 0)
	if err != nil {
		t.Fatal(err)
	}

	h := &feed.History{}
	if _, err := simulate.Run(cfg, h.Add); err != nil {
		t.Fatal(err)
	}

	f, err := h.Frame(nil)
	if err != nil {
		t.Fatal(err)
	}

	e := Begin(f, Default())
	for i := range f.Columns {
		e.Observe(f.Columns[i])
		for k := range f.Transfers {
			if f.Transfers[k].To == f.Columns[i].Step {
				e.ObserveTransfer(&f.Transfers[k])
			}
		}
	}

	slow := e.slowLinks()
	want := e.beyondPipeline(slow)
	if len(slow) != 1 || want <= 0 {
		t.Fatalf("%d slow links cost %.4f at least", len(slow), want)
	}

	l := *e.layout
	l.Role = slices.Clone(l.Role)
	e.layout = &l
	for _, r := range slow[0].Rows {
		if got := e.beyondPipeline(slow); got != want {
			t.Errorf("it costs %.4f at least without the first ranks, want %.4f", got, want)
		}

		l.Role[r] = -1
	}

	if got := e.beyondPipeline(slow); got != 0 {
		t.Errorf("a link of nobody costs %.4f at least", got)
	}
}

// TestNetwork_SlowBeforeItWasTold: a node's network that always was slow, but was told some hundred steps later, is slow from the first step
// on, for steps took as long before; what it costs lies within its bounds, where its stage's gradients are reduced beside other stages as well.
func TestNetwork_SlowBeforeItWasTold(t *testing.T) {
	for _, seed := range []uint64{5550009, 5550047, 5550057, 5550122} {
		v, truth := weighed(t, "node-network", seed, 0, withGroups)
		if len(v.Nodes) != 1 || v.Nodes[0].Cause != verdict.Communication || v.Nodes[0].SinceStep != 0 || v.Nodes[0].JobImpact > truth.Impact || v.Nodes[0].Most() < truth.Impact {
			t.Errorf("seed %d: nodes %+v; want %.4f since step 0", seed, v.Nodes, truth.Impact)
		}
	}
}

// TestTrace_QuickestSends holds on the recorded jobs what a node's network is told by: however long a rank waits in the
// usual send, and whoever is slow, its quickest one in some steps is the wire's alone, and all wires are as fast.
func TestTrace_QuickestSends(t *testing.T) {
	for _, name := range []string{"AR-1-full", "ST-full"} {
		tr := loadTrace(t, name)
		if tr == nil {
			return
		}

		quickest := map[int32][]float64{} // by row, of each window
		waits := 0.0
		for _, x := range tr.frame(t, view{topology: true, groups: true, communications: true}).Transfers {
			if !frame.P2P(x.Op) || x.Steps < 3 {
				continue
			}

			for i, r := range x.Rows {
				quickest[r] = append(quickest[r], float64(x.Quickest[i]))
				waits = max(waits, float64(x.Seconds[i])/x.Calls/float64(x.Quickest[i]))
			}
		}

		var of []float64
		for _, v := range quickest {
			of = append(of, slices.Min(v))
		}

		if len(of) < 8 || slices.Max(of) > 1.1*slices.Min(of) || waits < 100 {
			t.Errorf("%s: the quickest sends of %d ranks take %.6f to %.6f s, the usual one up to %.0f times as long; want as long within a tenth, and waits",
				name, len(of), slices.Min(of), slices.Max(of), waits)
		}
	}
}
