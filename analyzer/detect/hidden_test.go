package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// A forward pass that holds an operation of all ranks, and no word of its wait: a rank that
// computes more makes all of them as long, and is itself in the operation for the shortest time.
func TestDecided_WaitsThatNobodyRecords(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ranks   int
		late    int64 // by how many ms the last rank comes later
		blocks  bool  // the wait is recorded
		decided bool
		named   bool
	}{
		{"healthy", 4, 0, false, true, false},
		{"a bit later", 4, 10, false, true, false},
		{"late", 4, 60, false, false, false},
		{"late, and recorded", 4, 60, true, true, true},
		{"late, one of three", 3, 60, false, false, false},
		{"late, one of two", 2, 60, false, true, false}, // whose time is usual nobody knows
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &feed.History{}
			for r := range uint32(tt.ranks) {
				b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: uint32(tt.ranks), Node: nodeName(int(r)), StartedNs: 1e18})
				for s := 1; s <= 60; s++ {
					noise := int64(s*7919+int(r)*104729) % 4e6
					inside := int64(1e7) + noise // in the operation
					if r+1 < uint32(tt.ranks) {
						inside += tt.late * 1e6
					}

					exposed := int64(2e7)
					if tt.blocks {
						exposed += inside
					}

					step := 4e8 + tt.late*1e6
					b.AddStep(&row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e9, StepNs: step, FPNs: 3e8 + tt.late*1e6 + noise,
						CommNs: inside + 2e7, ExposedNs: exposed, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: inside + 2e7,
						DataLoaderNs: -1, CheckpointNs: -1, SelfNs: step - exposed, HostFPNs: -1, Tokens: -1, BackwardNs: 2e7})
				}
			}

			f, err := b.Frame(nil)
			if err != nil {
				t.Fatal(err)
			}

			v := Analyze(f, Default())
			if said := saysLowCoverage(v, fmt.Sprintf("rank %d is ", tt.ranks-1)); said == tt.decided || v.Decided != tt.decided || len(v.Nodes) > 0 != tt.named {
				t.Errorf("decided %v, nodes %v, findings %v", v.Decided, v.Nodes, v.Findings)
			}

			if !tt.decided && v.Exit(0.01) != verdict.ExitUndecided {
				t.Errorf("exit code %d", v.Exit(0.01))
			}
		})
	}
}

// A rank of which nothing is known can be the one for whom all others wait: they are in bare
// communication for long, each of them. Where they aren't, it keeps nobody waiting.
func TestDecided_WaitsForWhoIsNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		work    int  // steps in which the last rank's own work is recorded
		there   bool // its steps are
		exposed int64
		decided bool
	}{
		{"all are recorded, and communicate for long", 60, true, 8e7, true},
		{"one is not, and nobody waits", 0, false, 1e7, true},
		{"one is not, and all may wait", 0, false, 8e7, false},
		{"its steps alone, and nobody waits", 0, true, 1e7, true},
		{"its steps alone, and all may wait", 0, true, 8e7, false},
		{"no longer, and all may wait", 20, true, 8e7, false},
		{"for a few steps, in which it waited least", 3, true, 8e7, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &feed.History{}
			const ranks = 8
			for r := range uint32(ranks) {
				last := r == ranks-1
				if last && !tt.there && tt.work == 0 {
					continue
				}

				b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: ranks, Node: nodeName(int(r)), StartedNs: 1e18})
				for s := 1; s <= 60; s++ {
					fp := int64(3e8) + int64(s*7919+int(r)*104729)%3e6
					step := &row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e9, StepNs: 4e8, FPNs: fp,
						CommNs: tt.exposed, ExposedNs: tt.exposed, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: tt.exposed,
						DataLoaderNs: -1, CheckpointNs: -1, SelfNs: fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1}
					if last && s > tt.work {
						step.FPNs, step.CommNs, step.ExposedNs, step.CommOtherNs, step.SelfNs = -1, -1, -1, -1, -1
					}

					if last && tt.work < 60 && s <= tt.work { // it is the one for whom the others wait
						step.CommNs, step.ExposedNs, step.CommOtherNs = 1e6, 1e6, 1e6
					}

					b.AddStep(step)
				}
			}

			f, err := b.Frame(nil)
			if err != nil {
				t.Fatal(err)
			}

			v := Analyze(f, Default())
			if v.Decided != tt.decided || len(v.Nodes) > 0 || saysLowCoverage(v, "they may wait for it") == tt.decided {
				t.Errorf("decided %v, nodes %v, findings %v", v.Decided, v.Nodes, v.Findings)
			}

			if !tt.decided && v.Exit(0.01) != verdict.ExitUndecided {
				t.Errorf("exit code %d", v.Exit(0.01))
			}
		})
	}
}

