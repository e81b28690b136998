package detect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// independentRows are the rows of a job of testdata/independent.
func independentRows(t *testing.T, name string) *row.Rows {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "independent", name+".json.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	var rows row.Rows
	if err := json.NewDecoder(z).Decode(&rows); err != nil {
		t.Fatal(err)
	}

	return &rows
}

// TestIndependent_Jobs: of the jobs of a generator that shares nothing with the simulator the culprit is named, with its cause, at what it
// costs by that generator's own replay, or between bounds that hold it.
func TestIndependent_Jobs(t *testing.T) {
	for _, want := range []struct {
		name, node string
		cost       float64
	}{
		{name: "fsdp-healthy"},
		{"fsdp-slow-rank", "node-1", 0.198},
		{"lost-records-pipeline", "node-2", 0.214},
		{"lost-records", "node-3", 0.046},
		{"whole-host", "node-2", 0.328},
		{"two-models", "node-1", 0.104},
	} {
		v := Analyze(frameOf(t, independentRows(t, want.name), nil), Default())
		var nodes []string
		if want.node != "" {
			nodes = []string{want.node}
		}

		if got := accused(v); !slices.Equal(got, nodes) || len(v.Links) > 0 || !v.Decided {
			t.Errorf("%s: %v accused, %d links, decided %v, want %v", want.name, got, len(v.Links), v.Decided, nodes)
			continue
		}

		if want.node == "" {
			continue
		}

		if low, high := 0.85*v.JobImpact, 1.15*v.Most(); v.Nodes[0].Cause != verdict.Compute || want.cost < low || want.cost > high {
			t.Errorf("%s: %s costs %.3f to %.3f, want compute for %.3f", want.name, v.Nodes[0].Cause, v.JobImpact, v.Most(), want.cost)
		}
	}
}
