package detect

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
)

// recordedSteps are the steps of a job that ran on PyTorch 2.15 with gloo, four ranks on two
// nodes that shared two cores (deploy/examples/pytorch/run.sh -- --steps 45).
func recordedSteps(t *testing.T, name string) []row.Step {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	var out []row.Step
	for _, line := range lines[1:] {
		at := map[string]int64{}
		for i, column := range lines[0] {
			if at[column], err = strconv.ParseInt(line[i], 10, 64); err != nil {
				t.Fatal(err)
			}
		}

		out = append(out, row.Step{Rank: uint32(at["rank"]), Incarnation: uint64(at["rank"]) + 1, Node: nodeName(int(at["rank"]) / 2), Step: uint64(at["step"]),
			StartNs: 1e18 + at["start_ns"], StepNs: at["step_ns"], FPNs: at["fp_ns"], FPCount: 1, BackwardNs: at["backward_ns"],
			CommNs: at["comm_ns"], ExposedNs: at["exposed_ns"], CommDPNs: at["comm_ns"], CommTPNs: -1, CommPPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
			DataLoaderNs: at["dataloader_ns"], CheckpointNs: at["checkpoint_ns"], SelfNs: at["self_ns"], HostFPNs: -1, Tokens: -1})
	}

	return out
}

// In the job with the slow rank its forward passes take four times as long as those of the
// others, step after step, and the others' backward passes twice as long as its own.
func TestRecorded_WaitsInBackward(t *testing.T) {
	for name, want := range map[string]string{"gloo-slow-forward": "[host-01 degraded compute [3]]", "gloo-healthy": "[]"} {
		t.Run(name, func(t *testing.T) {
			b := &feed.History{}
			for r := range uint32(4) {
				b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: 4, Node: nodeName(int(r) / 2), StartedNs: 1e18})
			}

			for _, s := range recordedSteps(t, name) {
				b.AddStep(&s)
			}

			f, err := b.Frame(nil)
			if err != nil {
				t.Fatal(err)
			}

			named := []string{}
			v := Analyze(f, Default())
			for _, n := range v.Nodes {
				named = append(named, fmt.Sprint(n.Node, " ", n.State, " ", n.Cause, " ", n.Ranks))
			}

			if got := fmt.Sprint(named); got != want {
				t.Errorf("named %s, want %s: %v", got, want, v.Findings)
			}
		})
	}
}
