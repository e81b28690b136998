package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestProfilesOfEachFormat: every command takes a folder of every format, and a store has each range
// of it once, whoever brings it how often.
func TestProfilesOfEachFormat(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	for _, f := range []struct {
		folder       string
		ranks, comms int // as the tools that wrote them tell
	}{
		{"dlrm-8rank", 8, 64}, {"ascend/level0", 2, 8}, {"ascend/db/level0", 2, 8}, {"ascend/cluster_analysis_output", 16, 16},
		{"nsys/mfu_2gpu_before.sqlite", 2, 66}, {"flight", 4, 152}, {"inspector", 2, 8},
	} {
		t.Run(f.folder, func(t *testing.T) {
			t.Parallel()
			base, source := t.TempDir(), profilesOf(t, f.folder)
			store := "parquet:" + filepath.Join(base, "store")

			v := decided(t, verdict.ExitUndecided, source)
			if v.WorldSize != f.ranks || len(v.Nodes) > 0 || len(v.Links) > 0 {
				t.Errorf("a verdict on %d ranks: %+v", v.WorldSize, v)
			}

			if r := laggard(t, "explain", source); r.code != verdict.ExitUndecided {
				t.Errorf("explain: %+v", r)
			}

			if r := laggard(t, "watch", source, "--once", "--metrics", ""); r.code != verdict.ExitUndecided {
				t.Errorf("watch: %+v", r)
			}

			if r := laggard(t, "export", source, "--format", "chrome", "-o", filepath.Join(base, "trace.json")); r.code != 0 {
				t.Errorf("export: %+v", r)
			}

			if r := laggard(t, "ingest", source, "--to", store, "--records", "all"); r.code != 0 || !strings.HasPrefix(r.out, "stored ") {
				t.Fatalf("ingest: %+v", r)
			}

			clickhouse := server.Store(server.Database())
			for i, want := range []string{"stored ", "nothing to store"} {
				if r := laggard(t, "ingest", source, "--to", clickhouse, "--records", "all"); r.code != 0 || !strings.HasPrefix(r.out, want) {
					t.Errorf("ingest %d into ClickHouse: %+v", i+1, r)
				}
			}

			if there, ranges := recordsOf(t, clickhouse), recordsOf(t, source); there != ranges {
				t.Errorf("%+v in ClickHouse, %+v in the files", there, ranges)
			}

			elsewhere := filepath.Join(base, "elsewhere", filepath.Base(source)) // another machine's copy
			copyOf(t, source, elsewhere)
			for _, again := range []string{source, elsewhere} {
				if r := laggard(t, "ingest", again, "--to", store, "--records", "all"); r.code != 0 || !strings.HasPrefix(r.out, "nothing to store") {
					t.Errorf("ingest again: %+v", r)
				}
			}

			if stored, ranges := recordsOf(t, store), recordsOf(t, source); stored.comms != f.comms || stored != ranges {
				t.Errorf("%+v in the store, %+v in the files, want %d of communication", stored, ranges, f.comms)
			}

			if fromStore := decided(t, verdict.ExitUndecided, store); fromStore.WorldSize != v.WorldSize || fmt.Sprint(fromStore.Steps) != fmt.Sprint(v.Steps) {
				t.Errorf("from the store %+v, from the files %+v", fromStore, v)
			}
		})
	}
}

// TestProfilesBesideDamagedOnes: a file that is empty, and one that is cut, are named with the cause by every
// command, and what else there is counts. Who judges ends with the verdict's exit code; who carries over
// (ingest, export) with 1, for the rest is there and not all is.
func TestProfilesBesideDamagedOnes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	source := filepath.Join(base, "traces")
	copyOf(t, profilesOf(t, "dlrm-8rank"), source)
	cut, empty := filepath.Join(source, "worker7_step_12.1694128201553.pt.trace.json.gz"), filepath.Join(source, "worker8_step_12.1694128201553.pt.trace.json.gz")
	whole, err := os.ReadFile(cut)
	if err == nil {
		err = errors.Join(os.WriteFile(cut, whole[:len(whole)/2], 0o600), os.WriteFile(empty, nil, 0o600))
	}

	if err != nil {
		t.Fatal(err)
	}

	store := "parquet:" + filepath.Join(base, "store")
	for _, tt := range []struct {
		code int
		args []string
	}{
		{verdict.ExitUndecided, []string{"analyze", source}},
		{verdict.ExitUndecided, []string{"explain", source}},
		{verdict.ExitUndecided, []string{"watch", source, "--once", "--metrics", ""}},
		{1, []string{"export", source, "--format", "chrome", "-o", filepath.Join(base, "trace.json")}},
		{1, []string{"export", source, "--format", "parquet", "-o", filepath.Join(base, "steps.parquet")}},
		{1, []string{"ingest", source, "--to", store}},
		{1, []string{"ingest", source, "--to", store}}, // again: nothing to store, and still not all is there
	} {
		r := laggard(t, tt.args...)
		if said := r.out + r.err; r.code != tt.code || !strings.Contains(said, cut+": ") || !strings.Contains(said, empty+": it is empty") {
			t.Errorf("%s: exit code %d, want %d and both files named:\n%s", tt.args[0], r.code, tt.code, said)
		}
	}

	for _, name := range []string{"trace.json", "steps.parquet"} {
		if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.Size() == 0 {
			t.Errorf("exported %s: %v", name, err)
		}
	}

	if v := decided(t, verdict.ExitUndecided, store); v.WorldSize != 8 {
		t.Errorf("%d ranks from the store", v.WorldSize)
	}
}

// ranges counts the rows of a job's ranges.
type ranges struct{ all, comms int }

// recordsOf exports the ranges of a source and counts them; none is there twice.
func recordsOf(t *testing.T, source string) (n ranges) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.parquet")
	if r := laggard(t, "export", source, "--format", "parquet", "--table", "records", "-o", path); r.code != 0 {
		t.Fatalf("export: %+v", r)
	}

	seen := map[[2]uint64]bool{}
	err := parquet.Read(path, func(rows []row.Record) error {
		for i := range rows {
			id := [2]uint64{uint64(rows[i].Segment), uint64(rows[i].Offset)}
			if seen[id] {
				t.Errorf("twice: %+v", rows[i])
			}

			seen[id] = true
			n.all++
			if rows[i].Kind == "Communication" {
				n.comms++
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// copyOf copies a file or a folder.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err == nil {
		var text []byte
		if text, err = os.ReadFile(from); err == nil {
			if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
		}
	}

	if err != nil {
		t.Fatal(err)
	}
}
