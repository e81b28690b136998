package detect

import (
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// priced asserts that a job's only culprit is named, for one of the causes, and costs what it does.
func priced(t *testing.T, c simulate.Config, causes ...string) {
	t.Helper()
	for seed := range uint64(3) {
		v, truth := weighed(t, "healthy", seed, 0, plain(c))
		if len(v.Nodes) != 1 || !slices.Equal(accused(v), truth.SlowNodes) || len(v.Links) > 0 {
			t.Errorf("seed %d: %+v, links %v; want %v", seed, v.Nodes, v.Links, truth.SlowNodes)
			continue
		}

		if n := v.Nodes[0]; !slices.Contains(causes, n.Cause) {
			t.Errorf("seed %d: cause %s, want one of %v", seed, n.Cause, causes)
		} else if costError(n.JobImpact, truth.Impact) > 0.3 {
			t.Errorf("seed %d: costs %.4f, want %.4f", seed, n.JobImpact, truth.Impact)
		}
	}
}

// TestAlone_StageOnOneNode: all ranks of a stage share a node, so nobody elsewhere does the same work: that
// they wait for data, or for their host, shows against the other stages.
func TestAlone_StageOnOneNode(t *testing.T) {
	job := simulate.Config{
		Shape:  simulate.Shape{DP: 4, PP: 4, MicroBatches: 12, RanksPerNode: 4},
		Loader: simulate.Loader{Ranks: "all"},
	}
	for kind, causes := range map[string][]string{simulate.DataLoader: {verdict.DataLoader}, simulate.Host: {verdict.HostDelay}} {
		job.Faults = []simulate.Fault{{Kind: kind, Node: 2, Share: 0.2, From: 90}}
		priced(t, job, causes...)
	}

	job.Faults = []simulate.Fault{{Kind: simulate.Compute, Node: 1, Factor: 1.4, From: 90}}
	priced(t, job, verdict.Compute)
	job.Faults = nil
	for seed := range uint64(3) { // stages may load for longer by habit
		job.Model.Stages = []float64{1, 1.3, 1, 0.8}
		exactly(t, "healthy", seed, plain(job))
	}
}

// TestAlone_WaitsInItsForwardPasses: a host delays the ranks of its stage, now this one more, now that one. They wait for each other
// inside their forward passes, which get a little longer, and are not what is slow.
func TestAlone_WaitsInItsForwardPasses(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(4, 2, 4, 8)
		j.tpShared, j.seq, j.unrecorded, j.steps = true, 0, 0, 240
		j.fault = func(rank, node, step int) effect {
			if node == 2 && step >= 80 {
				return effect{host: 0.4, forward: 1 + 0.1*float64((rank+step)%2)}
			}

			return effect{}
		}
		v := Analyze(j.frame(), Default())
		if got := blamed(v); !slices.Equal(got, []string{"host-02"}) || v.Nodes[0].Cause != verdict.HostDelay || v.Nodes[0].Slowdown < 1.25 {
			t.Errorf("seed %d: %+v, want host-02 for its host", seed, v.Nodes)
		}
	}
}

// TestAlone_OthersWaitWhereNoRangeTells: a node has one or two whole stages, whose backward passes or pauses between
// them are long. The own time of the other stages holds waits for it, and goes as far from its past.
func TestAlone_OthersWaitWhereNoRangeTells(t *testing.T) {
	for _, seed := range []uint64{710000017, 710000063, 720000073, 740000062, 750000023, 760000047, 760000063, 820000107} {
		exactly(t, "whole-host", seed, func(*simulate.Config) {})
	}
}

// TestAlone_MostOrHalfOfAStageOnOneNode: four of the six ranks of a stage are the middle of it, and its other two
// look fast; of half of sixteen the middle of all is not halfway to them.
func TestAlone_MostOrHalfOfAStageOnOneNode(t *testing.T) {
	for _, tt := range []struct{ replicas, ranks, computes, loads int }{{6, 4, 0, 3}, {16, 8, 2, 3}} {
		job := simulate.Config{
			Shape:  simulate.Shape{DP: tt.replicas, PP: 4, MicroBatches: 8, RanksPerNode: tt.ranks},
			Loader: simulate.Loader{Ranks: "all"},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: tt.computes, Factor: 1.4, From: 90}},
		}
		priced(t, job, verdict.Compute)
		job.Faults = []simulate.Fault{{Kind: simulate.DataLoader, Node: tt.loads, Share: 0.2, From: 90}}
		priced(t, job, verdict.DataLoader)
	}
}

// TestAlone_MostOfTwoStagesOnOneNode: half of the stages take longer, and so does their middle, but not all of them.
func TestAlone_MostOfTwoStagesOnOneNode(t *testing.T) {
	priced(t, simulate.Config{
		Shape:  simulate.Shape{DP: 6, PP: 4, MicroBatches: 8, RanksPerNode: 8},
		Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Factor: 1.56, From: 90}},
	}, verdict.Compute)
}

