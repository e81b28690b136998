package intake_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"laggard/schemas/record"
	"laggard/writer/clickhouse/chtest"
	"laggard/writer/intake"
)

// lines writes n communication records of one rank as plain segments, and returns
// the same as rows of JSON with the table's columns.
func lines(b *testing.B, dir string, n int) (rows []byte) {
	b.Helper()
	rank := filepath.Join(dir, "j1", "0")
	if err := os.MkdirAll(rank, 0o755); err != nil {
		b.Fatal(err)
	}
	var segment, json bytes.Buffer
	name := 1_753_000_000
	write := func() {
		if err := os.WriteFile(filepath.Join(rank, fmt.Sprint(name)), segment.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
		segment.Reset()
		name++
	}
	for i := range n {
		if segment.Len() == 0 {
			m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", name), Job: "j1", Incarnation: 7, WorldSize: 1, Node: "node-0", StartedNs: base}
			segment.Write(m.AppendLine(nil))
		}
		start := base - 80_000_000_000_000 + int64(i)*30_000
		r := record.New(record.Communication)
		r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq = int64(i/1000), start, int64(5000+i%977), 4000, 2, uint64(i)
		if i%1000 == 999 {
			r = record.New(record.Step)
			r.Step, r.Start, r.Dur, r.Ring, r.Seq = int64(i/1000), start-999*30_000, 1000*30_000, 1, uint64(i/1000)
		} else {
			r.Op, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
			r.Seq = uint64(i - i/1000)
		}
		fmt.Fprintf(&json, `{"job":"j1","rank":0,"incarnation":7,"node":"node-0","kind":%q,"step":%d,"repeat":0,"start_ns":%d,"dur_ns":%d,"side":"host","host_start_ns":0,"host_dur_ns":0,"exposed_ns":%d,"ring":%d,"seq":%d,"thread":0,"op":%q,"op_raw":"","group":%q,"peer":-1,"count":%d,"dtype":%q,"bytes":%d,"tokens":0,"path":"","open":0,"segment":%d,"offset":%d}`+"\n",
			r.Word(), r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq, r.Op, r.Group, r.Count, r.Dtype, r.Bytes, name, segment.Len())
		segment.Write(r.AppendLine(nil))
		if segment.Len() > 10<<20-512 {
			write()
		}
	}
	write()
	return json.Bytes()
}

// BenchmarkFileToClickHouse is P10: a million records from segments into the store
// (parse, rollup, ship, each once), beside the server's own client that inserts
// the same rows into the same table from JSON and from its Native format.
func BenchmarkFileToClickHouse(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	json := lines(b, dir, n)
	server := chtest.Start(b)
	fresh := func() string {
		db := server.Database()
		s := store(b, server.Store(db))
		if err := s.Create(b.Context()); err != nil {
			b.Fatal(err)
		}
		return db
	}
	client := func(db string, data []byte, format string) time.Duration {
		began := time.Now()
		if out, err := server.Client(data, "INSERT INTO "+db+".records FORMAT "+format); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	var native []byte
	var ours, fromJSON, fromNative time.Duration
	for b.Loop() {
		db := fresh()
		fromJSON += client(db, json, "JSONEachRow")
		if native == nil {
			native = server.Dump(b, "SELECT * FROM "+db+".records FORMAT Native")
		}
		server.Exec("DROP DATABASE " + db)
		db = fresh()
		fromNative += client(db, native, "Native")
		server.Exec("DROP DATABASE " + db)
		db = fresh()
		began := time.Now()
		r, err := intake.Once(b.Context(), dir, store(b, server.Store(db)), all())
		ours += time.Since(began)
		if err != nil || r.Tables["records"].Inserted != n {
			b.Fatalf("%v: %s", err, r)
		}
		server.Exec("DROP DATABASE " + db)
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "ours-s/op")
	b.ReportMetric(fromJSON.Seconds()/ours.Seconds(), "x-JSONEachRow")
	b.ReportMetric(fromNative.Seconds()/ours.Seconds(), "x-Native")
}
