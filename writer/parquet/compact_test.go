package parquet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// TestCompact: many small files become one, of a crash between rename and removal
// nobody sees anything, and every row is still known.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	s, err := parquet.Open(dir)
	if err != nil {
		t.Fatal(err)
	}

	const rounds = 20
	var batches []*ship.Batch
	for i := range rounds {
		batches = append(batches, ship.Cut(shiptest.Rows("j", 1, 32*i, 32))...)
	}

	for _, b := range batches {
		if err := s.Insert(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}

	job := "j"
	list := func(table string) []string {
		t.Helper()
		files, err := layout.Files(layout.Folder(dir, table, job))
		if err != nil {
			t.Fatal(err)
		}

		return files
	}
	old := map[string][]byte{}
	for _, path := range list(row.StepsTable) {
		if old[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}

	if len(old) < rounds {
		t.Fatalf("%d files before", len(old))
	}

	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}

	check := func(what string) {
		t.Helper()
		for _, table := range []string{row.StepsTable, row.RecordsTable, row.CommunicationsTable} {
			if n := len(list(table)); n != 1 {
				t.Fatalf("%s: %s has %d files", what, table, n)
			}
		}

		again, err := parquet.Open(dir)
		if err != nil {
			t.Fatal(err)
		}

		for _, sink := range []*parquet.Sink{s, again} {
			for _, b := range batches {
				stored, err := sink.Stored(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}

				for i := range stored {
					if !stored[i] {
						t.Fatalf("%s: row %d of %s is gone", what, i, b.Table)
					}
				}
			}
		}

		held, _, err := again.Tally(t.Context(), "j")
		if err != nil {
			t.Fatal(err)
		}

		for p, n := range held {
			if p.Table == row.StepsTable && (n.Rows != 32*rounds || n.Distinct != n.Rows) {
				t.Fatalf("%s: %+v steps", what, n)
			}
		}
	}
	check("compacted")
	for path, b := range old { // as a crash would have left them
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	check("after a crash")
	for i := range 7 { // with the compacted one, enough
		for _, b := range ship.Cut(shiptest.Rows("j", 2, 32*i, 32)) {
			if err := s.Insert(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}

	if left, _ := filepath.Glob(filepath.Join(layout.Folder(dir, row.StepsTable, "j"), "*"+layout.Suffix)); len(left) != 1 {
		t.Fatalf("left in the folder: %v", left)
	}
}

// TestCompact_LongWords: a compaction stays within the memory of an agent where small files unfold to
// many times their size, and no row is lost.
func TestCompact_LongWords(t *testing.T) {
	dir := t.TempDir()
	s, err := parquet.Open(dir)
	if err != nil {
		t.Fatal(err)
	}

	const files, rows, length, most = 24, 512, 3000, 16 << 20 // 1.5 MB each
	for i := range files {
		all := shiptest.Rows("j", 1, rows*i, rows)
		records := all.Raws.AppendTo(nil)
		for k := range records {
			records[k].Path = fmt.Sprintf("/data/%s/%d", strings.Repeat("x", length), rows*i+k)
		}

		all.Raws = row.Pack(records...)
		for _, b := range ship.Cut(all) {
			if err := s.Insert(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}

	left, err := layout.Files(layout.Folder(dir, row.RecordsTable, "j"))
	if err != nil {
		t.Fatal(err)
	}

	if len(left) < 2 || len(left) >= files {
		t.Errorf("%d files are left, want fewer than %d and more than one", len(left), files)
	}

	paths := map[string]bool{}
	for _, path := range left {
		unfolded := 0
		err := layout.Read(path, func(rows []row.Record) error {
			for i := range rows {
				unfolded += len(rows[i].Path)
				paths[strings.Clone(rows[i].Path)] = true
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		if unfolded > most {
			t.Errorf("%s unfolds to %d bytes of paths, want at most %d", filepath.Base(path), unfolded, most)
		}
	}

	if len(paths) != files*rows {
		t.Errorf("%d paths are stored, want %d", len(paths), files*rows)
	}
}
