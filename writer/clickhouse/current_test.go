package clickhouse_test

import (
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chdb"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// TestCurrentEngine holds the sink, with the current DDL, to the conformance test on
// the newest engine, over clickhouse-go's HTTP mode.
func TestCurrentEngine(t *testing.T) {
	engine := chdb.Start(t)
	store := "clickhouse://" + engine.Address + "/default?protocol=http&compression=none"
	shiptest.Conform(t, func(t *testing.T) ship.Sink { return open(t, store) })

	t.Run("CurrentTables", func(t *testing.T) {
		ddl, err := engine.Query("SHOW CREATE TABLE default.steps FORMAT TSVRaw")
		if err != nil {
			t.Fatal(err)
		}

		for _, word := range []string{"LowCardinality", "CODEC", "DateTime64(9", "MATERIALIZED", "PARTITION BY"} {
			if !strings.Contains(ddl, word) {
				t.Errorf("the table steps was made without %s:\n%s", word, ddl)
			}
		}
	})
	t.Run("Tally", func(t *testing.T) {
		sink := open(t, store)
		rows := shiptest.Rows("tally", 3, 0, 40)
		for _, b := range ship.Cut(rows) {
			if err := sink.Insert(t.Context(), b); err != nil {
				t.Fatalf("%s: %v", b.Table, err)
			}
		}

		tally, err := sink.Tally(t.Context(), "tally")
		if err != nil {
			t.Fatal(err)
		}

		for p, n := range tally.Steps {
			if p.Rank != 3 || n.Rows != 40 || n.Distinct != 40 {
				t.Fatalf("steps of %+v: %+v", p, n)
			}
		}

		if len(tally.Steps) != 1 || len(tally.Records) != 1 || len(tally.Communications) != 1 {
			t.Fatalf("%+v", tally)
		}
	})
	t.Run("Verdicts", func(t *testing.T) {
		sink := open(t, store)
		v := row.Verdict{Job: "v", AtNs: shiptest.Base, Step: 4, Node: "node-0", State: "degraded", Body: `{"a":"b"}`}
		for range 2 {
			if err := ship.Verdicts(t.Context(), sink, []row.Verdict{v}); err != nil {
				t.Fatal(err)
			}
		}

		if n, err := engine.Query("SELECT count() FROM default.verdicts WHERE job = 'v'"); err != nil || strings.TrimSpace(n) != "1" {
			t.Fatalf("%s verdicts: %v", n, err)
		}
	})
}
