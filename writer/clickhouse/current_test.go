package clickhouse_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// TestCurrentEngine holds the sink, with the current DDL, to the conformance test on
// the newest engine: over HTTP, over the native protocol, and with the settings of inserts
// that are collected.
func TestCurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	store := "clickhouse://" + engine.Address + "/default?protocol=http&compression=none"
	shiptest.Conform(t, func(t *testing.T) ship.Sink { return open(t, store) })
	for name, o := range map[string]clickhouse.Options{"Native": {}, "AsyncInsert": {AsyncInsert: true}} {
		t.Run(name, func(t *testing.T) {
			if _, err := engine.Query("CREATE DATABASE " + name); err != nil {
				t.Fatal(err)
			}

			shiptest.Conform(t, func(t *testing.T) ship.Sink { return openWith(t, "clickhouse://"+engine.Native+"/"+name, o) })
		})
	}

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
		entry := row.Ledger{
			Job: "tally", Rank: 3, Incarnation: 1<<63 + 5, Segment: 7, Name: "1753000000", Batch: "b", Table: row.StepsTable, State: "stored",
			Reason: "why", Kind: "Step", Records: 40, Bytes: 41, FirstOffset: 42, LastOffset: 43, AtNs: shiptest.Base,
		}
		rows.Ledger = []row.Ledger{entry}
		for _, b := range ship.Cut(rows) {
			if err := sink.Insert(t.Context(), b); err != nil {
				t.Fatalf("%s: %v", b.Table, err)
			}
		}

		held, ledger, err := sink.Tally(t.Context(), "tally")
		entry.AtNs = 0 // nobody asks for it
		if err != nil || !slices.Equal(ledger, []row.Ledger{entry}) {
			t.Fatalf("ledger %+v, %v; want %+v", ledger, err, entry)
		}

		tables := map[string]int{}
		for p, n := range held {
			tables[p.Table]++
			if p.Table == row.StepsTable && (p.Rank != 3 || n.Rows != 40 || n.Distinct != 40) {
				t.Fatalf("steps of %+v: %+v", p, n)
			}
		}

		if len(held) != 3 || tables[row.StepsTable] != 1 || tables[row.RecordsTable] != 1 || tables[row.CommunicationsTable] != 1 {
			t.Fatalf("%+v", held)
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

// TestAsyncInsert_SentAgain: what several agents send at once and again and again, collected
// or not, under one token is there once, with its sums.
func TestAsyncInsert_SentAgain(t *testing.T) {
	engine := chtest.StartEngine(t)
	for name, store := range map[string]string{
		"native": "clickhouse://" + engine.Native + "/native", "http": "clickhouse://" + engine.Address + "/http?protocol=http&compression=none",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := engine.Query("CREATE DATABASE " + name); err != nil {
				t.Fatal(err)
			}

			if err := open(t, store).Create(t.Context()); err != nil {
				t.Fatal(err)
			}

			const agents, times, steps = 8, 3, 100
			var g errgroup.Group
			for agent := range agents {
				sink := openWith(t, store, clickhouse.Options{AsyncInsert: agent%4 > 0})
				g.Go(func() error {
					for range times {
						for _, b := range ship.Cut(shiptest.Rows("again", uint32(agent/2), 0, steps)) { // two agents say the same
							err := sink.Insert(t.Context(), b)
							for err != nil && strings.Contains(err.Error(), "is already running") { // the other's
								err = sink.Insert(t.Context(), b)
							}

							if err != nil {
								return err
							}
						}
					}

					return nil
				})
			}

			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}

			for table, sum := range map[string]string{"steps": "step", "records": "seq", "communications": "calls"} {
				q := "SELECT count(), sum(" + sum + ") FROM " + name + "." + table + " GROUP BY rank ORDER BY rank"
				text, err := engine.Query(q)
				if err != nil {
					t.Fatal(err)
				}

				lines := strings.Split(strings.TrimSpace(text), "\n")
				want := ""
				for _, b := range ship.Cut(shiptest.Rows("again", 0, 0, steps)) {
					if b.Table == table {
						total := uint64(0)
						for i := range b.Steps {
							total += b.Steps[i].Step
						}

						for i := range b.Communications {
							total += uint64(b.Communications[i].Calls)
						}

						for i := range b.Raws.Rows {
							total += b.Raws.Rows[i].Seq
						}

						want = fmt.Sprintf("%d\t%d", b.Len(), total)
					}
				}

				if len(lines) != agents/2 || slices.ContainsFunc(lines, func(l string) bool { return l != want }) {
					t.Errorf("%s: %q for each rank, want %d times %q", table, lines, agents/2, want)
				}
			}
		})
	}
}

// TestAsyncInsert_PoisonRow: a row that the table refuses is told from the others.
func TestAsyncInsert_PoisonRow(t *testing.T) {
	engine := chtest.StartEngine(t)
	sink := openWith(t, "clickhouse://"+engine.Native+"/default", clickhouse.Options{AsyncInsert: true})
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	if _, err := engine.Query("ALTER TABLE steps ADD CONSTRAINT c CHECK step != 7"); err != nil {
		t.Fatal(err)
	}

	for _, b := range ship.Cut(shiptest.Rows("poison", 0, 0, 10)) {
		err := sink.Insert(t.Context(), b)
		var e *ship.Error
		if poison := errors.As(err, &e) && e.Class == ship.Poison; poison != (b.Table == row.StepsTable) {
			t.Errorf("%s: %v", b.Table, err)
		}
	}
}

// TestAsyncInsert_Rights: who may not see the queue could not tell whether his rows are in it.
func TestAsyncInsert_Rights(t *testing.T) {
	const user = `<%s><password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota><grants>
		<query>GRANT SELECT, INSERT, CREATE TABLE, ALTER ADD COLUMN ON default.*</query><query>GRANT TABLE ENGINE ON *</query><query>GRANT SELECT ON system.processes</query>%s</grants></%[1]s>`
	engine := chtest.StartEngineWithUsers(t, "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users>"+
		"<default><password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></default>"+
		fmt.Sprintf(user, "blind", "")+fmt.Sprintf(user, "seeing", "<query>GRANT SELECT ON system.asynchronous_inserts</query>")+"</users></clickhouse>")
	store := func(user string) string { return "clickhouse://" + user + "@" + engine.Native + "/default" }
	if err := open(t, store("blind")).Create(t.Context()); err != nil {
		t.Fatalf("without the option: %v", err)
	}

	err := openWith(t, store("blind"), clickhouse.Options{AsyncInsert: true}).Create(t.Context())
	if err == nil || !strings.Contains(err.Error(), "GRANT SELECT ON system.asynchronous_inserts") || !strings.Contains(err.Error(), "user blind") {
		t.Errorf("with it: %v", err)
	}

	sink := openWith(t, store("seeing"), clickhouse.Options{AsyncInsert: true})
	for _, b := range ship.Cut(shiptest.Rows("rights", 0, 0, 10)) {
		if err := sink.Insert(t.Context(), b); err != nil {
			t.Fatal(err)
		}

		if stored, err := sink.Stored(t.Context(), b); err != nil || slices.Contains(stored, false) {
			t.Errorf("%s: stored %v, %v", b.Table, stored, err)
		}
	}
}
