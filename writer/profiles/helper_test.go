package profiles

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// sample is a real profile that is too large for testdata and may lie beside the checkout. Without
// it the test says so and goes on.
func sample(t *testing.T, name string) (path string, ok bool) {
	t.Helper()
	path = filepath.Join("../../../shared/samples", name)
	if _, err := os.Stat(path); err != nil {
		t.Logf("RAN WITHOUT THE REAL PROFILE %s: %v", name, err)
		return "", false
	}

	return path, true
}

// opened is a folder that was read, with its rows.
type opened struct {
	*Tree
	row.Rows
}

func open(t *testing.T, at string, o Options) opened {
	t.Helper()
	tree, err := Open(t.Context(), at, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { tree.Close() })
	return opened{tree, rowsOf(t, tree)}
}

func rowsOf(t *testing.T, tree *Tree) (all row.Rows) {
	t.Helper()
	dirs, err := segment.Walk(tree.Dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, dir := range dirs {
		counts, err := rollup.Dir(t.Context(), dir, rollup.Options{Records: rollup.All}, func(r *row.Rows) error {
			all.Ranks = append(all.Ranks, r.Ranks...)
			all.Steps = append(all.Steps, r.Steps...)
			all.Communications = append(all.Communications, r.Communications...)
			all.Raws.Append(&r.Raws)
			*r = row.Rows{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		if n := counts.Unknown + counts.Garbage + counts.Torn + counts.Duplicate + counts.Late + counts.LostFor(""); n > 0 {
			t.Errorf("%s: the roll-up does not take %d lines: %+v", dir.Path, n, counts)
		}
	}

	return all
}

// folderOf writes files with the given contents; a name that ends in .gz is compressed.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}

		if strings.HasSuffix(name, ".gz") {
			z := gzip.NewWriter(f)
			if _, err := z.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}

			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
		} else if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}
