package shiptest_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// TestServerRefuses: the server takes no more inserts, has no memory for them,
// may not be written, or has another table than it must have. Shipping backs off
// or pauses, drops nothing, and goes on by itself. R12.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	t.Run("TooManyParts", func(t *testing.T) {
		db := server.Database()
		sink := open(t, server.Store(db))
		if err := sink.Create(t.Context()); err != nil {
			t.Fatal(err)
		}

		// Five parts in one partition are too many for this table.
		ddl := string(server.Dump(t, "SHOW CREATE TABLE "+db+".steps FORMAT TSVRaw"))
		server.Exec("DROP TABLE "+db+".steps", strings.TrimSpace(ddl)+", parts_to_delay_insert = 5, parts_to_throw_insert = 5")
		trouble{
			harm: func() {
				server.Exec("SYSTEM STOP MERGES")
				for range 4 {
					insert := "INSERT INTO " + db + ".steps (job, start_ns) VALUES ('filler', " + strconv.FormatInt(shiptest.Base, 10) + ")"
					if out, err := server.Client(nil, insert); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
			},
			mend:  func() { server.Exec("SYSTEM START MERGES", "OPTIMIZE TABLE "+db+".steps FINAL") },
			class: "transient", word: "Too many parts",
		}.run(t, sink)
		for query, want := range map[string]uint64{
			"SELECT count() FROM " + db + ".steps WHERE job = 'j'":         1000,
			"SELECT uniqExact(step) FROM " + db + ".steps WHERE job = 'j'": 1000,
			"SELECT count() FROM " + db + ".records WHERE job = 'j'":       1000,
		} {
			if got := server.Count(query); got != want {
				t.Errorf("%s = %d, want %d", query, got, want)
			}
		}
	})
	// profile changes the settings of the user, which the server reads again by itself.
	profile := func(settings string) func() {
		return func() { server.SetProfile(settings); server.Kill(); server.Up() }
	}
	t.Run("MemoryLimit", func(t *testing.T) {
		db := server.Database()
		trouble{
			harm: profile("<max_memory_usage>20000</max_memory_usage>"), mend: profile(""),
			class: "transient", word: "Memory limit",
		}.run(t, open(t, server.Store(db)))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("ReadOnly", func(t *testing.T) {
		db := server.Database()
		trouble{
			harm: profile("<readonly>2</readonly>"), mend: profile(""), class: "refused", word: "give the user INSERT",
		}.run(t, open(t, server.Store(db)))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("ColumnOfAnotherType", func(t *testing.T) {
		db := server.Database()
		trouble{
			harm:  func() { server.Exec("ALTER TABLE " + db + ".records MODIFY COLUMN tokens String") },
			mend:  func() { server.Exec("ALTER TABLE " + db + ".records MODIFY COLUMN tokens Int64") },
			class: "refused", word: "tokens",
		}.run(t, open(t, server.Store(db)))
		exactly(t, server.Count, db, 1, 1000)
	})
}

// TestColumnDropped drops a column under the shipper, again and again: nothing is
// lost, and the column is made again by itself. R12.
func TestColumnDropped(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	db := server.Database()
	shipping(t, open(t, server.Store(db)), ship.Options{Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.02 }}, func(ctx context.Context, s *ship.Shipper) {
		st := ship.NewStream("0")
		for i := range 4 {
			if err := s.Put(ctx, st, shiptest.Rows("j", 0, 500*i, 500), i); err != nil {
				t.Fatal(err)
			}

			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}

			server.Exec("ALTER TABLE " + db + ".records DROP COLUMN tokens")
		}
	})
	exactly(t, server.Count, db, 1, 2000)
}
