package detect

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// exactly asserts that a verdict names the nodes and links that are slow, and nobody else.
func exactly(t *testing.T, name string, seed uint64, change func(*simulate.Config)) *verdict.Verdict {
	t.Helper()
	v, truth := judged(t, name, seed, 0, change)
	slow, got := slices.Sorted(slices.Values(truth.SlowNodes)), accused(v)
	if len(v.Links) != len(truth.Links) {
		t.Errorf("%s, seed %d: links %v, want %v", name, seed, v.Links, truth.Links)
	}

	if slices.Sort(got); !slices.Equal(got, slow) || !v.Decided {
		t.Errorf("%s, seed %d: %v accused, decided %v; want %v", name, seed, got, v.Decided, slow)
	}

	for _, n := range v.Nodes {
		if n.State == verdict.Recovered && !slices.Contains(slow, n.Node) {
			t.Errorf("%s, seed %d: %s is said to have recovered; slow was %v", name, seed, n.Node, slow)
		}
	}

	return v
}

// plain makes a quiet job of its own of what a scenario drew.
func plain(of simulate.Config) func(*simulate.Config) {
	return func(c *simulate.Config) {
		of.Seed, of.Steps = c.Seed, 320
		of.Noise = simulate.Noise{OpSD: 0.003, StepSD: 0.004, DeviceSD: 0.003}
		*c = of
	}
}

// TestGroups_ThatNobodyTold: no group is known, tensor and context parallelism make the ranks of two nodes
// as slow in their forward passes as the slow one, and whoever waits for it is not named.
func TestGroups_ThatNobodyTold(t *testing.T) {
	for stages := 1; stages <= 2; stages++ {
		for seed := range uint64(3) {
			exactly(t, "healthy", seed, plain(simulate.Config{
				Shape:  simulate.Shape{TP: 2, CP: 2, DP: 4, PP: stages, MicroBatches: 4, RanksPerNode: 2},
				Record: simulate.Recording{NoGroups: true, NoTopology: true},
				Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Locals: []int{1}, Factor: 1.3, From: 90}},
			}))
		}
	}

	for seed := range uint64(3) { // nor do replicas as wholes tell then
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:  simulate.Shape{TP: 2, DP: 8, PP: 2, EP: 4, MicroBatches: 2, RanksPerNode: 8, Order: "tp-cp-pp-dp"},
			Work:   simulate.Work{SequenceSD: 0.06},
			Record: simulate.Recording{NoGroups: true, NoTopology: true},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 3, Locals: []int{1}, Factor: 1.56, From: 110, Ramp: 30}},
		}))
	}

	exactly(t, "compound", 91024, func(*simulate.Config) {}) // experts, and waits between stages that are not recorded
	exactly(t, "compound", 91588, func(*simulate.Config) {})
	exactly(t, "compound", 91139, func(*simulate.Config) {}) // two, one of them on old hardware
}

// TestStages_MovedToOtherHardware: a restart moves whole stages to hosts of an older kind. A stage without
// peers elsewhere is compared with its own past, and that was on another host.
func TestStages_MovedToOtherHardware(t *testing.T) {
	for seed := range uint64(4) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:    simulate.Shape{DP: 8, PP: 4, MicroBatches: 4, RanksPerNode: 8},
			Devices:  []simulate.Device{{Factor: 1.06, Nodes: []int{0, 1}}},
			Restarts: []simulate.Restart{{At: 150, Redo: 5, Shuffle: true}},
		}))
	}
}

// TestCommon_OneRankOfANode: two of four nodes have a slow rank, one of them from a restart on, so that
// it has no past. The other ranks of its node, which do other work, are well: it is no kind of hardware.
func TestCommon_OneRankOfANode(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:    simulate.Shape{TP: 2, DP: 4, PP: 4, MicroBatches: 4, RanksPerNode: 8, Order: "tp-cp-pp-dp"},
			Restarts: []simulate.Restart{{At: 137, Redo: 3, Shuffle: true}},
			Faults: []simulate.Fault{
				{Kind: simulate.Compute, Node: 0, Locals: []int{5}, Factor: 1.5, From: 86},
				{Kind: simulate.Compute, Node: 2, Locals: []int{3}, Factor: 1.3, From: 137},
			},
		}))
	}

	exactly(t, "compound", 91185, func(*simulate.Config) {}) // the older half always was as slow as the one is now
}