// TestWhole_StaysNamed: how clearly its own time speaks against a replica on one node comes and goes with the noise.
func TestWhole_StaysNamed(t *testing.T) {
	exactly(t, "whole-host", 1795874317, func(*simulate.Config) {})
}

// TestWhole_BesideForwardPasses: a node has a replica with all its stages, which is slow in its backward passes or
// between them. What the stages of a replica have in common looks like its work, which forward passes would show.
func TestWhole_BesideForwardPasses(t *testing.T) {
	job := simulate.Config{Shape: simulate.Shape{DP: 6, PP: 4, MicroBatches: 8, RanksPerNode: 4, Order: "tp-cp-pp-dp"}, Work: simulate.Work{SequenceSD: 0.05}}
	job.Faults = []simulate.Fault{{Kind: simulate.Backward, Node: 1, Factor: 1.5, From: 90}}
	priced(t, job, verdict.Compute, verdict.HostDelay)
	job.Faults = []simulate.Fault{{Kind: simulate.Host, Node: 1, Share: 0.15, From: 90}}
	priced(t, job, verdict.HostDelay)
}

// TestLinks_WaitForAStage: no groups are told, so the collectives of all ranks count as those of a stage: what it
// waits there for another stage is no transfer.
func TestLinks_WaitForAStage(t *testing.T) {
	for seed := range uint64(4) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:  simulate.Shape{DP: 8, PP: 4, MicroBatches: 32, RanksPerNode: 8},
			Model:  simulate.Model{Sharded: true, Overlap: true, NoGlobalSync: true, DPShare: 0.11},
			Record: simulate.Recording{NoGroups: true, NoTopology: true},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 2, Factor: 1.66, From: 107}},
		}))
	}
}

// TestAlone_WaitsForALink: a stage that has its node to itself waits for another one, whose transfers became slow,
// where no range tells. It is the link, which costs what steps are longer since.
func TestAlone_WaitsForALink(t *testing.T) {
	job := simulate.Config{
		Shape:  simulate.Shape{DP: 3, PP: 4, MicroBatches: 8, RanksPerNode: 4},
		Model:  simulate.Model{Sharded: true, NoGlobalSync: true, DPShare: 0.06},
		Record: simulate.Recording{UnrecordedWait: 0.65},
		Faults: []simulate.Fault{{Kind: simulate.Link, Group: "dp-stage1", Factor: 1, Share: 0.25, From: 125}},
	}
	well := job
	well.Faults = nil
	for seed := range uint64(4) {
		_, without := judged(t, "healthy", seed, 0, plain(well))
		v, with := judged(t, "healthy", seed, 0, plain(job))
		if len(v.Nodes) > 0 || len(v.Links) != 1 || v.Links[0].Group != "dp-stage1" {
			t.Errorf("seed %d: nodes %+v, links %+v; want dp-stage1", seed, v.Nodes, v.Links)
			continue
		}

		longer := (with.Seconds - without.Seconds) * 320 / (320 - 125)
		if want, got := longer/(without.Seconds+longer), v.Links[0].JobImpact; costError(got, want) > 0.3 || got != v.JobImpact {
			t.Errorf("seed %d: the link costs %.4f, want %.4f; the job %.4f", seed, got, want, v.JobImpact)
		}
	}
}

// TestAlone_FirstStepsAreNoPast: compilers and caches are ready sooner in a stage that has its node to itself. That is
// nothing which the stage could have become slower than.
func TestAlone_FirstStepsAreNoPast(t *testing.T) {
	cfg, err := simulate.Sized("healthy", 1, 0)
	if err != nil {
		t.Fatal(err)
	}

	plain(simulate.Config{Shape: simulate.Shape{DP: 4, PP: 4, MicroBatches: 12, RanksPerNode: 4}})(&cfg)
	var h feed.History
	if _, err := simulate.Run(cfg, func(rows *row.Rows) {
		for i := range rows.Steps {
			if x := &rows.Steps[i]; x.Step < 8 && x.Rank/4 != 2 {
				x.FPNs, x.SelfNs = 2*x.FPNs, x.SelfNs+x.FPNs
			}
		}

		h.Add(rows)
	}); err != nil {
		t.Fatal(err)
	}

	f, err := h.Frame(nil)
	if err != nil {
		t.Fatal(err)
	}

	if v := Analyze(f, Default()); len(v.Nodes) > 0 || !v.Healthy {
		t.Errorf("nodes %+v, healthy %v, findings %+v", v.Nodes, v.Healthy, v.Findings)
	}
}

