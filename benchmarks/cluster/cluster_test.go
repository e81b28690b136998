//go:build cluster

// Package cluster holds laggard to a real ClickHouse cluster: shards of replicas that are
// killed, stopped, cut off and rebuilt while jobs are stored in it. Its tests have the
// build tag cluster; `make cluster` runs them, and installs what they need.
//
// After each fault a job is in the store once by count and by key, its audit is equal, and
// its verdict is the same from every server.
package cluster

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/audit"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// bed is a cluster with laggard's tables in a database, and a job as files.
type bed struct {
	*chtest.Cluster
	database string
	dir, job string
	table    map[string]uint64 // rows that the job has, by table
}

// tables that a job's rows are in, with their keys.
var tables = map[string]string{
	"ranks": "(rank, incarnation)", "steps": "(rank, incarnation, step, repeat)",
	"communications": "(rank, incarnation, step_from, repeat, `group`, op)", "records": "(segment, `offset`)",
}

// lay applies the schema to a database of its own on the cluster.
func lay(t *testing.T, c *chtest.Cluster) *bed {
	t.Helper()
	b := &bed{Cluster: c}
	b.afresh(t)
	b.dir, b.job = simulated(t)
	b.counts(t)
	return b
}

// afresh goes on with another database, in which nothing is stored.
func (b *bed) afresh(t *testing.T) {
	t.Helper()
	b.database = fmt.Sprintf("db_%d", time.Now().UnixNano())
	b.applied(t)
}

// applied applies the schema to all servers, those that are being started again included.
func (b *bed) applied(t *testing.T) {
	t.Helper()
	chtest.Eventually(t, "the schema is applied", 2*time.Minute, func() error {
		hosts, err := b.apply(t)
		if err == nil && len(hosts) != len(b.All()) {
			t.Fatalf("Apply() = %v", hosts)
		}

		return err
	})
}

func (b *bed) apply(t *testing.T) ([]string, error) {
	t.Helper()
	return b.sink(t, b.Shards[0][0].Store(b.database), clickhouse.Options{Cluster: chtest.ClusterName}).Apply(t.Context())
}

