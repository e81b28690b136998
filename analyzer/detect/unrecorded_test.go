package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

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
			b := feed.NewHistory()
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
