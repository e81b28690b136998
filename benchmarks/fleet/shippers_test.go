package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
)

// crowd is a fleet of agents, as far as the store sees them: each ships eight ranks, whose
// steps take 5 s and have two and a half rows of communication each.
type crowd struct {
	agents       int
	flush, start time.Duration
	engine       string
	queries      int // that the server takes at once: 100 by default up to 23.3, 1,000 since
	connections  int // that the server takes: 1,024 where its configuration doesn't say, 4,096 as Debian's has it
	// together is that each flushes Flush after its first row, as if there were no random
	// phase: the state before there was one.
	together bool
}

const (
	ranksOfAgent = 8
	stepTime     = 5 * time.Second
)

// BenchmarkShippers prints the fleet's table, a line a crowd: agents, flush, start, engine →
// inserts a second, the most parts of one table, errors, how long an insert takes, how long
// a row waits until it is acknowledged, and whether each row is there once.
// LAGGARD_FLEET_SECONDS is how long the agents go on, 75 by default; two and a half flushes at least.
func BenchmarkShippers(b *testing.B) {
	lasts := 75 * time.Second
	if text := os.Getenv("LAGGARD_FLEET_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}

		lasts = time.Duration(n) * time.Second
	}

	for _, c := range []crowd{
		{100, 5 * time.Second, time.Second, "MergeTree", 100, 4096, false},
		{1000, 30 * time.Second, 5 * time.Second, "MergeTree", 1000, 4096, true},
		{1000, 30 * time.Second, 5 * time.Second, "MergeTree", 100, 4096, false},
		{1000, 30 * time.Second, 5 * time.Second, "MergeTree", 1000, 1024, false},
		{1000, 30 * time.Second, 5 * time.Second, "MergeTree", 1000, 4096, false},
		{1000, 60 * time.Second, 5 * time.Second, "MergeTree", 1000, 4096, false},
		{1000, 30 * time.Second, 5 * time.Second, "Replicated", 100, 4096, false},
	} {
		phase := "random"
		if c.together {
			phase = "one"
		}

		b.Run(fmt.Sprintf("agents=%d/flush=%s/start=%s/phase=%s/queries=%d/connections=%d/engine=%s", c.agents, c.flush, c.start, phase, c.queries, c.connections, c.engine), func(b *testing.B) {
			for b.Loop() {
				c.play(b, max(lasts, c.flush*5/2))
			}
		})
	}
}

// play runs the agents against a server of their own.
func (c *crowd) play(b *testing.B, lasts time.Duration) {
	server, store := c.server(b)
	seen := &sightings{errors: map[string]int{}, last: map[string]int{}}
	watching, stop := context.WithCancel(b.Context())
	g, ctx := errgroup.WithContext(b.Context())
	parts := 0
	database := server.database
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			var n uint64
			q := "SELECT max(n) FROM (SELECT count() AS n FROM system.parts WHERE active AND database = '" + database + "' GROUP BY table)"
			if err := server.Row(q, &n); err == nil {
				parts = max(parts, int(n))
			}

			select {
			case <-watching.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	began := time.Now()
	for n := range c.agents {
		g.Go(func() error {
			time.Sleep(c.start * time.Duration(n) / time.Duration(c.agents))
			return c.agent(ctx, store, n, began.Add(lasts), seen)
		})
	}

	err := g.Wait()

	took := time.Since(began)
	stop()
	<-watched
	if c.report(b, server, seen, took, parts); err != nil {
		b.Error(err)
	}
}

// target is a server with the tables in a database.
type target struct {
	*chtest.Server
	database string
}

// server starts the engine of the crowd with the tables made, as an operator does.
func (c *crowd) server(b *testing.B) (target, string) {
	b.Helper()
	t, store, o := target{database: "fleet"}, "", clickhouse.Options{}
	if c.engine == "Replicated" {
		cluster := chtest.StartCluster(b, 1, 2)
		t.Server, store, o.Cluster = cluster.Shards[0][0], cluster.Store(0, t.database), chtest.ClusterName
	} else {
		t.Server = chtest.StartWith(b, chtest.Options{Queries: c.queries, Connections: c.connections})
		t.Exec("CREATE DATABASE " + t.database)
		store = t.Store(t.database)
	}

	sink, err := clickhouse.Open(store, o)
	if err != nil {
		b.Fatal(err)
	}

	if o.Cluster != "" {
		_, err = sink.Apply(b.Context())
	} else {
		err = sink.Create(b.Context())
	}

	if err := errors.Join(err, sink.Close()); err != nil {
		b.Fatal(err)
	}

	return t, store
}

// sightings are what all agents saw.
type sightings struct {
	mu      sync.Mutex
	inserts []time.Duration
	waits   []time.Duration // from Put to acknowledgement
	errors  map[string]int  // failed inserts, by their end
	last    map[string]int  // agents, by the end of the last error of any call
	failed  uint64
	steps   uint64
	comms   uint64
}

// timed is a sink that tells how long inserts take.
type timed struct {
	*clickhouse.Sink
	seen *sightings
}

func (s timed) Insert(ctx context.Context, batch *ship.Batch) error {
	began := time.Now()
	err := s.Sink.Insert(ctx, batch)
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if s.seen.inserts = append(s.seen.inserts, time.Since(began)); err != nil {
		s.seen.errors[end(err.Error())]++
	}

	return err
}

// agent ships the rows of its ranks as they come, until then.
func (c *crowd) agent(ctx context.Context, store string, n int, until time.Time, seen *sightings) error {
	sink, err := clickhouse.Open(store, clickhouse.Options{})
	if err != nil {
		return err
	}
	defer sink.Close()
	o := ship.Options{Flush: c.flush, Copies: 10 * time.Second}
	if c.together {
		o.Jitter = func() float64 { return 1 - 1e-9 }
	}

	s, err := ship.New(timed{sink, seen}, o)
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(running) }()
	var streams [ranksOfAgent]*ship.Stream
	for r := range streams {
		streams[r] = ship.NewStream(strconv.Itoa(r))
	}

	put := map[int]time.Time{} // by step
	acked, step := 0, 0
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	next := time.Now()
	for {
		now := time.Now()
		if done, ok := streams[0].Acked().(int); ok {
			for ; acked < done; acked++ {
				seen.wait(now.Sub(put[acked+1]))
				delete(put, acked+1)
			}
		}

		if now.After(until) {
			break
		}

		if !now.Before(next) {
			next, step = next.Add(stepTime), step+1
			put[step] = now
			for r := range streams {
				rows := seen.rows(n*ranksOfAgent+r, step, c.agents*ranksOfAgent)
				if err := s.Put(ctx, streams[r], rows, step); err != nil {
					stop()
					return err
				}
			}
		}

		<-tick.C
	}

	last, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = s.Flush(last)
	stop()
	seen.mu.Lock()
	stats := s.Stats()
	if seen.failed += stats.Retries; stats.LastError != "" {
		seen.last[end(stats.LastError)]++
	}

	seen.mu.Unlock()
	return errors.Join(err, <-ran)
}

