package detect

import (
	"fmt"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
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
			b := feed.NewHistory()
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
