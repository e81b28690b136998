package shiptest_test

import (
	"context"
	"testing"
	"time"

	"laggard/writer/clickhouse/chtest"
	"laggard/writer/ship"
)

// TestConnectionsCut sends everything through a proxy that cuts connections at
// every kind of byte and loses acknowledgements of inserts that were carried out. R10.
func TestConnectionsCut(t *testing.T) {
	cuts, r := scale(t, "LAGGARD_TEST_CUTS", 30), random(t)
	server := chtest.Start(t)
	db := server.Database()
	// The set-up goes straight; what is cut is shipping.
	if err := open(t, server.Store(db)).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, server.Addr(), func(n int) fault {
		switch {
		case n >= cuts:
			return fault{}
		case n%3 == 0:
			return fault{mute: 3000 + r.Int64N(15000)} // after data went up: the acknowledgement
		case n%3 == 1:
			return fault{up: 1 + r.Int64N(2000)} // handshake, questions, the INSERT's head
		}
		return fault{up: 2000 + r.Int64N(15000)} // in the block
	})
	sink := open(t, p.store(db))
	ranks, n := 3, 100*cuts
	s := shipping(t, sink, ship.Options{BatchRows: 500, Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.02 }}, func(ctx context.Context, s *ship.Shipper) {
		feed(t, ctx, s, ranks, n, 100)
	})
	st := s.Stats()
	t.Logf("%d connections, %d batches, %d retries, %d doubts resolved", p.n, st.Batches, st.Retries, st.Doubts)
	if st.Doubts == 0 {
		t.Error("no insert was in doubt: the proxy did not do its work")
	}
	exactly(t, server, db, ranks, n)
}
