//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// TestCluster holds what is stored through each fault of 2 shards × 2 replicas.
func TestCluster(t *testing.T) {
	c := chtest.StartCluster(t, 2, 2)
	for _, fault := range []struct {
		name string
		play func(*testing.T, *bed)
	}{
		{"Healthy", healthy}, {"LaggingReplica", laggingReplica}, {"AcknowledgedIsStored", acknowledgedIsStored},
		{"ReplicaKilled", replicaKilled}, {"ZooKeeperKilled", zooKeeperKilled}, {"RollingRestart", rollingRestart},
		{"DeadShard", deadShard}, {"SchemaApplied", schemaApplied}, {"OtherReplica", otherReplica},
		{"ShardChosen", shardChosen}, {"SchemaUpgraded", schemaUpgraded}, {"CopiedLater", copiedLater}, {"ShardAdded", shardAdded},
	} {
		t.Run(fault.name, func(t *testing.T) { fault.play(t, lay(t, c)) })
	}
}

// nothing holds that a pass into store finds every row there.
func (b *bed) nothing(t *testing.T, store string, memory int64) {
	t.Helper()
	r, err := b.ingest(t, store, memory, 2*time.Minute)
	if err != nil || r.Stored() != 0 {
		t.Fatalf("a further pass into %s: %v, %v", store, r, err)
	}
}

// healthy: a pass into one shard; passes into its other replica, into the other shard, and
// in smaller batches store nothing.
func healthy(t *testing.T, b *bed) {
	if r := b.must(t, b.Store(0, b.database)); r.Stored() == 0 || r.Singles != 0 {
		t.Fatalf("first pass: %v", r)
	}

	b.nothing(t, b.Shards[0][1].Store(b.database), 0)
	b.nothing(t, b.Store(1, b.database), 0)
	b.nothing(t, b.Shards[1][0].Store(b.database), 8<<20)
	b.whole(t)
}

// fetches stops or starts the fetches of a replica.
func (b *bed) fetches(s *chtest.Server, verb string) {
	for table := range tables {
		s.Exec(fmt.Sprintf("SYSTEM %s FETCHES %s.%s_local", verb, b.database, table))
	}

	s.Exec(fmt.Sprintf("SYSTEM %s FETCHES %s.ledger_local", verb, b.database))
}

// laggingReplica: a replica that fetches nothing is asked to store what the other one has,
// in other batches. It stores nothing, and says why, until it has caught up; nor does an
// audit of it call rows missing.
func laggingReplica(t *testing.T, b *bed) {
	first, second := b.Shards[0][0], b.Shards[0][1]
	b.fetches(second, "STOP")
	if r := b.must(t, first.Store(b.database)); r.Singles == 0 {
		t.Errorf("nothing said that there is one copy: %v", r)
	}

	r, err := b.ingest(t, second.Store(b.database), 8<<20, 15*time.Second)
	if err == nil || !strings.Contains(err.Error(), "lacks rows") || r.Stored() != 0 {
		t.Fatalf("a pass into the lagging replica: %v, %v", r, err)
	}

	told, err := b.audit(t, second)
	if err == nil || !strings.Contains(err.Error(), "lacks rows") {
		t.Fatalf("audit from the lagging replica: %+v, %v", told, err)
	}

	b.fetches(second, "START")
	b.nothing(t, second.Store(b.database), 8<<20)
	b.whole(t)
}

// acknowledgedIsStored: the only replica that has the rows is killed, wiped and rebuilt.
// What the other one acknowledges in between it has.
func acknowledgedIsStored(t *testing.T, b *bed) {
	first, second := b.Shards[0][0], b.Shards[0][1]
	b.fetches(second, "STOP")
	b.must(t, first.Store(b.database))
	first.Kill()
	b.fetches(second, "START")
	if r, err := b.ingest(t, second.Store(b.database), 0, 15*time.Second); err == nil || r.Stored() != 0 {
		t.Fatalf("stored while the rows were in a replica that is down: %v, %v", r, err)
	}

	b.Wipe(first, b.database)
	b.applied(t)
	r := b.must(t, second.Store(b.database))
	if r.Stored() == 0 {
		t.Fatalf("after the rows were lost: %v", r)
	}

	b.whole(t)
}

