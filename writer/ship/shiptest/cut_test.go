package shiptest_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
)

// faults returns a plan: the first n connections each meet one, of all kinds in
// turns, at a random byte. head is about where the block of an INSERT begins, and
// most about where it ends.
func faults(r *rand.Rand, n int, head, most int64) func(int) fault {
	kinds := []func() fault{
		func() fault { return fault{name: "cut in handshake", up: 1 + r.Int64N(120)} },
		func() fault { return fault{name: "cut in question", up: 100 + r.Int64N(head)} },
		func() fault { return fault{name: "cut in block", up: head + r.Int64N(most-head)} },
		func() fault { return fault{name: "reset in block", up: head + r.Int64N(most-head), reset: true} },
		func() fault { return fault{name: "answer cut", down: 1 + r.Int64N(2000)} },
		func() fault { return fault{name: "answer reset", down: 1 + r.Int64N(2000), reset: true} },
		func() fault { return fault{name: "acknowledgement lost", up: head + r.Int64N(most-head), mute: true} },
		func() fault { return fault{name: "half open", up: 1 + r.Int64N(most), half: true} },
		func() fault { return fault{name: "accepted and stalled", stall: true} },
		func() fault { return fault{name: "late", delay: time.Duration(r.Int64N(int64(40 * time.Millisecond)))} },
	}
	return func(i int) fault {
		if i >= n {
			return fault{}
		}

		f := kinds[i%len(kinds)]()
		if f.delay > 0 { // such a connection would live on: it is cut later
			f.up = most
		}

		return f
	}
}

// patient opens a sink that gives a call up soon.
func patient(t *testing.T, store string) *clickhouse.Sink {
	t.Helper()
	s, err := clickhouse.Open(store, clickhouse.Options{Timeout: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })
	return s
}

// cutting ships through a proxy that breaks its first connections, n steps of each rank and as many again until all
// have been broken, and returns how many steps it shipped.
func cutting(t *testing.T, p *proxy, sink ship.Sink, cuts, ranks, n int) (steps int) {
	t.Helper()
	s := shipping(t, sink, ship.Options{BatchRows: 500, Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.02 }}, func(ctx context.Context, s *ship.Shipper) {
		for streams := streamsOf(ranks); steps == 0 || p.connections() < cuts; steps += n {
			feed(t, ctx, s, streams, steps, steps+n, 100)
		}
	})
	st := s.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d connections, met %v; %d batches, %d retries, %d doubts resolved", p.n, p.met, st.Batches, st.Retries, st.Doubts)
	if st.Doubts == 0 {
		t.Error("no insert was in doubt: the proxy did not do its work")
	}

	return steps
}

// TestConnectionsCut sends everything through a proxy that breaks connections at
// every kind of byte, leaves them half open, stalls, delays, and loses
// acknowledgements of inserts that were carried out. Each row is stored once. R10.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	cuts, r := scale(t, "LAGGARD_TEST_CUTS", 20), random(t)
	// The server of a half open connection gives it up by itself, a little later.
	server := chtest.StartWith(t, chtest.Options{Profile: "<receive_timeout>1</receive_timeout>"})
	db := server.Database()
	// The set-up goes straight; what is broken is shipping.
	if err := open(t, server.Store(db)).Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := newProxy(t, server.Addr(), faults(r, cuts, 3000, 18000))
	ranks, n := 3, 100*cuts
	n = cutting(t, p, patient(t, p.store(db)), cuts, ranks, n)
	exactly(t, server.Count, db, ranks, n)
}

// TestConnectionsCutOnTheCurrentEngine is the same on ClickHouse 26.7, over HTTP. R10, R32.
func TestConnectionsCutOnTheCurrentEngine(t *testing.T) {
	t.Parallel()
	cuts, r := scale(t, "LAGGARD_TEST_CUTS", 20), random(t)
	engine := chtest.StartEngine(t)
	if err := open(t, "clickhouse://"+engine.Address+"/default?protocol=http&compression=none").Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := newProxy(t, engine.Address, faults(r, cuts, 3000, 40000))
	ranks, n := 2, 100*cuts
	n = cutting(t, p, patient(t, p.store("default")+"?protocol=http&compression=none"), cuts, ranks, n)
	exactly(t, func(query string) uint64 {
		t.Helper()
		text, err := engine.Query(query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}

		number, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}

		return number
	}, "default", ranks, n)
}