func (s *sightings) wait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, d)
}

// rows are those of a step of one rank.
func (s *sightings) rows(rank, step, world int) *row.Rows {
	node := "node-" + strconv.Itoa(rank/ranksOfAgent)
	start := int64(step) * int64(stepTime)
	rows := &row.Rows{Steps: []row.Step{{Job: "fleet", Rank: uint32(rank), Incarnation: 1, Node: node, Step: uint64(step), StartNs: start, StepNs: int64(stepTime)}}}
	if step == 1 {
		rows.Ranks = []row.Rank{{Job: "fleet", Rank: uint32(rank), Incarnation: 1, WorldSize: uint32(world), Node: node, StartedNs: 1, Version: 1}}
	}

	for k := range 10 * (1 - min(step%4, 1)) { // 40 pairs of group and op in 16 steps
		rows.Communications = append(rows.Communications, row.Communication{Job: "fleet", Rank: uint32(rank), Incarnation: 1, Node: node,
			StepFrom: uint64(step), StepTo: uint64(step), StartNs: start, Group: "group-" + strconv.Itoa(k), Dim: "dp", Op: "allreduce", Steps: 1, Calls: 1})
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps++
	s.comms += uint64(len(rows.Communications))
	return rows
}

// report prints the line, and holds that each row is there once.
func (c *crowd) report(b *testing.B, t target, seen *sightings, took time.Duration, parts int) {
	b.Helper()
	unique := "each row once"
	for table, want := range map[string]uint64{
		"steps": seen.steps, "communications": seen.comms,
	} {
		key := map[string]string{"steps": "(rank, step)", "communications": "(rank, step_from, `group`)"}[table]
		var rows, keys uint64
		if err := t.Row("SELECT count(), uniqExact("+key+") FROM "+t.database+"."+table, &rows, &keys); err != nil || rows != want || keys != want {
			unique = fmt.Sprintf("%s: %d rows, %d unique, want %d, %v", table, rows, keys, want, err)
			b.Error(unique)
		}
	}

	slices.Sort(seen.inserts)
	slices.Sort(seen.waits)
	at := func(all []time.Duration, part float64) time.Duration { return all[int(part*float64(len(all)-1))] }
	fmt.Printf("| %d | %s | %s | %s, %d queries, %d connections | %s | %.1f | %d | %d (%d calls) | %s | %s | %.1f s | %.1f s | %s |\n", c.agents, c.flush, c.start, c.engine, c.queries, c.connections, map[bool]string{true: "one", false: "random"}[c.together],
		float64(len(seen.inserts))/took.Seconds(), parts, total(seen.errors), seen.failed,
		at(seen.inserts, .5).Round(time.Millisecond), at(seen.inserts, .99).Round(time.Millisecond),
		at(seen.waits, .5).Seconds(), at(seen.waits, .99).Seconds(), unique)
	for text, n := range seen.errors {
		b.Logf("%d inserts failed: %.300s", n, text)
	}

	for text, n := range seen.last {
		b.Logf("the last error of %d agents: %.300s", n, text)
	}
}

// partsCount is how many parts were too many.
var partsCount = regexp.MustCompile(`parts \(\d+\)`)

// end is the cause in an error's text, without the addresses before it and without numbers.
func end(text string) string {
	if i := strings.LastIndex(text, "fleet: "); i >= 0 {
		text = text[i+len("fleet: "):]
	}

	if strings.Contains(text, "->") {
		text = text[strings.LastIndex(text, ": ")+2:]
	}

	return partsCount.ReplaceAllString(text, "parts")
}

func total(errors map[string]int) int {
	n := 0
	for _, times := range errors {
		n += times
	}

	return n
}