// kills is how often replicas are killed: LAGGARD_CLUSTER_KILLS, 5 by default.
func kills(t *testing.T) int {
	n := 5
	if text := os.Getenv("LAGGARD_CLUSTER_KILLS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}

	return n
}

// replicaKilled: the replica that takes an insert is killed in the middle of the pass,
// which goes on with the other one.
func replicaKilled(t *testing.T, b *bed) {
	for n := range kills(t) {
		b.afresh(t)
		victim := b.Shards[0][0]
		done := b.during(t, func() { b.await(t, victim, uint64(2000*(n+1))) })
		victim.Kill()
		victim.Up()
		if r := <-done; r.err != nil {
			t.Fatalf("kill %d: %v", n+1, r.err)
		}

		b.whole(t)
	}
}

// otherReplica: who sends an insert is gone while the server waits for ZooKeeper to carry it out.
// The next pass, which cuts its batches elsewhere and knows nothing of the first, begins with the
// other replica, where no insert is to be seen, while the first one ends.
func otherReplica(t *testing.T, b *bed) {
	defer b.Keeper.Signal(syscall.SIGCONT) // the faults that follow need it, whatever becomes of this one
	for n := range kills(t) {
		b.afresh(t)
		busy, other := b.Shards[0][0], b.Shards[0][1]
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan result, 1)
		go func() {
			o := intake.Options{Records: rollup.All}
			o.Ship.BatchRows = 64
			r, err := intake.Once(ctx, b.dir, b.sink(t, busy.Store(b.database), clickhouse.Options{}), o)
			first <- result{r, err}
		}()
		b.await(t, busy, uint64(500*(n+1)))
		b.holdInsert(t, busy)
		leave()
		if r := <-first; r.err == nil {
			t.Fatal("the pass was over before ZooKeeper was stopped")
		}

		second := make(chan result, 1)
		go func() {
			r, err := b.ingest(t, other.Store(b.database), 8<<20, 2*time.Minute)
			second <- result{r, err}
		}()
		b.Keeper.Signal(syscall.SIGCONT)
		if r := <-second; r.err != nil || r.report.Stored() == 0 {
			t.Fatalf("pass %d into the other replica: %v, %v", n+1, r.report, r.err)
		}

		b.whole(t)
	}
}

// holdInsert stops ZooKeeper in the middle of an insert. A pass that it finds between two inserts
// reads what is stored first, which ends with the server's session and not in an insert: it goes on,
// to be met later.
func (b *bed) holdInsert(t *testing.T, s *chtest.Server) {
	t.Helper()
	chtest.Eventually(t, "an insert waits for ZooKeeper", time.Minute, func() error {
		b.Keeper.Signal(syscall.SIGSTOP)
		var n uint64
		err := s.Row("SELECT count() FROM system.processes WHERE query_id LIKE 'laggard-%'", &n)
		if n > 0 {
			return nil
		}

		b.Keeper.Signal(syscall.SIGCONT)
		return errors.Join(errors.New("none is under way"), err)
	})
}

type result struct {
	report intake.Report
	err    error
}

// during begins a pass in small batches into both replicas of the first shard, calls f,
// and returns where the pass will end.
func (b *bed) during(t *testing.T, f func()) <-chan result {
	done := make(chan result, 1)
	go func() {
		r, err := b.ingest(t, b.Store(0, b.database), 4<<20, 3*time.Minute)
		done <- result{r, err}
	}()
	f()
	return done
}

// await waits until a server has so many raw rows.
func (b *bed) await(t *testing.T, s *chtest.Server, rows uint64) {
	chtest.Eventually(t, "rows arrive", 2*time.Minute, func() error {
		var n uint64
		if err := s.Row("SELECT count() FROM "+b.database+".records_local", &n); err != nil || n < rows {
			return fmt.Errorf("%d rows, want %d: %w", n, rows, err)
		}

		return nil
	})
}

// zooKeeperKilled: without it nothing is stored, and nothing is lost.
func zooKeeperKilled(t *testing.T, b *bed) {
	done := b.during(t, func() { b.await(t, b.Shards[0][0], 2000) })
	b.Keeper.Kill()
	b.Keeper.Up()
	if r := <-done; r.err != nil {
		t.Fatal(r.err)
	}

	b.whole(t)
}

// rollingRestart: every server is stopped and started again, one after the other.
func rollingRestart(t *testing.T, b *bed) {
	done := b.during(t, func() { b.await(t, b.Shards[0][0], 2000) })
	for _, s := range b.All() {
		s.Stop()
		s.Up()
	}

	if r := <-done; r.err != nil {
		t.Fatal(r.err)
	}

	b.whole(t)
}

// deadShard: what a shard that is down may hold is no smaller job but an error that names
// it.
func deadShard(t *testing.T, b *bed) {
	b.must(t, b.Store(0, b.database))
	for _, s := range b.Shards[1] {
		s.Kill()
	}

	for _, s := range b.Shards[0] {
		src, err := source.Open(t.Context(), s.Store(b.database), source.Options{})
		if err != nil {
			t.Fatal(err)
		}

		_, err = src.Load(t.Context(), b.job, new(feed.History).Add, source.Options{})
		if err == nil || !strings.Contains(err.Error(), b.Shards[1][0].Addr()) || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("reading with a dead shard: %v", err)
		}

		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}

	for _, s := range b.Shards[1] {
		s.Up()
	}

	b.whole(t)
}

