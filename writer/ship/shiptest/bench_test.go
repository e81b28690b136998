package shiptest_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// forgetful is a store that is never asked what it has, and keeps no account: what a
// shipper that sends and forgets needs.
type forgetful struct{ *clickhouse.Sink }

func (f forgetful) Stored(_ context.Context, b *ship.Batch) ([]bool, error) {
	return make([]bool, b.Len()), nil
}

func (f forgetful) Insert(ctx context.Context, b *ship.Batch) error {
	if b.Table == row.LedgerTable {
		return nil
	}

	return f.Sink.Insert(ctx, b)
}

// BenchmarkOnce is P20: what "each row once" costs. The same raw rows go through the
// same shipper into the real server, with and without the look into the table and the
// account of batches, in turns and in both orders.
func BenchmarkOnce(b *testing.B) {
	const n, portion = 4_000_000, 200_000
	server := chtest.Start(b)
	rows := func(i int) *row.Rows {
		var all []row.Record
		for k := i; k < i+portion; k++ {
			all = append(all, row.Record{
				Job: "j", Incarnation: 7, Node: "node-0", Kind: "Communication", Step: int64(k / 500), StartNs: shiptest.Base - 40_000_000_000_000 + int64(k)*1000,
				DurNs: 5000, Side: "device", ExposedNs: -1, Ring: 2, Seq: uint64(k), Op: "allreduce", Group: "dp0", Peer: -1,
				Count: 1 << 20, Dtype: "bf16", Bytes: 1 << 21, Segment: 9, Offset: uint64(160 * k),
			})
		}

		return &row.Rows{Raws: row.Pack(all...)}
	}
	run := func(once bool) time.Duration {
		db := server.Database()
		o := ship.Options{BatchRows: portion}
		store := open(b, server.Store(db))
		var sink ship.Sink = forgetful{store}
		if once {
			sink, o.DeadLetters = store, filepath.Join(b.TempDir(), "dead")
		}

		if err := sink.Create(b.Context()); err != nil {
			b.Fatal(err)
		}

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
	run(false) // warm
	var ratios []float64
	var with, without time.Duration
	for i := 0; b.Loop(); i++ {
		var took [2]time.Duration
		for k := range 2 {
			once := (i+k)%2 == 0
			took[map[bool]int{false: 0, true: 1}[once]] = run(once)
		}

		without, with = without+took[0], with+took[1]
		ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
	}

	slices.Sort(ratios)
	b.ReportMetric(with.Seconds()/float64(b.N), "once-s/op")
	b.ReportMetric(without.Seconds()/float64(b.N), "bare-s/op")
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
	b.ReportMetric(ratios[len(ratios)-1]-ratios[0], "x-spread")
}
