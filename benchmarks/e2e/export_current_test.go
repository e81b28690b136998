package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// TestExport_CurrentEngine: what is stored in the newest ClickHouse comes out of it
// by the analyzer's queries, raw rows too, and that engine reads every file that we
// write: exports as Parquet and Arrow, and the files of a Parquet store. Rows are
// compared by hashes of all their columns.
func TestExport_CurrentEngine(t *testing.T) {
	t.Parallel()
	engine := chtest.StartEngine(t)
	base := t.TempDir()
	dir, files := filepath.Join(base, "job"), filepath.Join(base, "store")
	store := "clickhouse://" + engine.Address + "/default?protocol=http&compression=none"
	if r := laggard(t, "simulate", "--scenario", "compute-1.2", "--seed", "3", "--ranks", "8", "--steps", "20", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	for _, to := range []string{store, "parquet:" + files} {
		if r := laggard(t, "ingest", dir, "--to", to, "--records", "all"); r.code != 0 {
			t.Fatalf("ingest to %s: %+v", to, r)
		}
	}

	sums := func(table, from string) string {
		t.Helper()
		var columns []string
		for _, c := range ship.LayoutOf(table).Columns {
			columns = append(columns, "ifNull(toString(`"+c.Name+"`), 'NULL')")
		}

		text, err := engine.Query("SELECT count(), sum(cityHash64(" + strings.Join(columns, ", ") + ")) FROM " + from)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}

		return strings.TrimSpace(text)
	}
	for _, table := range []string{row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable} {
		want := sums(table, "default."+table)
		if strings.HasPrefix(want, "0\t") {
			t.Fatalf("no %s are stored", table)
		}

		read := []string{fmt.Sprintf("file('%s/%s/*/*.parquet', 'Parquet')", files, table)}
		for format, reader := range map[string]string{"parquet": "Parquet", "arrow": "ArrowStream"} {
			path := filepath.Join(base, table+"."+format)
			if r := laggard(t, "export", store, "--format", format, "--table", table, "-o", path); r.code != 0 {
				t.Fatalf("export %s as %s: %+v", table, format, r)
			}

			read = append(read, fmt.Sprintf("file('%s', '%s')", path, reader))
		}

		for _, from := range read {
			if got := sums(table, from); got != want {
				t.Errorf("%s: rows and hash %s, want %s as in the table", from, got, want)
			}
		}
	}
}
