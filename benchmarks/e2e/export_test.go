package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/chrome/perfetto"
)

// TestExport: one job out of files and out of a store, in every format; the trace
// is one that Perfetto opens.
func TestExport(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, store := filepath.Join(base, "job"), "parquet:"+filepath.Join(base, "store")
	if r := laggard(t, "simulate", "--scenario", "compute-1.2", "--seed", "3", "--ranks", "8", "--steps", "40", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 {
		t.Fatalf("ingest: %+v", r)
	}

	var counts []int
	for _, spec := range []string{dir, store} {
		export := func(format, name string) string {
			t.Helper()
			path := filepath.Join(t.TempDir(), name)
			if r := laggard(t, "export", spec, "--format", format, "-o", path); r.code != 0 {
				t.Fatalf("export %s as %s: %+v", spec, format, r)
			}

			return path
		}
		steps := 0
		if err := parquet.Read(export("parquet", "steps.parquet"), func(r []row.Step) error { steps += len(r); return nil }); err != nil {
			t.Fatal(err)
		}

		if n := arrowRows(t, export("arrow", "steps.arrow")); n != steps || n == 0 {
			t.Errorf("%s: %d steps as Arrow, %d as Parquet", spec, n, steps)
		}

		counts = append(counts, steps)
		checkTrace(t, export("chrome", "trace.json"), steps)
	}

	if counts[0] != counts[1] {
		t.Errorf("%d steps from files, %d from the store", counts[0], counts[1])
	}

	step := filepath.Join(base, "step.json")
	if r := laggard(t, "explain", dir, "--timeline", step, "--step", "20", "--ranks", "0,5,6"); !strings.Contains(r.out, "Step 20, side by side") {
		t.Fatalf("explain --timeline: %+v", r)
	}

	answers := perfetto.Query(t, step, perfetto.Complaints,
		"SELECT count(DISTINCT upid), sum(category = 'Step'), sum(category = 'waiting' AND slice.name LIKE 'waits for rank _') > 0 FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)")
	if len(answers[0]) != 0 || fmt.Sprint(answers[1]) != "[[3 3 1]]" {
		t.Errorf("Perfetto has of one step of three ranks %v, and complains %v", answers[1], answers[0])
	}

	nowhere := filepath.Join(base, "nowhere", "x.json")
	if r := laggard(t, "export", dir, "--format", "chrome", "-o", nowhere); r.code != 1 || !strings.Contains(r.err, "there is no folder "+filepath.Dir(nowhere)) {
		t.Errorf("export to %s: %+v", nowhere, r)
	}

	for _, args := range [][]string{
		{"export", dir, "--format", "xml", "-o", "x"}, {"export", dir, "--format", "arrow"}, {"export", dir, "--format", "arrow", "--table", "step", "-o", "x"},
	} {
		if r := laggard(t, args...); r.code != 2 {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.err)
		}
	}
}

func arrowRows(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for r.Next() {
		n += int(r.Record().NumRows())
		if _, ok := r.Record().Column(0).(*array.String); !ok {
			t.Fatal("the first column is no string")
		}
	}

	if r.Err() != nil {
		t.Fatal(r.Err())
	}

	return n
}

// checkTrace has Perfetto open a trace: it takes all of it, and every range lies on a
// line with a name, of a rank with a name.
func checkTrace(t *testing.T, path string, steps int) {
	t.Helper()
	answers := perfetto.Query(t, path, perfetto.Complaints,
		"SELECT count(DISTINCT process.name), count(*), sum(category = 'Step') FROM slice JOIN thread_track ON track_id = thread_track.id"+
			" JOIN thread USING (utid) JOIN process USING (upid) WHERE process.name LIKE 'rank % (node-%)' AND thread.name LIKE category || '%'",
		"SELECT count(*) FROM slice")
	if len(answers[0]) != 0 {
		t.Errorf("Perfetto complains: %v", answers[0])
	}

	named, all := answers[1][0], answers[2][0][0]
	if named[0] != 8.0 || named[1] != all || named[2].(float64) < float64(steps) {
		t.Errorf("%v ranks, %v of %v ranges on lines of theirs, %v steps, want 8 ranks, all and %d", named[0], named[1], all, named[2], steps)
	}
}