// TestOwn_BesideASlowDevice: nobody works with both of two slow ranks, so who is slow beside its forward
// passes alone is not waiting for the other one.
func TestOwn_BesideASlowDevice(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape: simulate.Shape{DP: 32, RanksPerNode: 8},
			Faults: []simulate.Fault{
				{Kind: simulate.Compute, Node: 0, Locals: []int{2}, Factor: 1.6, From: 100},
				{Kind: simulate.Backward, Node: 2, Locals: []int{3}, Factor: 1.4, From: 140},
			},
		}))
	}

	exactly(t, "compound", 91079, func(*simulate.Config) {})
	exactly(t, "compound", 91163, func(*simulate.Config) {})
}

// TestCommon_OneFaultAfterTheOther: of four nodes one is slow from the start and another one later. They are
// no kind of hardware: those have no moment of their own.
func TestCommon_OneFaultAfterTheOther(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape: simulate.Shape{DP: 4, RanksPerNode: 1},
			Faults: []simulate.Fault{
				{Kind: simulate.Compute, Node: 3, Factor: 1.33},
				{Kind: simulate.Compute, Node: 2, Factor: 1.2, From: 140},
			},
		}))
	}
}

// TestOwn_SlowBeforeItsMate: a rank is slow beside its forward passes, and fifty steps later one of its
// pipeline is slower. That one is not what it waited for before.
func TestOwn_SlowBeforeItsMate(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape: simulate.Shape{TP: 4, DP: 8, PP: 2, MicroBatches: 4, RanksPerNode: 8},
			Faults: []simulate.Fault{
				{Kind: simulate.Host, Node: 7, Locals: []int{1}, Share: 0.24, From: 90},
				{Kind: simulate.Compute, Node: 3, Locals: []int{0}, Factor: 1.57, From: 140},
			},
		}))
	}
}

// TestLinks_LastByTurns: two ranks of a group are slow in other parts of the step, so that one comes last to
// some buckets and the other one to the rest. Nobody's time is the transfer then, and no link is slow.
func TestLinks_LastByTurns(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape: simulate.Shape{TP: 2, DP: 16, RanksPerNode: 8, Order: "tp-cp-pp-dp"},
			Model: simulate.Model{Overlap: true, Sharded: true},
			Faults: []simulate.Fault{
				{Kind: simulate.Host, Node: 2, Locals: []int{6}, Share: 0.26, From: 110},
				{Kind: simulate.Backward, Node: 1, Locals: []int{4}, Factor: 1.41},
			},
		}))
	}
}

// TestPassing_WaitsInForwardPasses: a rank of a pair becomes slow little by little, and some of its steps are
// lost. Its mate waits for it inside its forward passes, and none of these episodes is its own.
func TestPassing_WaitsInForwardPasses(t *testing.T) {
	for _, seed := range []uint64{2, 6, 8} {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:  simulate.Shape{TP: 2, DP: 4, MicroBatches: 2, RanksPerNode: 1},
			Loss:   simulate.Loss{RankSteps: 0.1, Run: 4, Keep: true},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Factor: 1.4, Ramp: 30}},
		}))
	}
}

// TestLoader_HalfOfARole: a node whose loaders are slow from the start holds half of its stage. The other
// half waits for no data at all, which is no newer kind of hardware.
func TestLoader_HalfOfARole(t *testing.T) {
	for seed := range uint64(3) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:  simulate.Shape{TP: 4, DP: 4, PP: 4, MicroBatches: 4, RanksPerNode: 8},
			Loader: simulate.Loader{Ranks: "all"},
			Faults: []simulate.Fault{{Kind: simulate.DataLoader, Node: 4, Share: 0.25}},
		}))
	}
}

// TestVictims_RecordedWaits: of two slow ranks in one pipeline the less slow one is named where its groups' waits
// are recorded; and where no groups are told, that a restart lets both episodes begin anew makes them no pair.
func TestVictims_RecordedWaits(t *testing.T) {
	exactly(t, "compound", 2236067999, func(*simulate.Config) {})
	v, truth := weighed(t, "compound", 2236068017, 0, func(*simulate.Config) {})
	for _, n := range v.Nodes {
		if c := truth.Culprit(n.Node); c == nil || n.State != verdict.Degraded || n.JobImpact > 1.5*c.Impact {
			t.Errorf("%+v, want one of %v", n, truth.SlowNodes)
		}
	}

	if len(v.Nodes) != 2 {
		t.Errorf("%d nodes, want %v", len(v.Nodes), truth.SlowNodes)
	}
}
