package clickhouse_test

import (
	"errors"
	"strings"
	"testing"

	driver "github.com/ClickHouse/clickhouse-go/v2"
	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, store string) *clickhouse.Sink {
	t.Helper()
	return openWith(t, store, clickhouse.Options{})
}

func openWith(t testing.TB, store string, o clickhouse.Options) *clickhouse.Sink {
	t.Helper()
	s, err := clickhouse.Open(store, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestManyParts: 18.16 takes inserts beside more than the 300 parts that it refuses by itself.
func TestManyParts(t *testing.T) {
	server := chtest.Start(t)
	database := server.Database()
	if err := open(t, server.Store(database)).Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	server.Exec("SYSTEM STOP MERGES")
	insert := "INSERT INTO " + database + ".ranks (rank) SELECT toUInt32(number) FROM numbers(400)"
	conn := server.Conn("")
	ctx := driver.Context(t.Context(), driver.WithSettings(driver.Settings{"max_block_size": 1, "min_insert_block_size_rows": 1, "min_insert_block_size_bytes": 1, "max_threads": 1}))
	if err := conn.Exec(ctx, insert); err != nil {
		t.Fatal(err)
	}

	if n := server.Count("SELECT count() FROM system.parts WHERE active AND database = '" + database + "'"); n != 400 {
		t.Errorf("%d parts, want 400", n)
	}
}

func TestConformance(t *testing.T) {
	server := chtest.Start(t)
	store := server.Store(server.Database())
	shiptest.Conform(t, func(t *testing.T) ship.Sink { return open(t, store) })
}

// TestAsyncInsert_OldServer: a server that would store a second time what is sent again is
// not asked to collect inserts. Nothing is stored, and the error says what to do.
func TestAsyncInsert_OldServer(t *testing.T) {
	server := chtest.Start(t)
	database := server.Database()
	store := server.Store(database)
	sink := openWith(t, store, clickhouse.Options{AsyncInsert: true})
	b := ship.Cut(shiptest.Rows("async", 0, 0, 10))[0]
	_, looked := sink.Stored(t.Context(), b)
	for what, err := range map[string]error{"create": sink.Create(t.Context()), "insert": sink.Insert(t.Context(), b), "look up": looked} {
		var e *ship.Error
		if !errors.As(err, &e) || e.Class != ship.Refused {
			t.Fatalf("%s: %v, want refused", what, err)
		}

		for _, word := range []string{"--async-insert", server.Addr(), "ClickHouse 18.16.1", "26.2 or newer"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q in it", what, err, word)
			}
		}
	}

	if n := server.Count("SELECT count() FROM system.tables WHERE database = '" + database + "'"); n != 0 {
		t.Errorf("%d tables were made", n)
	}
}
