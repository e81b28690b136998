package fleet

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
)

// between calls then once, after a watcher has read what was said of a job; blind, it sees
// no other watcher, as one that is in the middle of a look.
type between struct {
	*source.Live
	then  func()
	blind bool
}

func (b *between) table(ctx context.Context, job string, since int64) ([]row.Verdict, error) {
	if job == "" && b.blind {
		return nil, nil
	}

	rows, err := b.Live.Verdicts(ctx, job, since)
	if then := b.then; job != "" && then != nil {
		b.then = nil
		then()
	}

	return rows, err
}

// clock is what all watchers of a test go by.
type clock struct {
	mu sync.Mutex
	at time.Time // guarded by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// TestWatchersShareJobs: two watchers of a store follow each job once and say each change
// once; one that comes takes its share, one that is gone leaves it, and what the watcher
// before said while a job was taken over is found, left out and counted.
func TestWatchersShareJobs(t *testing.T) {
	const all = 20
	server := chtest.Start(t)
	j := &jobs{Server: server, database: server.Database(), began: time.Now().Add(-20 * time.Minute).UnixNano()}
	store := server.Store(j.database)
	time0 := &clock{at: time.Now()}
	start := func(name string, then func()) (*watch.Watcher, *between) {
		sink, err := clickhouse.Open(store, clickhouse.Options{})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = sink.Close() })
		if err := sink.Create(t.Context()); err != nil {
			t.Fatal(err)
		}

		live, err := source.OpenLive(store, source.Options{})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = live.Close() })
		table := &between{Live: live, then: then}
		store := func(ctx context.Context, rows []row.Verdict) error { return ship.Verdicts(ctx, sink, rows) }
		w, err := watch.New(watch.Options{Source: live, Sink: store, Now: time0.now,
			Table: table.table, Holder: &watch.Rows{Name: name, Sink: store, Table: table.table, Lease: watch.DefaultLease, Now: time0.now, Log: slog.New(slog.DiscardHandler)}})
		if err != nil {
			t.Fatal(err)
		}

		return w, table
	}
	look := func(w *watch.Watcher) {
		t.Helper()
		time0.add(time.Second)
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	follows := func(w *watch.Watcher) int { return len(w.Status().Jobs) }
	rows := func() (n uint64) {
		return server.Count("SELECT count() FROM " + j.database + ".verdicts WHERE job != ''")
	}

	a, table := start("a", nil) // makes the tables
	j.add(0, all, 0, 20)
	look(a)
	said := rows()
	if follows(a) != all || said == 0 {
		t.Fatalf("a follows %d jobs and said %d things", follows(a), said)
	}

	b, _ := start("b", nil)
	look(b)
	look(a)
	if follows(a)+follows(b) != all || follows(a) == 0 || follows(b) == 0 || rows() != said || b.Status().Taken != uint64(follows(b)) {
		t.Fatalf("a follows %d jobs, b %d of which it took over %d; %d rows, %d before", follows(a), follows(b), b.Status().Taken, rows(), said)
	}

	if err := b.Close(); err != nil { // it says that it goes
		t.Fatal(err)
	}

	look(a)
	if follows(a) != all || rows() != said {
		t.Fatalf("after b has gone a follows %d jobs; %d rows, %d before", follows(a), rows(), said)
	}

	j.add(0, all, 20, 70) // rank 11 of jobs 0 and 10 is slow
	time0.add(2 * watch.DefaultLease)
	c, _ := start("c", func() {
		table.blind = true
		if err := a.Look(t.Context()); err != nil { // it was believed gone
			t.Error(err)
		}

		table.blind = false
	})
	look(c)
	if n := c.Status().Repeated; n == 0 || n > rows()-said {
		t.Errorf("c found %d changes that a had said meanwhile, of %d", n, rows()-said)
	}

	var n, different uint64
	if err := server.Row("SELECT count(), uniqExact((job, node)) FROM "+j.database+".verdicts WHERE state = 'degraded' AND node != ''", &n, &different); err != nil || n != 2 || different != 2 {
		t.Errorf("%d rows of %d culprits, want 2 of 2, %v", n, different, err)
	}

	look(a)
	look(c)
	if follows(a)+follows(c) != all {
		t.Errorf("a follows %d jobs, c %d", follows(a), follows(c))
	}
}
