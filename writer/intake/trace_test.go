package intake_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
)

// shared returns the folder of a real trace, unpacked.
func shared(t *testing.T, name string) string {
	t.Helper()
	archive := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(archive); err != nil {
		t.Logf("RUN WITHOUT THE REAL TRACES: %v", err)
		return ""
	}

	dir := t.TempDir()
	if said, err := exec.Command("tar", "-xzmf", archive, "-C", dir, "--no-same-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, said)
	}

	return filepath.Join(dir, name)
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
