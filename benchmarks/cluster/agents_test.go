//go:build cluster

package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// agent ships the job into a store as an agent does, for as long as it is let.
type agent struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu   sync.Mutex
	said strings.Builder // guarded by mu
}

// follow starts one.
func (b *bed) follow(t *testing.T, store string) *agent {
	t.Helper()
	a := &agent{t: t, done: make(chan error, 1)}
	o := intake.Options{Records: rollup.All, State: t.TempDir(), Logger: slog.New(slog.NewTextHandler(a, nil))}
	o.Ship.Copies = copies(t)
	f, err := intake.NewFollower(b.dir, b.sink(t, store, clickhouse.Options{Timeout: 20 * time.Second}), o)
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	go func() { a.done <- f.Run(ctx) }()
	return a
}

// Write implements io.Writer: what the agent logs.
func (a *agent) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.said.Write(p)
}

// says waits until the agent has said something.
func (a *agent) says(text string) {
	a.t.Helper()
	chtest.Eventually(a.t, "the agent says "+text, 3*time.Minute, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !strings.Contains(a.said.String(), text) {
			return &unsaid{a.said.String()}
		}

		return nil
	})
}

// unsaid is an agent's log in which something is missing.
type unsaid struct{ log string }

func (u *unsaid) Error() string { return "it said:\n" + u.log }

// leave ends the agent as SIGTERM does.
func (a *agent) leave() {
	a.t.Helper()
	a.stop()
	if err := <-a.done; err != nil {
		a.t.Error(err)
	}
}

// schemaUpgraded: an agent meets the tables of the version before. It pauses, drops nothing,
// and goes on by itself when schema apply has added the columns; so does one that began
// before.
func schemaUpgraded(t *testing.T, b *bed) {
	for _, shard := range b.Shards {
		shard[0].Exec("ALTER TABLE "+b.database+".steps_local DROP COLUMN backward_ns", "ALTER TABLE "+b.database+".ranks_local DROP COLUMN off")
		for _, s := range shard {
			s.Exec("ALTER TABLE "+b.database+".steps DROP COLUMN backward_ns", "ALTER TABLE "+b.database+".ranks DROP COLUMN off")
		}
	}

	a := b.follow(t, b.Store(0, b.database))
	a.says("the store refuses: paused, nothing is dropped")
	b.applied(t)
	a.says("the store answers again: recovered")
	b.await(t, b.Shards[0][0], 2000)
	b.applied(t) // again, while the agent inserts
	a.leave()
	b.must(t, b.Store(0, b.database))
	b.whole(t)
}

// copiedLater: with a replica that fetches nothing an agent goes on with one copy, says so,
// and says when there is a second one.
func copiedLater(t *testing.T, b *bed) {
	second := b.Shards[0][1]
	b.fetches(second, "STOP")
	a := b.follow(t, b.Shards[0][0].Store(b.database))
	a.says("stored in one replica only")
	b.fetches(second, "START")
	a.says("a second replica has what was in one only")
	a.leave()
	b.must(t, b.Store(0, b.database))
	b.whole(t)
}
