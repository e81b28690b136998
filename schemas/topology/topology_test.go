package topology

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
)

const good = `{"world_size":64,"nodes":{"node-0":[0,1,2,3]},"groups":[{"name":"dp-stage0","dim":"dp","ranks":[0,4,8,12]},{"name":"pp-0","dim":"EXP","ranks":[3,1,2]}]}`

func TestParse(t *testing.T) {
	f, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}

	want := &File{
		WorldSize: 64, Nodes: map[string][]int{"node-0": {0, 1, 2, 3}},
		Groups: []Group{{"dp-stage0", "dp", []int{0, 4, 8, 12}}, {"pp-0", "ep", []int{3, 1, 2}}},
	}
	if d := cmp.Diff(want, f); d != "" {
		t.Fatal(d)
	}

	f, err = parse([]byte(`{"nodes":{"a":[5]},"groups":[{"name":"g","dim":"embd","ranks":[0,7]}],"made_by":"hand"}`))
	if err != nil || f.WorldSize != 8 {
		t.Fatalf("world_size=%d err=%v, want 8 from the largest rank, and another tool's key ignored", f.WorldSize, err)
	}
}

func TestParse_ErrorsNameFileKeyAndWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"nodes\":{},\n}":       "line 3",
		`[]`:                        "want topology.File",
		`{"world_size":"8"}`:        "world_size: is a string",
		`{"world_size":-1}`:         "world_size -1: want 1 to",
		`{"world_size":9999999999}`: "world_size 9999999999: want 1 to",
		`{"world_sice":8}`:          "unknown key world_sice; did you mean world_size?",
		`{"groups":[{"nam":"a","dim":"dp","ranks":[0]}]}`:                                      "groups[0].nam; did you mean groups[0].name?",
		`{"world_size":4,"nodes":{"a":[4]}}`:                                                   "nodes.a: rank 4 is outside 0…3",
		`{"nodes":{"a":[-1]}}`:                                                                 "nodes.a: rank -1 is outside",
		`{"nodes":{"a":[0],"b":[0]}}`:                                                          "nodes.b: rank 0 is also in nodes.a; a rank runs on one node",
		`{"nodes":{"a":[0,0]}}`:                                                                "rank 0 is listed twice; remove one",
		`{"nodes":{"":[0]}}`:                                                                   "a node without a name",
		`{"groups":[{"dim":"dp","ranks":[0]}]}`:                                                "groups[0].name: missing; name the group",
		`{"groups":[{"name":"a","ranks":[0]}]}`:                                                "groups[0] (a).dim: missing; want tp, pp",
		`{"groups":[{"name":"a","dim":"dp"}]}`:                                                 "groups[0] (a).ranks: empty; list",
		`{"groups":[{"name":"a","dim":"dp","ranks":[1,1]}]}`:                                   "groups[0] (a).ranks: rank 1 is listed twice",
		`{"groups":[{"name":"a","dim":"dp","ranks":[1.5]}]}`:                                   "groups.ranks",
		`{"groups":[{"name":"a","dim":"dp","ranks":[1]},{"name":"a","dim":"tp","ranks":[1]}]}`: "groups[1] (a).name: groups[0] has the same name",
	} {
		path := filepath.Join(t.TempDir(), FileName)
		write(t, path, text)
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant the file and %q", text, err, want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLoad_RefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.json")); err == nil || !os.IsNotExist(unwrapAll(err)) {
		t.Fatalf("missing file: %v", err)
	}

	write(t, filepath.Join(dir, "real.json"), good)
	if err := os.Symlink(filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"link.json", "."} {
		if _, err := Load(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}

		err = u.Unwrap()
	}
}

const groups0 = `{"10.20.0.1%eth0_60000": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 4]},
 "fe80::1%eth0_60001": {"group_name": "exp", "group_rank": 1, "global_ranks": [1, 0]},
 "w": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0,1,2,3,4,5,6,7]}}`

