package shiptest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// TestServerKilled kills the server (SIGKILL) at random moments of inserts, again
// and again: each row is stored once. R9.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	kills, r := scale(t, "LAGGARD_TEST_KILLS", 10), random(t)
	server := chtest.Start(t)
	db := server.Database()
	sink := &hooked{open(t, server.Store(db)), make(chan struct{})}
	ranks, n := 4, 250*kills
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stop, killed := make(chan struct{}), make(chan int, 1)
	go func() {
		count := 0
		defer func() { killed <- count }()
		for ; count < kills; count++ {
			select {
			case <-stop:
				return
			case <-sink.begins:
			}

			delay := time.NewTimer(time.Duration(r.Int64N(int64(12 * time.Millisecond))))
			select {
			case <-stop:
				return
			case <-delay.C:
			}

			server.Kill()
			server.Up()
		}
	}()
	s := shipping(t, sink, ship.Options{BatchRows: 500, Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.5 }}, func(_ context.Context, s *ship.Shipper) {
		feed(t, ctx, s, streamsOf(ranks), 0, n, 50)
	})
	close(stop)
	st := s.Stats()
	t.Logf("%d kills, %d batches, %d retries, %d doubts resolved", <-killed, st.Batches, st.Retries, st.Doubts)
	exactly(t, server.Count, db, ranks, n)
}

// TestServerStalls stops the server (SIGSTOP) in the middle of shipping for longer
// than a call may last.
func TestServerStalls(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	plain, err := clickhouse.Open(server.Store(db), clickhouse.Options{Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	sink := &hooked{plain, make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			<-sink.begins
			server.Signal(syscall.SIGSTOP)
			<-time.After(700 * time.Millisecond)
			server.Signal(syscall.SIGCONT)
		}
	}()
	s := shipping(t, sink, ship.Options{BatchRows: 500, Flush: 5 * time.Millisecond}, func(ctx context.Context, s *ship.Shipper) {
		feed(t, ctx, s, streamsOf(2), 0, 4000, 100)
	})
	<-done
	if s.Stats().Retries == 0 {
		t.Error("nothing failed: the server did not stall")
	}

	exactly(t, server.Count, db, 2, 4000)
}

// TestMillionRows ships a million records and checks them by count and sequence.
func TestMillionRows(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	db := server.Database()
	began := time.Now()
	shipping(t, open(t, server.Store(db)), ship.Options{}, func(ctx context.Context, s *ship.Shipper) {
		streams := []*ship.Stream{ship.NewStream("0"), ship.NewStream("1"), ship.NewStream("2"), ship.NewStream("3")}
		const portion = 12500
		for i := 0; i < 250_000; i += portion {
			for r, st := range streams {
				var all []row.Record
				for k := range portion {
					seq := i + k
					all = append(all, row.Record{
						Job: "j", Rank: uint32(r), Incarnation: 7, Node: "node-0", Kind: "Communication", Step: int64(seq / 500), StartNs: shiptest.Base + int64(seq)*1000,
						DurNs: 5000, Side: "device", ExposedNs: -1, Ring: 2, Seq: uint64(seq), Op: "allreduce", Group: "dp0", Peer: -1,
						Count: 1 << 20, Dtype: "bf16", Bytes: 1 << 21, Segment: uint64(r), Offset: uint64(160 * seq),
					})
				}

				if err := s.Put(ctx, st, &row.Rows{Raws: row.Pack(all...)}, i); err != nil {
					t.Fatal(err)
				}
			}
		}

		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("a million records in %s", time.Since(began))
	for query, want := range map[string]uint64{
		"SELECT count() FROM " + db + ".records":                                                                               1_000_000,
		"SELECT uniqExact(rank, ring, seq) FROM " + db + ".records":                                                            1_000_000,
		"SELECT count() FROM (SELECT rank, max(seq) AS m, count() AS c FROM " + db + ".records GROUP BY rank) WHERE m + 1 = c": 4,
		"SELECT sum(records) FROM " + db + ".ledger WHERE state = 'stored' AND table = 'records'":                              1_000_000,
	} {
		if got := server.Count(query); got != want {
			t.Errorf("%s = %d, want %d", query, got, want)
		}
	}
}

// TestConnectionsRest: between flushes that are far apart an agent holds no connection, and
// the flush that follows is none the worse for it.
func TestConnectionsRest(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	asking := server.Conn("") // the one that stays
	held := func() error {
		var n int64
		if err := asking.QueryRow(t.Context(), "SELECT toInt64(value) FROM system.metrics WHERE metric = 'TCPConnection'").Scan(&n); err != nil || n != 1 {
			return fmt.Errorf("%d connections, want 1, %w", n, err)
		}

		return nil
	}
	s := shipping(t, open(t, server.Store(db)), ship.Options{Flush: time.Minute, Jitter: func() float64 { return 0 }}, func(ctx context.Context, s *ship.Shipper) {
		for k := range 3 {
			err := s.Put(ctx, ship.NewStream(fmt.Sprint(k)), shiptest.Rows("rests", uint32(k), 0, 10), k)
			if err := errors.Join(err, s.Flush(ctx)); err != nil {
				t.Fatal(err)
			}

			chtest.Eventually(t, "the connections are closed", 10*time.Second, held)
		}
	})
	if st := s.Stats(); st.Retries != 0 {
		t.Errorf("%d calls failed: %s", st.Retries, st.LastError)
	}

	if n := server.Count("SELECT uniqExact(rank, step) FROM " + db + ".steps"); n != 30 {
		t.Errorf("%d steps, want 30", n)
	}
}
