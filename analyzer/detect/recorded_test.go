package detect

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// recordedRows are the rows of a job that ran on PyTorch with gloo, the gloo-… of eight ranks on four
// nodes that shared two cores (deploy/examples/pytorch/run.sh).
func recordedRows(t *testing.T, name string) *row.Rows {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	var rows row.Rows
	if err := json.NewDecoder(z).Decode(&rows); err != nil {
		t.Fatal(err)
	}

	return &rows
}

// The wires of node-1 are slow from step 60 on (--fault link --nodes 4): the node that three slow
// groups share is named for them, and no rank elsewhere.
func TestRecorded_SlowLink(t *testing.T) {
	v := Analyze(frameOf(t, recordedRows(t, "gloo-slow-link"), nil), Default())
	if got := fmt.Sprint(accused(v)); got != "[node-1]" || v.Nodes[0].Cause != verdict.Communication || len(v.Links) != 3 {
		t.Errorf("links %+v, nodes %+v, want node-1 for three slow links", v.Links, v.Nodes)
	}
}

// Rank 3 computes more from the first step on (--nodes 4 -- --slow-extra 30 --steps 45), and first
// steps differ far more than later ones: they are not kept as its own noise.
func TestRecorded_WildStart(t *testing.T) {
	v := Analyze(frameOf(t, recordedRows(t, "gloo-wild-start"), nil), Default())
	if got := fmt.Sprint(accused(v)); got != "[node-1]" || v.Nodes[0].Cause != verdict.Compute || v.Nodes[0].Ranks[0] != 3 {
		t.Errorf("nodes %+v, want rank 3 on node-1: %v", v.Nodes, v.Findings)
	}
}

// Four ranks share an H100 in turns of some milliseconds: rank 2 computes five times as much as the
// others, 0.5 ms, who may get their turn before it has ended or 4 ms later. Its extra work is 28 % of
// a step by its own events.
func TestRecorded_SharedDevice(t *testing.T) {
	v := Analyze(frameOf(t, recordedRows(t, "cuda-shared-device"), nil), Default())
	if len(v.Nodes) != 1 || fmt.Sprint(v.Nodes[0].Ranks) != "[2]" || v.Nodes[0].Slowdown < 1 || v.Nodes[0].JobImpact > 0.28 {
		t.Errorf("nodes %+v, want rank 2: %v", v.Nodes, v.Findings)
	}
}
