package shiptest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"laggard/schemas/row"
	"laggard/writer/clickhouse/chtest"
	"laggard/writer/ship"
	"laggard/writer/ship/shiptest"
)

// TestPoisonRow has one row in many that an expression of the table refuses. R13.
func TestPoisonRow(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	sink := open(t, server.Store(db))
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Exec("ALTER TABLE " + db + ".records ADD COLUMN bad Int64 MATERIALIZED intDiv(1000, dur_ns - 13)")
	letters := filepath.Join(t.TempDir(), "dead.jsonl")
	n := scale(t, "LAGGARD_TEST_POISON_ROWS", 20_000)
	for round := range 2 {
		s := shipping(t, sink, ship.Options{DeadLetters: letters}, func(ctx context.Context, s *ship.Shipper) {
			rows := shiptest.Rows("j", 0, 0, n)
			for i := range rows.Records {
				rows.Records[i].StartNs = shiptest.Base
			}
			rows.Records[n/3].DurNs = 13
			if err := s.Put(ctx, ship.NewStream("0"), rows, 1); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		})
		st := s.Stats()
		if poisoned := st.Tables[row.RecordsTable].Poisoned; poisoned != uint64(1-round) {
			t.Fatalf("round %d: %d rows poisoned", round, poisoned)
		}
		if st.Batches > 60 {
			t.Fatalf("%d inserts", st.Batches)
		}
		if got := server.Count("SELECT count() FROM " + db + ".records"); got != uint64(n-1) {
			t.Fatalf("round %d: %d records, want %d", round, got, n-1)
		}
	}
	text, err := os.ReadFile(letters)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 1 || !strings.Contains(string(text), `"dur_ns":13`) {
		t.Fatalf("dead letters:\n%s", text)
	}
}
