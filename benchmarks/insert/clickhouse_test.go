package insert

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// BenchmarkFileToClickHouse is P10: a million records from segments into the store
// (parse, rollup, ship, each once), beside the server's own client that inserts
// the same rows into the same table from JSON and from its Native format. One
// iteration is one insert by each, on fresh tables of one server; the figures are
// medians.
func BenchmarkFileToClickHouse(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	json := segments(b, dir, n)
	server := chtest.Start(b)
	fresh := func() (string, ship.Sink) {
		db := server.Database()
		s, err := intake.OpenStore(server.Store(db), clickhouse.Options{})
		if err != nil {
			b.Fatal(err)
		}

		if err := s.Create(b.Context()); err != nil {
			b.Fatal(err)
		}

		return db, s
	}
	client := func(data []byte, format string) cost {
		db, s := fresh()
		defer server.Exec("DROP DATABASE " + db)
		defer s.Close()
		return run(b, server.PID(), func() {
			if out, err := server.Client(data, "INSERT INTO "+db+".records FORMAT "+format); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
	}
	program := laggard(b)
	ours := func() (c cost) {
		db, s := fresh()
		defer server.Exec("DROP DATABASE " + db)
		defer s.Close()
		c = run(b, server.PID(), func() { ingest(b, program, dir, server.Store(db)) })
		if got := server.Count("SELECT count() FROM " + db + ".records"); got != n {
			b.Fatalf("%d records are stored, want %d", got, n)
		}

		return c
	}
	db, s := fresh()
	if out, err := server.Client(json, "INSERT INTO "+db+".records FORMAT JSONEachRow"); err != nil {
		b.Fatalf("%v: %s", err, out)
	}

	native := server.Dump(b, "SELECT * FROM "+db+".records FORMAT Native")
	server.Exec("DROP DATABASE " + db)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}

	client(native, "Native") // warm
	ours()
	var costs [3][]cost
	for b.Loop() {
		costs[0] = append(costs[0], ours())
		costs[1] = append(costs[1], client(json, "JSONEachRow"))
		costs[2] = append(costs[2], client(native, "Native"))
	}

	for i, name := range []string{"laggard", "JSONEachRow", "Native"} {
		report(b, name, costs[i])
	}

	ratio(b, "x-JSONEachRow", costs[1], costs[0])
	ratio(b, "x-Native", costs[2], costs[0])
}

// report gives the medians of one side.
func report(b *testing.B, name string, all []cost) {
	b.ReportMetric(median(all, func(c cost) time.Duration { return c.wall }).Seconds(), name+"-s")
	b.ReportMetric(median(all, func(c cost) time.Duration { return c.own }).Seconds(), name+"-client-cpu-s")
	b.ReportMetric(median(all, func(c cost) time.Duration { return c.server }).Seconds(), name+"-server-cpu-s")
}

func median(all []cost, of func(cost) time.Duration) time.Duration {
	var d []time.Duration
	for _, c := range all {
		d = append(d, of(c))
	}

	slices.Sort(d)
	return d[len(d)/2]
}

// ratio gives the median of their time divided by ours of the same iteration, and
// logs the spread.
func ratio(b *testing.B, name string, theirs, ours []cost) {
	var r []float64
	for i := range ours {
		r = append(r, theirs[i].wall.Seconds()/ours[i].wall.Seconds())
	}

	slices.Sort(r)
	b.ReportMetric(r[len(r)/2], name)
	b.Log(name, fmt.Sprintf("median %.2f, %.2f to %.2f, n=%d", r[len(r)/2], r[0], r[len(r)-1], len(r)))
}