func (b *bed) sink(t *testing.T, store string, o clickhouse.Options) *clickhouse.Sink {
	t.Helper()
	o.Logger = logger(t)
	s, err := clickhouse.Open(store, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ingest stores the job, whole batches of --memory bytes at a time.
func (b *bed) ingest(t *testing.T, store string, memory int64, giveUp time.Duration) (intake.Report, error) {
	t.Helper()
	o := intake.Options{Records: rollup.All, State: t.TempDir(), Logger: logger(t)}
	o.Ship.Memory, o.Ship.GiveUp, o.Ship.Copies = memory, giveUp, copies(t)
	return intake.Once(t.Context(), b.dir, b.sink(t, store, clickhouse.Options{Timeout: 20 * time.Second}), o)
}

// copies is how long a second copy is waited for: LAGGARD_CLUSTER_COPIES, 3 s by default.
func copies(t *testing.T) time.Duration {
	text := os.Getenv("LAGGARD_CLUSTER_COPIES")
	if text == "" {
		return 3 * time.Second
	}

	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

// must is ingest that goes well.
func (b *bed) must(t *testing.T, store string) intake.Report {
	t.Helper()
	r, err := b.ingest(t, store, 0, 2*time.Minute)
	if err != nil {
		t.Fatalf("ingest into %s: %v", store, err)
	}

	return r
}

// whole holds that the job is in the store once: from every server that runs, by count and
// by key, by audit, and by the verdict that files have, too.
func (b *bed) whole(t *testing.T) {
	t.Helper()
	want := b.counts(t)
	files, err := analyze(t, b.dir, b.job)
	if err != nil {
		t.Fatal(err)
	}

	chtest.Eventually(t, "replicas have caught up", 2*time.Minute, b.alike)
	for _, s := range b.All() {
		if !s.Running() {
			continue
		}

		chtest.Eventually(t, "every row is there once", 2*time.Minute, func() error { return b.counted(s, want) })
		store := s.Store(b.database)
		answers(t, s, func() error {
			report, err := b.audit(t, s)
			if err == nil && !report.Equal {
				t.Fatalf("audit from %s: %+v", s.Addr(), report)
			}

			return err
		})
		answers(t, s, func() error {
			v, err := analyze(t, store, b.job)
			if err == nil && (!reflect.DeepEqual(v.Nodes, files.Nodes) || v.Coverage != files.Coverage || v.Healthy != files.Healthy) {
				t.Fatalf("verdict from %s:\n%+v\nfrom files:\n%+v", s.Addr(), v, files)
			}

			return err
		})
	}
}

// alike compares what the replicas of each shard that run have themselves: who asks for the
// job gets what one of them has, and that may lag behind.
func (b *bed) alike() error {
	for _, shard := range b.Shards {
		for table, key := range tables {
			var first uint64
			var has []string
			for _, s := range shard {
				if !s.Running() {
					continue
				}

				var n uint64
				if err := s.Row(fmt.Sprintf("SELECT uniqExact(%s) FROM %s.%s_local WHERE job = '%s'", key, b.database, table, b.job), &n); err != nil {
					return err
				}

				if has = append(has, fmt.Sprintf("%s %d", s.Addr(), n)); len(has) == 1 {
					first = n
				} else if n != first {
					return fmt.Errorf("rows of %s: %s", table, strings.Join(has, ", "))
				}
			}
		}
	}

	return nil
}

// audit compares the files with what a server tells.
func (b *bed) audit(t *testing.T, s *chtest.Server) (*audit.Report, error) {
	t.Helper()
	store := s.Store(b.database)
	return audit.Run(t.Context(), b.dir, b.job, store, b.sink(t, store, clickhouse.Options{}), nil)
}

// answers asks a server until it answers: one that has left by itself is being started again.
func answers(t *testing.T, s *chtest.Server, ask func() error) {
	t.Helper()
	chtest.Eventually(t, s.Addr()+" answers", 2*time.Minute, ask)
}

// counted compares what a server tells of the job with what it should have.
func (b *bed) counted(s *chtest.Server, want map[string]uint64) error {
	for table, key := range tables {
		q := fmt.Sprintf("SELECT count(), uniqExact(%s) FROM %s.%s WHERE job = '%s'", key, b.database, table, b.job)
		var rows, unique uint64
		if err := s.Row(q, &rows, &unique); err != nil {
			return err
		}

		if table != "ranks" && rows != unique || unique != want[table] {
			return fmt.Errorf("%s has %d rows of %s, %d unique, want %d", s.Addr(), rows, table, unique, want[table])
		}
	}

	return nil
}

// counts asks a store of its own how many rows the job has: a single server's.
func (b *bed) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	if b.table != nil {
		return b.table
	}

	s := chtest.Start(t)
	defer s.Kill()
	database := s.Database()
	b.must(t, s.Store(database))
	b.table = map[string]uint64{}
	for table, key := range tables {
		b.table[table] = s.Count(fmt.Sprintf("SELECT uniqExact(%s) FROM %s.%s", key, database, table))
	}

	return b.table
}

// simulated makes a job with a slow rank.
func simulated(t *testing.T) (dir, job string) {
	t.Helper()
	cfg, err := simulate.Sized("compute-1.5", 3, 16)
	if err != nil {
		t.Fatal(err)
	}

	cfg.Steps = 240
	dir = filepath.Join(t.TempDir(), "job")
	truth, err := simulate.Write(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}

	return dir, truth.Name
}

// logger says in the test's log what the shipper says.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func analyze(t *testing.T, spec, job string) (*verdict.Verdict, error) {
	t.Helper()
	s, err := source.Open(t.Context(), spec, source.Options{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	rows := &feed.History{}
	info, err := s.Load(t.Context(), job, rows.Add, source.Options{})
	if err != nil {
		return nil, err
	}

	f, err := rows.Frame(info.Topology)
	if err != nil {
		return nil, err
	}

	return detect.Analyze(f, detect.Default()), nil
}
