package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestAuditComparesCalls: a call that the windows of the store have and the files have
// not is a difference, from either store, whatever is stored of raw ranges.
func TestAuditComparesCalls(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	for _, records := range []string{"light", "all"} {
		for _, store := range []string{"parquet:" + filepath.Join(t.TempDir(), "store"), server.Store(server.Database())} {
			dir := filepath.Join(t.TempDir(), "job")
			if r := laggard(t, "simulate", "--scenario", "healthy", "--seed", "7", "--ranks", "8", "--steps", "40", dir); r.code != 0 {
				t.Fatalf("simulate: %+v", r)
			}

			if r := laggard(t, "ingest", dir, "--to", store, "--records", records); r.code != 0 {
				t.Fatalf("ingest: %+v", r)
			}

			audited(t, 0, dir, store)
			rank := oneCallLess(t, dir)
			found := false
			for _, d := range audited(t, 3, dir, store).Differences {
				found = found || d.Rank == rank && d.Table == row.CommunicationsTable && d.Have == d.Want+1
			}

			if !found {
				t.Errorf("%s, %s: a call too many in the store is no difference", store, records)
			}
		}
	}
}

// oneCallLess takes a Communication line out of a segment and returns whose it was.
func oneCallLess(t *testing.T, dir string) (rank int) {
	t.Helper()
	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range ranks {
		infos, err := segment.List(r.Path)
		if err != nil {
			t.Fatal(err)
		}

		for _, info := range infos {
			path := filepath.Join(r.Path, info.Name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, `{"kind":"Communication"`) {
					if err := os.WriteFile(path, []byte(strings.Replace(string(text), line, "", 1)), 0o644); err != nil {
						t.Fatal(err)
					}

					return r.Rank
				}
			}
		}
	}

	t.Fatal("no Communication in the job")
	return 0
}
