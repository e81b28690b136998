package rollup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// putGroups writes a parallel_group.json.
func putGroups(t *testing.T, dir segment.RankDir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir.Path, topology.ParallelGroupFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPlacement_GroupsOnce holds that a group known by a communicator is not told twice,
// whatever its dimension is spelt like, also of a file that appears later.
func TestPlacement_GroupsOnce(t *testing.T) {
	topo := &topology.File{WorldSize: 4, Nodes: map[string][]int{"node-1": {0, 1}}, Groups: []topology.Group{
		{Name: "ep-0", Dim: "ep", Ranks: []int{0, 1}}, {Name: "dp-0", Dim: "dp", Ranks: []int{2, 0}},
	}}
	r := NewPlacement(topo, nil, nil, "")
	ep := record.Group{Dim: "ep", Name: "ep-0", Index: 0, Size: 2, Ranks: []int{0, 1}}
	dp := record.Group{Dim: "dp", Name: "dp-0", Index: 1, Size: 2, Ranks: []int{2, 0}}
	dir := segment.RankDir{RankID: record.RankID{Job: "j"}, Path: t.TempDir()}
	o := r.Options(dir, None)
	if o.Job != "j" || o.WorldSize != 4 || o.Node != "node-1" || o.Records != None {
		t.Errorf("%+v", o)
	}

	if d := cmp.Diff([]record.Group{ep, dp}, o.Groups()); d != "" {
		t.Errorf("before the file is there (-want +got):\n%s", d)
	}

	for _, text := range []string{`{"comm-7": {"group_na`, `{"comm-7": {"group_name": "exp", "group_rank": 0, "global_ranks": [0, 1]}}`} {
		putGroups(t, dir, text)
		got := o.Groups()
		if text[len(text)-1] == '}' {
			ep.Name = "comm-7"
		}

		if d := cmp.Diff([]record.Group{ep, dp}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}

		if again := o.Groups(); &again[0] != &got[0] {
			t.Errorf("%s: another slice, though nothing has changed", text)
		}
	}

	if got := r.Options(segment.RankDir{RankID: record.RankID{Rank: 3}, Path: t.TempDir()}, None).Groups(); got != nil {
		t.Errorf("rank 3 is in %v", got)
	}
}

// TestPlacement_Node: this machine's name is that of the ranks whose files were written
// here, unless a topology says otherwise; a rank table may call it by another name.
func TestPlacement_Node(t *testing.T) {
	dirs := []segment.RankDir{
		{RankID: record.RankID{Rank: 0}, Path: t.TempDir()}, {RankID: record.RankID{Rank: 1}, Path: t.TempDir()},
		{RankID: record.RankID{Rank: 2}, Path: "/proc/self"}, {RankID: record.RankID{Rank: 3}, Path: t.TempDir()},
	}
	file := &topology.File{WorldSize: 4, Nodes: map[string][]int{"gpu-9": {0}}}
	table := &topology.File{Nodes: map[string][]int{"10.0.0.1": {0, 1, 2}}}
	for node, want := range map[string][]string{
		"worker-7": {"gpu-9", "worker-7", "10.0.0.1", "worker-7"}, // of rank 2 nobody knows whether its files are this machine's
		"":         {"gpu-9", "10.0.0.1", "10.0.0.1", "node-3"},
	} {
		r := NewPlacement(topology.Merge(file, table), table, nil, node)
		var places []string
		for rank := range dirs {
			places = append(places, r.Topology(dirs).NodeOf(rank))
		}

		if d := cmp.Diff(want, places); d != "" {
			t.Errorf("node %q (-want +got):\n%s", node, d)
		}

		for i, dir := range dirs {
			if got := r.Options(dir, None).Node; got != want[i] && (got != "" || want[i] != "node-3") {
				t.Errorf("node %q: rank %d runs on %q, want %q", node, i, got, want[i])
			}
		}
	}

	if r := NewPlacement(nil, nil, nil, ""); r.Topology(dirs) != nil || r.Options(dirs[0], None).Node != "" {
		t.Error("something is known of nothing")
	}
}
