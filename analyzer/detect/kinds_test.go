package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// TestKinds_TwoHostsOfAStage: all ranks of one of them take longer than those of the other since ever. That is a fault
// where it is more than hosts of one model differ by, or where it began; else nobody can tell.
func TestKinds_TwoHostsOfAStage(t *testing.T) {
	job := simulate.Config{Shape: simulate.Shape{DP: 16, PP: 4, MicroBatches: 8, RanksPerNode: 8}}
	for seed := range uint64(3) {
		job.Faults, job.Devices = nil, []simulate.Device{{Factor: 1.05, Nodes: []int{3}}}
		if v, _ := judged(t, "healthy", seed, 0, plain(job)); v.Decided || len(v.Nodes) > 0 {
			t.Errorf("seed %d: decided %v, %+v", seed, v.Decided, v.Nodes)
		}

		job.Devices = nil
		for _, f := range []simulate.Fault{{Factor: 1.15}, {Factor: 1.05, From: 90}} {
			f.Kind, f.Node = simulate.Compute, 3
			job.Faults = []simulate.Fault{f}
			exactly(t, "healthy", seed, plain(job))
		}
	}
}

// TestKinds_HalfOfAStage: half of a stage's hosts always had more own time, in which are the waits of an exchange
// between experts that forward passes hide.
func TestKinds_HalfOfAStage(t *testing.T) {
	for seed := range uint64(6) {
		exactly(t, "healthy", seed, plain(simulate.Config{
			Shape:   simulate.Shape{DP: 8, PP: 2, EP: 4, MicroBatches: 4, RanksPerNode: 2},
			Devices: []simulate.Device{{Factor: 1.045, Nodes: []int{0, 3, 4, 5}}},
		}))
	}
}
