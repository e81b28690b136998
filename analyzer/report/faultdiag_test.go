package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

func TestFaultDiag(t *testing.T) {
	v := verdict.New("j1")
	v.Nodes = []verdict.Node{
		{Node: "node-4", State: verdict.Degraded, Cause: verdict.Compute, Ranks: []int{33, 35}, JobImpact: 0.2},
		{Node: "node-1", State: verdict.Degraded, Cause: verdict.DataLoader, Ranks: []int{9}, JobImpact: 0.1},
		{Node: "node-2", State: verdict.Degraded, Cause: verdict.HostDelay, Ranks: []int{16, 17}, JobImpact: 0.1},
		{Node: "node-3", State: verdict.Suspect, Cause: verdict.Compute, Ranks: []int{24}},
	}
	v.Links = []verdict.Link{
		{Group: "pp-0", Ranks: []int{0, 8}, Nodes: []string{"node-0"}, State: verdict.Degraded, JobImpact: 0.05},
		{Group: "dp-0", Ranks: []int{1, 9}, Nodes: []string{"node-0"}, State: verdict.Degraded, JobImpact: 0.05},
	}
	f := sample{ranks: 48, stages: 1, perNode: 8, steps: 1, slow: -1}.frame()

	var b bytes.Buffer
	if err := FaultDiag(&b, v, f, func(g string) string { return g[:2] }); err != nil {
		t.Fatal(err)
	}

	var got map[string]map[string]faultDiag
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	nodes := got["slownode_j1"]
	healthy := faultDiag{
		DegradationLevel: "0.00%", JobID: "j1", SlowCalculateRanks: []int{}, SlowCommunicationDomains: [][]int{},
		SlowSendRanks: []int{}, SlowHostNodes: []string{}, SlowIORanks: []int{}, SlowCommunicationRanks: []int{},
	}
	want := map[string]func(*faultDiag){
		"node-0": func(f *faultDiag) {
			f.IsSlow, f.DegradationLevel, f.SlowSendRanks, f.SlowCommunicationDomains = 1, "5.26%", []int{0}, [][]int{{1, 9}}
			f.SlowCommunicationRanks = []int{0, 1, 8, 9}
		},
		"node-1": func(f *faultDiag) { f.IsSlow, f.DegradationLevel, f.SlowIORanks = 1, "11.11%", []int{9} },
		"node-2": func(f *faultDiag) { f.IsSlow, f.DegradationLevel, f.SlowHostNodes = 1, "11.11%", []string{"node-2"} },
		"node-3": func(*faultDiag) {}, // suspicion is no verdict
		"node-4": func(f *faultDiag) { f.IsSlow, f.DegradationLevel, f.SlowCalculateRanks = 1, "25.00%", []int{33, 35} },
		"node-5": func(*faultDiag) {},
	}
	if len(nodes) != len(want) {
		t.Fatalf("%d nodes, want %d: %s", len(nodes), len(want), b.String())
	}

	for name, set := range want {
		w := healthy
		w.NodeRank = name
		set(&w)
		if d := cmp.Diff(w, nodes[name], cmpopts.IgnoreUnexported(faultDiag{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
