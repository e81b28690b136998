package roster

import (
	"reflect"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestRoster_GroupsOnce holds that a group known by a communicator is not told twice,
// whatever its dimension is spelt like, and that what was given is not changed.
func TestRoster_GroupsOnce(t *testing.T) {
	known := map[int][]record.Group{0: {{Dim: "exp", Name: "comm-7", Index: 0, Size: 2, Ranks: []int{0, 1}}}}
	topo := &topology.File{WorldSize: 4, Nodes: map[string][]int{"node-1": {0, 1}}, Groups: []topology.Group{
		{Name: "ep-0", Dim: "ep", Ranks: []int{0, 1}}, {Name: "dp-0", Dim: "dp", Ranks: []int{2, 0}},
	}}
	r := New(known, topo)
	for rank, want := range map[int]rollup.Options{
		0: {WorldSize: 4, Node: "node-1", Groups: []record.Group{known[0][0], {Dim: "dp", Name: "dp-0", Index: 1, Size: 2, Ranks: []int{2, 0}}}},
		1: {WorldSize: 4, Node: "node-1", Groups: []record.Group{{Dim: "ep", Name: "ep-0", Index: 1, Size: 2, Ranks: []int{0, 1}}}},
		3: {WorldSize: 4},
	} {
		want.Job, want.Rank, want.Records = "j", rank, rollup.None
		if got := r.Options(segment.RankDir{Job: "j", Rank: rank}, rollup.None); !reflect.DeepEqual(got, want) {
			t.Errorf("rank %d: %+v, want %+v", rank, got, want)
		}
	}
	if len(known[0]) != 1 {
		t.Error("the groups that were given are changed")
	}
	if got := New(nil, nil).Options(segment.RankDir{Job: "j"}, rollup.All); !reflect.DeepEqual(got, rollup.Options{Job: "j", Records: rollup.All}) {
		t.Errorf("nothing known: %+v", got)
	}
}