func TestParallelGroup(t *testing.T) {
	got, err := parseParallelGroup([]byte(groups0))
	if err != nil {
		t.Fatal(err)
	}

	want := []record.Group{
		{Dim: "dp", Name: "10.20.0.1%eth0_60000", Index: 0, Size: 2, Ranks: []int{0, 4}},
		{Dim: "ep", Name: "fe80::1%eth0_60001", Index: 1, Size: 2, Ranks: []int{1, 0}},
		{Dim: "default_group", Name: "w", Index: 0, Size: 8, Ranks: []int{0, 1, 2, 3, 4, 5, 6, 7}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}

	f := fromGroups(got)
	if f.WorldSize != 8 || len(f.Groups) != 2 {
		t.Fatalf("%+v, want the world's size and the two groups that say more", f)
	}

	for _, text := range []string{
		`[]`, `{"a":{}}`, `{"a":{"group_name":"dp","group_rank":5,"global_ranks":[0]}}`, `{"a":{"group_name":"dp","global_ranks":[-1]}}`,
		`{"a":{"group_name":"dp","global_ranks":[1,1]}}`, `{"a":{"group_name":"dp","global_ranks":[99999999]}}`, `{"a":`,
	} {
		path := filepath.Join(t.TempDir(), ParallelGroupFile)
		write(t, path, text)
		if _, err := ParallelGroup(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestGroupText(t *testing.T) {
	g := record.Group{Dim: "dp", Name: "fe80::1%eth0:7", Index: 1, Size: 2, Ranks: []int{3, 9}}
	if dim, name, index := SplitGroup(FormatGroup(g)); dim != g.Dim || name != g.Name || index != g.Index {
		t.Fatalf("%s: %q %q %d", FormatGroup(g), dim, name, index)
	}

	for _, bad := range []string{"", "dp", "dp:a:1", "dp:a:x:2", "dp:a:1:y"} {
		if _, _, index := SplitGroup(bad); index >= 0 {
			t.Errorf("SplitGroup(%q) accepted it", bad)
		}
	}
}

func TestRankTable(t *testing.T) {
	for name, text := range map[string]string{
		"server_list": `{"status":"completed","server_count":"2","version":"1.0","server_list":[
			{"server_id":"10.0.0.1","device":[{"device_id":"0","device_ip":"1","rank_id":"0"},{"device_id":"1","rank_id":"1"}]},
			{"server_id":"10.0.0.2","device":[{"rank_id":2},{"rank_id":3}]}]}`,
		"group_list": `{"status":"completed","group_count":"1","group_list":[{"instance_list":[
			{"rank_id":"0","server_id":"10.0.0.1"},{"rank_id":"1","server_id":"10.0.0.1"},{"rank_id":"2","server_id":"10.0.0.2"},{"rank_id":"3","server_id":"10.0.0.2"}]}]}`,
	} {
		f, err := parseRankTable([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if d := cmp.Diff(&File{WorldSize: 4, Nodes: map[string][]int{"10.0.0.1": {0, 1}, "10.0.0.2": {2, 3}}}, f); d != "" {
			t.Fatalf("%s: %s", name, d)
		}
	}

	for name, text := range map[string]string{
		"host_ip":   `{"server_list":[{"host_ip":"10.0.0.1","device":[{"rank_id":"0"}]}]}`,
		"server_sn": `{"server_list":[{"server_sn":"10.0.0.1","device":[{"rank_id":"0"}]}]}`,
		"host_name": `{"server_list":[{"server_id":"a","host_ip":"b","server_sn":"c","host_name":"10.0.0.1","device":[{"rank_id":"0"}]}]}`,
		"instance":  `{"group_list":[{"instance_list":[{"rank_id":"0","host_ip":"10.0.0.1"}]}]}`,
	} {
		f, err := parseRankTable([]byte(text))
		if err != nil || f.NodeOf(0) != "10.0.0.1" {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}

	for text, want := range map[string]string{
		`{"server_list":[{"server_port":"1","device":[{"rank_id":"0"}]}]}`: "no name in host_name",
		`{"status":"initializing"}`:                                        "usable once that is completed",
		`{"server_list":[]}`:                                               "neither server_list nor group_list",
		`{"server_list":[{"server_id":"a","device":[{"rank_id":"x"}]}]}`:   "no rank number",
		`{"server_list":[{"server_id":"a","device":[{"rank_id":"1"}]},{"server_id":"b","device":[{"rank_id":"1"}]}]}`: "also in nodes.a",
	} {
		path := filepath.Join(t.TempDir(), RankTableFile)
		write(t, path, text)
		if _, err := readRankTable(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestDiscover(t *testing.T) {
	root := t.TempDir()
	job := filepath.Join(root, "job-a")
	write(t, filepath.Join(root, "topology.json"), `{"world_size":8,"nodes":{"n0":[0,1]},"groups":[{"name":"dp-stage0","dim":"dp","ranks":[4,0]}]}`)
	write(t, filepath.Join(job, "0", "parallel_group.json"), groups0)
	write(t, filepath.Join(job, "0", "1753000000"), "")
	write(t, filepath.Join(job, "4", "parallel_group.json"), `{"10.20.0.1%eth0_60000": {"group_name": "dp", "group_rank": 1, "global_ranks": [0, 4]}}`)
	write(t, filepath.Join(job, "hccl.json"), `{"server_list":[{"server_id":"10.0.0.1","device":[{"rank_id":"0"},{"rank_id":"4"}]}]}`)
	want := &File{
		WorldSize: 8, Nodes: map[string][]int{"n0": {0, 1}, "10.0.0.1": {4}},
		Groups: []Group{{"dp-stage0", "dp", []int{4, 0}}, {"fe80::1%eth0_60001", "ep", []int{1, 0}}},
	}
	for _, where := range []string{root, job, filepath.Join(job, "4")} {
		found, servers, err := discover(where, "job-a")
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}

		if d := cmp.Diff(want, found); d != "" {
			t.Fatalf("%s: %s", where, d)
		}

		if servers.NodeOf(0) != "10.0.0.1" {
			t.Fatalf("%s: servers=%v", where, servers)
		}
	}
}

func TestDiscover_Nothing(t *testing.T) {
	found, _, err := discover(t.TempDir(), "j")
	if err != nil || found != nil {
		t.Fatalf("%+v, %v", found, err)
	}
}

func TestDiscover_SaysWhatItCouldNotUse(t *testing.T) {
	job := filepath.Join(t.TempDir(), "j")
	write(t, filepath.Join(job, "topology.json"), `{"world_size":"x"}`)
	write(t, filepath.Join(job, "0", "parallel_group.json"), `{`)
	write(t, filepath.Join(job, "1", "parallel_group.json"), groups0)
	found, _, err := discover(job, "j")
	if err == nil || !strings.Contains(err.Error(), "topology.json") || !strings.Contains(err.Error(), filepath.Join("0", "parallel_group.json")) {
		t.Fatalf("err=%v, want both files named", err)
	}

	if found == nil || len(found.Groups) == 0 {
		t.Fatalf("%+v, want what rank 1's file says all the same", found)
	}
}

func TestMerge(t *testing.T) {
	a := &File{WorldSize: 4, Nodes: map[string][]int{"n0": {0}}, Groups: []Group{{"dp0", "dp", []int{0, 1}}}}
	b := &File{WorldSize: 9, Nodes: map[string][]int{"x": {0, 1}, "y": {2}}, Groups: []Group{{"c1", "dp", []int{1, 0}}, {"dp0", "tp", []int{2, 3}}}}
	got := Merge(nil, a, nil, b)
	want := &File{
		WorldSize: 4, Nodes: map[string][]int{"n0": {0}, "x": {1}, "y": {2}},
		Groups: []Group{{"dp0", "dp", []int{0, 1}}, {"dp0#2", "tp", []int{2, 3}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}

	if Merge(nil, &File{}) != nil {
		t.Fatal("merged nothing into something")
	}

	if err := got.validate(); err != nil {
		t.Fatal(err)
	}
}

func TestNodeOf(t *testing.T) {
	f := &File{Nodes: map[string][]int{"n0": {0, 2}}}
	if f.NodeOf(2) != "n0" || f.NodeOf(1) != "node-1" || (*File)(nil).NodeOf(7) != "node-7" {
		t.Fatal("wrong node")
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(groups0))
	f.Add([]byte(`{"server_list":[{"server_id":"a","device":[{"rank_id":"1"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if topo, err := parse(b); err == nil {
			again, err := json.Marshal(topo)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := parse(again); err != nil {
				t.Fatalf("%s accepted, %s not: %v", b, again, err)
			}
		}

		if groups, err := parseParallelGroup(b); err == nil {
			fromGroups(groups)
		}

		if table, err := parseRankTable(b); err == nil {
			Merge(table, nil)
		}
	})
}