// TestAlone_RestartMovesStages: each stage has its node to itself, and a restart deals the nodes anew. What its stage took on
// another node tells who is slow, from the start or since a moment before; no layers moved.
func TestAlone_RestartMovesStages(t *testing.T) {
	job := simulate.Config{Shape: simulate.Shape{DP: 4, PP: 4, MicroBatches: 12, RanksPerNode: 4}, Restarts: []simulate.Restart{{At: 160, Shuffle: true}}}
	for _, from := range []int{0, 80} {
		for seed := range uint64(4) {
			job.Faults = []simulate.Fault{{Kind: simulate.Compute, Node: 2, Factor: 1.4, From: from}}
			v := exactly(t, "healthy", seed, plain(job))
			if s := said(v, verdict.StageImbalance); s != "" {
				t.Errorf("from %d, seed %d: %s", from, seed, s)
			}
		}
	}

	for seed := range uint64(4) { // no more than two models of hardware differ, but the node took less before
		job.Faults = []simulate.Fault{{Kind: simulate.Compute, Node: 2, Factor: 1.13, From: 80}}
		exactly(t, "healthy", seed, plain(job))
	}

	job.Faults = nil
	job.Devices = []simulate.Device{{Nodes: []int{1, 2}, Factor: 1.05}} // older ones, to which other stages come
	for seed := range uint64(4) {
		exactly(t, "healthy", seed, plain(job))
	}
}

// TestAlone_BecameSlowBesideMoreMicroBatches: gradients are accumulated over four times as many micro-batches since a stage
// that has its node to itself became slow. All stages do more; this one alone takes longer for each.
func TestAlone_BecameSlowBesideMoreMicroBatches(t *testing.T) {
	shape := simulate.Shape{DP: 4, PP: 4, MicroBatches: 4, RanksPerNode: 4}
	more := shape
	more.MicroBatches = 16
	for _, at := range []int{160, 190} {
		for seed := range uint64(3) {
			v := exactly(t, "healthy", seed, plain(simulate.Config{
				Shape: shape, Restarts: []simulate.Restart{{At: at, Layout: &more}},
				Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Factor: 1.6, From: 160}},
			}))
			if s := said(v, verdict.StageImbalance); s != "" {
				t.Errorf("more since %d, seed %d: %s", at, seed, s)
			}
		}
	}
}

// TestAlone_TwoStagesAtOnce: the hosts of two of four stages get slow at once. Nothing proves which of them waits for the other, but
// that own time is longer on all ranks alike, and nobody slow, is not true.
func TestAlone_TwoStagesAtOnce(t *testing.T) {
	for seed := range uint64(6) {
		v, _ := judged(t, "healthy", seed, 0, plain(simulate.Config{
			Shape:  simulate.Shape{DP: 4, PP: 4, MicroBatches: 8, RanksPerNode: 4},
			Faults: []simulate.Fault{{Kind: simulate.Host, Node: 1, Share: 0.3, From: 90}, {Kind: simulate.Host, Node: 2, Share: 0.3, From: 90}},
		}))
		for _, n := range v.Nodes {
			if n.Node != "node-0001" && n.Node != "node-0002" {
				t.Errorf("seed %d: %+v", seed, n)
			}
		}

		if s := said(v, verdict.JobSlow); s != "" || v.Healthy {
			t.Errorf("seed %d: healthy %v, %s", seed, v.Healthy, s)
		}
	}
}

// TestAlone_LoadsAlone: the first stage loads data, and has its node to itself. That it waits for every third batch may be the node or
// the storage; nobody can tell, but all is not well. A little is usual.
func TestAlone_LoadsAlone(t *testing.T) {
	for _, from := range []int{0, 90} {
		for seed := range uint64(3) {
			job := simulate.Config{
				Shape:  simulate.Shape{DP: 4, PP: 4, MicroBatches: 12, RanksPerNode: 4},
				Loader: simulate.Loader{Share: 0.015},
			}
			exactly(t, "healthy", seed, plain(job))
			job.Faults = []simulate.Fault{{Kind: simulate.DataLoader, Node: 0, Share: 0.4, From: from, BurstSteps: 1, BurstEvery: 3}}
			v, _ := judged(t, "healthy", seed, 0, plain(job))
			if v.Healthy || v.Decided || len(v.Nodes) > 0 || !strings.Contains(said(v, verdict.LowCoverage), "alone loads data") || said(v, verdict.SharedStorage) != "" {
				t.Errorf("from %d, seed %d: decided %v, nodes %+v, findings %+v", from, seed, v.Decided, v.Nodes, v.Findings)
			}
		}
	}
}

// TestAlone_CauseOfARamp: a stage on a node of its own gets slower little by little. Its own time alarms first, and its forward passes, which
// have not alarmed yet, are longer by as much: it is what it computes, not its host.
func TestAlone_CauseOfARamp(t *testing.T) {
	for seed := range uint64(6) {
		v := exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:  simulate.Shape{DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 4},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Factor: 1.1, From: 10, Ramp: 310}},
		}))
		if len(v.Nodes) == 1 && v.Nodes[0].Cause != verdict.Compute {
			t.Errorf("seed %d: %+v, want compute", seed, v.Nodes[0])
		}
	}
}