// What is not over is not healthy: a link that has been slow for 44 steps of a job that met
// congestion before, and a node that was slow and whose ranks of a new mapping are suspects;
// nor is a job whose steps grew when its one slow rank was no longer recorded, or in which a node
// is slow in its own time and may wait for ranks that never were.
func TestDecided_WhatIsNotOver(t *testing.T) {
	v, _ := judged(t, "slow-link", 3, 32, func(c *simulate.Config) { c.Steps = 160 })
	if v.Decided || v.Healthy || len(v.Links) > 0 || !saysLowCoverage(v, "more steps will tell") {
		t.Errorf("link: decided %v, links %v, findings %v", v.Decided, v.Links, v.Findings)
	}

	v, truth := judged(t, "restart", 3, 32, func(c *simulate.Config) { c.Steps = 160 })
	if got := accused(v); !slices.Equal(got, truth.SlowNodes) || v.Nodes[0].State != verdict.Degraded {
		t.Errorf("restart: %+v, want %v degraded", v.Nodes, truth.SlowNodes)
	}

	v, slow := simulated(t, "absent-10", 77100033, 0)
	if got := accused(v); v.Healthy || !slices.Equal(got, slow) && (len(got) > 0 || !saysLowCoverage(v, "of its pipeline are not recorded")) {
		t.Errorf("absent mates: decided %v, nodes %+v, findings %v", v.Decided, v.Nodes, v.Findings)
	}

	cfg, err := simulate.Sized("compute-1.2", 3, 32)
	if err != nil {
		t.Fatal(err)
	}

	cfg.Steps = 160
	rows, truth, err := simulate.Rows(cfg)
	if err != nil {
		t.Fatal(err)
	}

	rows.Steps = slices.DeleteFunc(rows.Steps, func(s row.Step) bool {
		return int(s.Rank) == truth.SlowRanks[0] && int(s.Step) >= *truth.OnsetStep-40
	})
	if v := Analyze(frameOf(t, &rows, nil), Default()); v.Decided || v.Healthy || len(v.Nodes) > 0 || !saysLowCoverage(v, "does not say why") {
		t.Errorf("culprit's recording lost: decided %v, nodes %+v, findings %v", v.Decided, v.Nodes, v.Findings)
	}
}

// TestDecided_PassingTimeAlone: without Communication nobody has own time, and a passing slow time of
// the first node is an event all the same.
func TestDecided_PassingTimeAlone(t *testing.T) {
	for seed := range uint64(4) {
		v, _ := judged(t, "transients", 31415900+seed, 0, func(c *simulate.Config) {
			c.Record.Off, c.Faults[0].Node, c.Faults[0].Locals = []string{"Communication"}, 0, nil
		})
		if len(accused(v)) > 0 || !slices.ContainsFunc(v.Events, func(e verdict.Event) bool { return e.Node == "node-0" }) {
			t.Errorf("seed %d: nodes %v, events %v, want an event of node-0 alone", seed, v.Nodes, v.Events)
		}
	}
}

// TestHidden_HostTimes: forward passes are timed by the host alone, which only enqueues them, and one device becomes slow:
// all hosts stand as long where nothing is recorded. That all have more own time alike is no answer.
func TestHidden_HostTimes(t *testing.T) {
	for seed := range uint64(4) {
		f := newJob(seed)
		f.shape(1, 16, 1, 2)
		f.seq, f.unrecorded = 0, 0
		x := f.frame()
		for _, c := range x.Columns {
			for r := range c.V[frame.Self] {
				if c.V[frame.FP][r] /= 50; c.Step >= 67 {
					longer := c.V[frame.Self][r] / 2
					c.V[frame.Self][r], c.V[frame.Step][r] = c.V[frame.Self][r]+longer, c.V[frame.Step][r]+longer
				}
			}
		}

		x.HostOnly = 1
		if v := Analyze(x, Default()); v.Exit(0.01) != verdict.ExitUndecided || said(v, verdict.JobSlow) != "" || !strings.Contains(said(v, verdict.LowCoverage), "record the device's times") {
			t.Errorf("seed %d: exit %d, findings %+v", seed, v.Exit(0.01), v.Findings)
		}
	}
}

// TestHidden_ForwardPassesHoldWaits: all ranks wait in their forward passes for those of a node whose own time the loads of experts hide.
// That forward passes are longer on all ranks is no reason for longer steps: own time says that they wait.
func TestHidden_ForwardPassesHoldWaits(t *testing.T) {
	for _, seed := range []uint64{11, 23, 48} {
		v, _ := judged(t, "healthy", seed, 0, func(c *simulate.Config) {
			plain(simulate.Config{
				Shape:  simulate.Shape{DP: 8, EP: 8, MicroBatches: 2, RanksPerNode: 2},
				Work:   simulate.Work{ExpertSD: 0.12, ExpertRho: 0.8},
				Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 3, Factor: 1.35, From: 94}},
			})(c)
			c.Steps = 163
		})
		if v.Healthy {
			t.Errorf("seed %d: healthy, findings %+v", seed, v.Findings)
		}
	}
}
