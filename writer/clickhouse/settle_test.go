package clickhouse

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	driver "github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

func set(ids ...string) map[string]bool {
	m := map[string]bool{}
	for _, id := range ids {
		m[id] = true
	}

	return m
}

// TestLooks follows inserts from their processes through the queue into a flush. (The engine
// of the tests makes no queue, so what the server shows is written down here.)
func TestLooks(t *testing.T) {
	b := ship.Cut(shiptest.Rows("j", 3, 0, 10))[0]
	ours, other := b.Query, ship.Cut(shiptest.Rows("j", 4, 0, 10))[0].Query
	type look struct{ inserts, flushes map[string]bool }
	for name, c := range map[string]struct {
		looks []look
		want  []string // what each look waits for, the last nothing
	}{
		"nothing":              {[]look{{set(), set()}}, []string{""}},
		"others":               {[]look{{set(other), set()}}, []string{""}},
		"a process":            {[]look{{set(ours), set()}, {set(ours, other), set()}, {set(other), set()}}, []string{ours, ours, ""}},
		"queue, then flush":    {[]look{{set(ours), set("f1")}, {set(), set("f1", "f2")}, {set(), set("f2", "f3")}, {set(), set("f3")}}, []string{ours, "f1 f2", "f2", ""}},
		"a flush from before":  {[]look{{set(), set("f1")}, {set(), set("f2")}}, []string{"f1", ""}},
		"sent again meanwhile": {[]look{{set(), set("f1")}, {set(ours), set("f1")}, {set(), set("f2")}, {set(), set()}}, []string{"f1", ours, "f2", ""}},
	} {
		var flushes map[string]bool
		for i, now := range c.looks {
			var got string
			got, flushes = holding(b, now.inserts, now.flushes, flushes)
			if c.want[i] == "" && got == "" || got != "" && set(strings.Fields(c.want[i])...)[got] {
				continue
			}

			t.Errorf("%s: look %d waits for %q, want %q", name, i, got, c.want[i])
		}
	}
}

// told is a log that says when a word comes up in it.
type told struct {
	word  string
	heard chan struct{}
	once  sync.Once
}

func (t *told) Write(p []byte) (int, error) {
	if strings.Contains(string(p), t.word) {
		t.once.Do(func() { close(t.heard) })
	}

	return len(p), nil
}

// TestSettle_CurrentEngine: an insert of the same rows that is under way on a current server
// is waited for, and its rows are found then.
func TestSettle_CurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	b := ship.Cut(shiptest.Rows("settle", 3, 0, 10))[1]
	log := &told{word: b.Query, heard: make(chan struct{})}
	sink, err := Open("clickhouse://"+engine.Native+"/default", Options{
		AsyncInsert: true, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	conn, err := driver.Open(&driver.Options{Addr: []string{engine.Native}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	insert, err := conn.PrepareBatch(driver.Context(t.Context(), driver.WithQueryID(b.Query)), insertQuery("default."+b.Table, b.Table))
	if err != nil {
		t.Fatal(err)
	}

	if err := fill(insert, b); err != nil {
		t.Fatal(err)
	}

	var stored []bool
	var g errgroup.Group
	g.Go(func() (err error) {
		stored, err = sink.Stored(t.Context(), b)
		return err
	})
	<-log.heard
	if err := insert.Send(); err != nil {
		t.Fatal(err)
	}

	if err := g.Wait(); err != nil || len(stored) != b.Len() || slices.Contains(stored, false) {
		t.Fatalf("stored %v, %v", stored, err)
	}
}
