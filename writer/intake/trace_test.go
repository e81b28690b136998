package intake_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/intake"
)

// shared returns the folder of a real trace, unpacked.
func shared(t *testing.T, name string) string {
	t.Helper()
	archive := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	f, err := os.Open(archive)
	if err != nil {
		t.Logf("RUN WITHOUT THE REAL TRACES: %v", err)
		return ""
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, name)
		}

		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag != tar.TypeReg {
			continue
		}

		b, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}

		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}

		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealTrace ingests a recorded job of another program's files into both stores.
func TestRealTrace(t *testing.T) {
	dir := shared(t, "ST")
	if dir == "" {
		return
	}

	target := t.TempDir()
	server := chtest.Start(t)
	db := server.Database()
	once(t, dir, "parquet:"+target, intake.Options{})
	once(t, dir, server.Store(db), intake.Options{})
	got := dump(t, target)
	if len(got[row.StepsTable]) != 8*32 {
		t.Fatalf("%d steps, want %d", len(got[row.StepsTable]), 8*32)
	}

	for table, rows := range got {
		if n := server.Count("SELECT count() FROM " + db + "." + table); n != uint64(len(rows)) && table != row.RanksTable && table != row.LedgerTable {
			t.Errorf("%s: %d rows in ClickHouse, %d in Parquet", table, n, len(rows))
		}
	}
}
