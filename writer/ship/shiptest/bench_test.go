package shiptest_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"laggard/schemas/row"
	"laggard/writer/clickhouse/chtest"
	"laggard/writer/ship"
	"laggard/writer/ship/shiptest"
)

// BenchmarkOnce is P20: what "each row once" costs. The same raw rows go into the
// real server through a shipper (intent on the disk before each insert, look into
// the table, account of batches), and as bare inserts of the same batches, in turns.
func BenchmarkOnce(b *testing.B) {
	const n, portion = 600_000, 50_000
	server := chtest.Start(b)
	rows := func(i int) *row.Rows {
		r := &row.Rows{}
		for k := i; k < i+portion; k++ {
			r.Records = append(r.Records, row.Record{
				Job: "j", Incarnation: 7, Node: "node-0", Kind: "Communication", Step: int64(k / 500), StartNs: shiptest.Base - 40_000_000_000_000 + int64(k)*1000,
				DurNs: 5000, Side: "device", ExposedNs: -1, Ring: 2, Seq: uint64(k), Op: "allreduce", Group: "dp0", Peer: -1,
				Count: 1 << 20, Dtype: "bf16", Bytes: 1 << 21, Segment: 9, Offset: uint64(160 * k),
			})
		}
		return r
	}
	bare := func() time.Duration {
		db := server.Database()
		sink := open(b, server.Store(db))
		if err := sink.Create(b.Context()); err != nil {
			b.Fatal(err)
		}
		var parts []*ship.Batch
		for i := 0; i < n; i += 4 * portion {
			all := &row.Rows{}
			for k := range min(4, (n-i)/portion) {
				all.Records = append(all.Records, rows(i+k*portion).Records...)
			}
			parts = append(parts, ship.Cut(all)...)
		}
		began := time.Now()
		for _, p := range parts {
			if err := sink.Insert(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(began)
		server.Exec("DROP DATABASE " + db)
		return took
	}
	ours := func() time.Duration {
		db := server.Database()
		sink := open(b, server.Store(db))
		if err := sink.Create(b.Context()); err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		o := ship.Options{BatchRows: 4 * portion, Memory: 1 << 30, BatchBytes: 1 << 29, Intents: filepath.Join(dir, "intent"), DeadLetters: filepath.Join(dir, "dead")}
		s, err := ship.New(sink, o)
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		st := ship.NewStream("0")
		var all []*row.Rows
		for i := 0; i < n; i += portion {
			all = append(all, rows(i))
		}
		began := time.Now()
		for i, r := range all {
			if err := s.Put(ctx, st, r, i); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Flush(ctx); err != nil {
			b.Fatal(err)
		}
		took := time.Since(began)
		stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		server.Exec("DROP DATABASE " + db)
		return took
	}
	bare() // warm
	var ratios []float64
	var a, c time.Duration
	for b.Loop() {
		x, y := ours(), bare()
		a, c = a+x, c+y
		ratios = append(ratios, x.Seconds()/y.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(a.Seconds()/float64(b.N), "once-s/op")
	b.ReportMetric(c.Seconds()/float64(b.N), "bare-s/op")
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
	b.ReportMetric(ratios[len(ratios)-1]-ratios[0], "x-spread")
}
