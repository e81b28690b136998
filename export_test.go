package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"laggard/schemas/parquet"
	"laggard/schemas/row"
)

// TestExport: one job out of files and out of a store, in every format; the trace
// is what Perfetto's importer wants.
func TestExport(t *testing.T) {
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
		if err := parquet.ReadSteps(export("parquet", "steps.parquet"), func(r []row.Step) error { steps += len(r); return nil }); err != nil {
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

// checkTrace holds a trace to the trace event format: complete events with times
// on named tracks of named processes, none overlapping another without nesting.
func checkTrace(t *testing.T, path string, steps int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Ph, Name, Cat string
			Pid, Tid      int
			Ts, Dur       float64
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(b, &trace); err != nil {
		t.Fatal(err)
	}
	type line struct{ pid, tid int }
	processes, threads, slices := map[int]bool{}, map[line]bool{}, 0
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "process_name":
			processes[e.Pid] = true
		case e.Ph == "M" && e.Name == "thread_name":
			threads[line{e.Pid, e.Tid}] = true
		case e.Ph == "X":
			if !processes[e.Pid] || !threads[line{e.Pid, e.Tid}] || e.Dur < 0 || e.Name == "" {
				t.Fatalf("event %+v on a track without a name", e)
			}
			if e.Cat == "Step" {
				slices++
			}
		}
	}
	if len(processes) != 8 || slices < steps {
		t.Errorf("%d processes, %d steps on tracks, want 8 and %d", len(processes), slices, steps)
	}
}
