package detect

import (
	"fmt"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// A healthy job is found healthy only where a slow link could have been seen: its groups have names.
func TestLinks_NothingIsHealthyUnjudged(t *testing.T) {
	for _, tt := range []struct {
		name         string
		steps, ranks int
		group        func(rank int) string
		decided      bool
	}{
		{"one group of all", 30, 4, func(int) string { return "everybody" }, true},
		{"no name", 30, 4, func(int) string { return "" }, false},
		{"no name, for long", 160, 4, func(int) string { return "" }, false},
		{"no name, of two ranks", 30, 2, func(int) string { return "" }, true},
		{"pairs, for long", 96, 4, func(r int) string { return fmt.Sprint("pair ", r/2) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &feed.History{}
			for r := range uint32(tt.ranks) {
				b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: uint32(tt.ranks), Node: nodeName(int(r)), StartedNs: 1e18})
				for s := 1; s <= tt.steps; s++ {
					fp := int64(3e8) + int64(s*7919+int(r)*104729)%3e6
					b.AddStep(&row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e9, StepNs: 4e8, FPNs: fp,
						CommNs: 1e8, ExposedNs: 1e8, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: 1e8,
						DataLoaderNs: -1, CheckpointNs: -1, SelfNs: fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1})
					if n := int64(s%16 + 1); n == 16 || s == tt.steps {
						b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: tt.group(int(r)), Op: "allreduce",
							Steps: uint32(n), Calls: uint32(n), TotalNs: n * 5e7, Bytes: n << 20})
						b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: "all", Op: "allreduce",
							Steps: uint32(n), Calls: uint32(n), TotalNs: n * 5e7, Bytes: n << 24})
					}
				}
			}

			f, err := b.Frame(nil)
			if err != nil {
				t.Fatal(err)
			}

			v := Analyze(f, Default())
			if v.Decided != tt.decided || v.Healthy != tt.decided || len(v.Nodes)+len(v.Links) > 0 {
				t.Errorf("decided %v, healthy %v, nodes %v, links %v: %v", v.Decided, v.Healthy, v.Nodes, v.Links, v.Findings)
			}

			if said := saysLowCoverage(v, "a slow link"); said == tt.decided || tt.decided != (v.Exit(0.01) == verdict.ExitHealthy) {
				t.Errorf("said %v, exit code %d: %v", said, v.Exit(0.01), v.Findings)
			}
		})
	}
}
