package taskd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// TestWriteGroups_AsTaskD: the file is, byte by byte, what TaskD's Python makes of the same
// groups: json.dump with ensure_ascii=False and indent=4 (Ascend/mind-cluster,
// component/taskd/taskd/python/adaptor/pytorch/group_info.py, save_group_info, of 5cb7260e).
func TestWriteGroups_AsTaskD(t *testing.T) {
	dir := t.TempDir()
	err := writeGroups(dir, []record.Group{
		{Dim: "tp", Name: "10.0.0.7%eth0_60000_0_1753000000000000", Index: 1, Size: 2, Ranks: []int{4, 5}},
		{Dim: "ep", Name: "a<b>&\"路\"", Index: 0, Size: 1, Ranks: []int{5}},
	})
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, topology.ParallelGroupFile)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	want, err := exec.Command("/usr/bin/python3", "-c", `
import io, json, sys
groups = {
    "10.0.0.7%eth0_60000_0_1753000000000000": {"group_name": "tp", "group_rank": 1, "global_ranks": [4, 5]},
    "a<b>&\"路\"": {"group_name": "exp", "group_rank": 0, "global_ranks": [5]},
}
out = io.StringIO()
json.dump(groups, out, ensure_ascii=False, indent=4)
sys.stdout.buffer.write(out.getvalue().encode("utf-8"))
`).Output()
	if err != nil {
		t.Fatal(err)
	}

	if string(got) != string(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}

	groups, err := topology.ParallelGroup(path)
	if err != nil || len(groups) != 2 {
		t.Errorf("read back: %+v, %v", groups, err)
	}
}
