package shiptest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// counted counts the inserts into records.
type counted struct {
	*clickhouse.Sink
	inserts int
}

func (c *counted) Insert(ctx context.Context, b *ship.Batch) error {
	if b.Table == row.RecordsTable {
		c.inserts++
	}

	return c.Sink.Insert(ctx, b)
}

// TestPoisonRow has one row in many (a million in the long form) that an expression
// of the table refuses: it is kept as a dead letter with its reason, at the price of
// 40 inserts at most, and the rest is stored. R13.
func TestPoisonRow(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	db := server.Database()
	sink := &counted{Sink: open(t, server.Store(db))}
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	server.Exec("ALTER TABLE " + db + ".records ADD COLUMN bad Int64 MATERIALIZED intDiv(1000, dur_ns - 13)")
	letters := filepath.Join(t.TempDir(), "dead.jsonl")
	n := scale(t, "LAGGARD_TEST_POISON_ROWS", 20_000)
	for round := range 2 {
		s := shipping(t, sink, ship.Options{DeadLetters: letters, Memory: 2 << 30}, func(ctx context.Context, s *ship.Shipper) {
			rows := shiptest.Rows("j", 0, 0, n)
			for i := range rows.Raws.Rows {
				rows.Raws.Rows[i].StartNs = shiptest.Base
			}

			rows.Raws.Rows[n/3].DurNs = 13
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

		plain := (n + ship.DefaultBatchRows - 1) / ship.DefaultBatchRows
		t.Logf("round %d: %d inserts, %d without poison", round, sink.inserts, plain)
		if sink.inserts > plain+40 {
			t.Fatalf("%d inserts, %d without poison", sink.inserts, plain)
		}

		sink.inserts = 0
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