// schemaApplied: apply finds the host that lacks a table or a column, or does not answer,
// and is not done before.
func schemaApplied(t *testing.T, b *bed) {
	s := b.Shards[1][1]
	s.Exec("DROP TABLE "+b.database+".steps", "ALTER TABLE "+b.database+".ranks DROP COLUMN off")
	if _, err := b.apply(t); err != nil {
		t.Fatal(err)
	}

	if n := s.Count("SELECT count() FROM system.columns WHERE database = '" + b.database + "' AND (table = 'steps' AND name = 'job' OR table = 'ranks' AND name = 'off')"); n != 2 {
		t.Errorf("apply left out %d of 2", 2-n)
	}

	s.Kill()
	if _, err := b.apply(t); err == nil || !strings.Contains(err.Error(), s.Addr()+" does not answer") {
		t.Errorf("apply with a dead host: %v", err)
	}

	s.Up()
	b.applied(t)
}

// shardChosen: who writes chooses its shard by job and node, whichever server it asks, and keeps
// the choice that stands in its cursor.
func shardChosen(t *testing.T, b *bed) {
	on := func(s *chtest.Server, node, kept string) string {
		sink := b.sink(t, s.Store(b.database)+"?cluster="+chtest.ClusterName, clickhouse.Options{Job: "job", Node: node})
		sink.KeepShard(kept)
		if err := sink.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}

		return sink.Shard()
	}
	share := map[string]int{}
	for n := range 40 {
		node := fmt.Sprintf("node-%d", n)
		chosen := on(b.Shards[0][0], node, "")
		if again := on(b.Shards[1][1], node, ""); again != chosen {
			t.Errorf("%s chose %s, then %s", node, chosen, again)
		}

		share[chosen]++
	}

	if len(share) != len(b.Shards) || share[chtest.ClusterName+"/1"] < 10 || share[chtest.ClusterName+"/2"] < 10 {
		t.Errorf("40 writers over %d shards: %v", len(b.Shards), share)
	}

	for _, kept := range []string{"training/1", "training/2"} {
		if got := on(b.Shards[0][1], "node-0", kept); got != kept {
			t.Errorf("kept %s, chose %s", kept, got)
		}
	}

	if got := on(b.Shards[0][1], "node-0", "training/9"); got != on(b.Shards[0][0], "node-0", "") {
		t.Errorf("a shard that is gone left %s", got)
	}

	r := b.must(t, b.Shards[1][0].Store(b.database)+"?cluster="+chtest.ClusterName)
	if r.Stored() == 0 {
		t.Errorf("a pass into the chosen shard: %v", r)
	}

	b.placed(t)
	b.nothing(t, b.Store(0, b.database), 8<<20)
	b.nothing(t, b.Store(1, b.database), 8<<20)
	b.whole(t)
}

// placed holds that a pass over the job has put each node's rows into the shard that the node's
// agent chooses, and that there are several.
func (b *bed) placed(t *testing.T) {
	sink := b.sink(t, b.Shards[0][0].Store(b.database)+"?cluster="+chtest.ClusterName, clickhouse.Options{})
	used := map[string]bool{}
	for n, shard := range b.Shards {
		rows, err := shard[0].Conn(b.database).Query(t.Context(), "SELECT DISTINCT node FROM steps_local WHERE job = '"+b.job+"'")
		if err != nil {
			t.Fatal(err)
		}

		for rows.Next() {
			var node string
			if err := rows.Scan(&node); err != nil {
				t.Fatal(err)
			}

			want, err := sink.ShardOf(t.Context(), b.job, node)
			if got := fmt.Sprintf("%s/%d", chtest.ClusterName, n+1); err != nil || got != want {
				t.Errorf("%s is in %s, its agent writes into %q, %v", node, got, want, err)
			}

			used[want] = true
		}

		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}

	if len(used) != len(b.Shards) {
		t.Errorf("all nodes went into %v", used)
	}
}

// shardAdded: what is in the old shards is not stored in a new one.
func shardAdded(t *testing.T, b *bed) {
	b.must(t, b.Store(0, b.database))
	b.AddShard(1)
	b.applied(t)
	b.nothing(t, b.Store(2, b.database), 8<<20)
	b.whole(t)
}

// TestNetworkCut: two replicas reach ZooKeeper and not each other. Rows have one copy, and
// the other replica takes none of which it does not know whether the first has them.
func TestNetworkCut(t *testing.T) {
	if !inNetwork(t) {
		return
	}

	c := startSeparate(t, 1, 2)
	b := lay(t, c)
	part(t, c, true)
	if r := b.must(t, b.Store(0, b.database)); r.Stored() == 0 || r.Singles == 0 {
		t.Errorf("a pass with the replicas apart: %v", r)
	}

	second := b.Shards[0][1].Store(b.database)
	if r, err := b.ingest(t, second, 8<<20, 15*time.Second); err == nil || !strings.Contains(err.Error(), "lacks rows") || r.Stored() != 0 {
		t.Errorf("a pass into the other replica: %v, %v", r, err)
	}

	part(t, c, false)
	b.nothing(t, second, 8<<20)
	b.whole(t)
}
