package clickhouse_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laggard/schemas/row"
	"laggard/writer/clickhouse"
	"laggard/writer/clickhouse/chtest"
	"laggard/writer/ship"
	"laggard/writer/ship/shiptest"
)

// scale returns a number from the environment, for the long forms of tests.
func scale(t testing.TB, name string, short int) int {
	t.Helper()
	n := short
	if text := os.Getenv(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	t.Logf("scale: %d (%s)", n, name)
	return n
}

// random returns a generator whose seed is printed and can be set.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := scale(t, "LAGGARD_TEST_SEED", int(time.Now().UnixNano()&0xffffff))
	return rand.New(rand.NewPCG(uint64(seed), 1))
}

// hooked tells when an insert begins.
type hooked struct {
	*clickhouse.Sink
	begins chan struct{}
}

func (h *hooked) Insert(ctx context.Context, b *ship.Batch) error {
	select {
	case h.begins <- struct{}{}:
	default:
	}
	return h.Sink.Insert(ctx, b)
}

// shipping runs a shipper into sink while f feeds it.
func shipping(t *testing.T, sink ship.Sink, o ship.Options, f func(ctx context.Context, s *ship.Shipper)) *ship.Shipper {
	t.Helper()
	s, err := ship.New(sink, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f(ctx, s)
	stop()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
	return s
}

// feed puts n steps (and their records) of each rank, in portions.
func feed(t *testing.T, ctx context.Context, s *ship.Shipper, ranks, n, portion int) {
	t.Helper()
	streams := make([]*ship.Stream, ranks)
	for r := range streams {
		streams[r] = ship.NewStream(strconv.Itoa(r))
	}
	for i := 0; i < n; i += portion {
		for r := range streams {
			if err := s.Put(ctx, streams[r], shiptest.Rows("j", uint32(r), i, min(portion, n-i)), i); err != nil {
				t.Fatalf("Put: %v", err)
			}
		}
	}
	flushing, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.Flush(flushing); err != nil {
		t.Fatalf("Flush: %v; %+v", err, s.Stats())
	}
}

// exactly checks by count and by sequence that each of the rows is stored once.
func exactly(t *testing.T, server *chtest.Server, db string, ranks, n int) {
	t.Helper()
	all := uint64(ranks * n)
	sum := uint64(ranks) * uint64(n) * uint64(n-1) / 2
	for query, want := range map[string]uint64{
		"SELECT count() FROM %s.records":                                         all,
		"SELECT uniqExact(segment, offset) FROM %s.records":                      all,
		"SELECT sum(seq) FROM %s.records":                                        sum,
		"SELECT count() FROM %s.steps":                                           all,
		"SELECT uniqExact(rank, incarnation, step) FROM %s.steps":                all,
		"SELECT sum(step) FROM %s.steps":                                         sum,
		"SELECT count() FROM %s.communications":                                  uint64(ranks * 2 * ((n + row.Window - 1) / row.Window)),
		"SELECT uniqExact(rank) FROM %s.ranks":                                   uint64(ranks),
		"SELECT toUInt64(uniqExact(rank, step_from, op)) FROM %s.communications": uint64(ranks * 2 * ((n + row.Window - 1) / row.Window)),
	} {
		query = fmt.Sprintf(query, db)
		if got := server.Count(query); got != want {
			t.Errorf("%s = %d, want %d", query, got, want)
		}
	}
}

// TestServerKilled kills the server (SIGKILL) at random moments of inserts, again
// and again: each row is stored once. R9.
func TestServerKilled(t *testing.T) {
	kills, r := scale(t, "LAGGARD_TEST_KILLS", 20), random(t)
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
		feed(t, ctx, s, ranks, n, 50)
	})
	close(stop)
	st := s.Stats()
	t.Logf("%d kills, %d batches, %d retries, %d doubts resolved", <-killed, st.Batches, st.Retries, st.Doubts)
	exactly(t, server, db, ranks, n)
}

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

// TestServerStalls stops the server (SIGSTOP) in the middle of shipping for longer
// than a call may last.
func TestServerStalls(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	plain, err := clickhouse.Open(t.Context(), server.Store(db), clickhouse.Options{Timeout: 300 * time.Millisecond})
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
		feed(t, ctx, s, 2, 4000, 100)
	})
	<-done
	if s.Stats().Retries == 0 {
		t.Error("nothing failed: the server did not stall")
	}
	exactly(t, server, db, 2, 4000)
}

// TestMillionRows ships a million records and checks them by count and sequence.
func TestMillionRows(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	began := time.Now()
	shipping(t, open(t, server.Store(db)), ship.Options{}, func(ctx context.Context, s *ship.Shipper) {
		streams := []*ship.Stream{ship.NewStream("0"), ship.NewStream("1"), ship.NewStream("2"), ship.NewStream("3")}
		const portion = 12500
		for i := 0; i < 250_000; i += portion {
			for r, st := range streams {
				rows := s.Rows()
				for k := range portion {
					seq := i + k
					rows.Records = append(rows.Records, row.Record{
						Job: "j", Rank: uint32(r), Incarnation: 7, Node: "node-0", Kind: "Communication", Step: int64(seq / 500), StartNs: shiptest.Base + int64(seq)*1000,
						DurNs: 5000, Side: "device", ExposedNs: -1, Ring: 2, Seq: uint64(seq), Op: "allreduce", Group: "dp0", Peer: -1,
						Count: 1 << 20, Dtype: "bf16", Bytes: 1 << 21, Segment: uint64(r), Offset: uint64(160 * seq),
					})
				}
				if err := s.Put(ctx, st, rows, i); err != nil {
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

// TestPoisonRow has one row in many that an expression of the table refuses. R13.
func TestPoisonRow(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	sink := open(t, server.Store(db))
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Exec("ALTER TABLE " + db + ".records ADD COLUMN bad Int64 MATERIALIZED intDiv(1000, dur_ns - 13)")
	letters := filepath.Join(t.TempDir(), "dead.jsonl")
	n := scale(t, "LAGGARD_TEST_POISON_ROWS", 20_000)
	for round := range 2 {
		s := shipping(t, sink, ship.Options{DeadLetters: letters}, func(ctx context.Context, s *ship.Shipper) {
			rows := shiptest.Rows("j", 0, 0, n)
			for i := range rows.Records {
				rows.Records[i].StartNs = shiptest.Base
			}
			rows.Records[n/3].DurNs = 13
			if err := s.Put(ctx, ship.NewStream("0"), rows, 1); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		})
		st := s.Stats()
		if poisoned := st.Tables[row.RecordsTable].Poisoned; poisoned != uint64(1-round) {
			t.Fatalf("round %d: %d rows poisoned", round, poisoned)
		}
		if st.Batches > 60 {
			t.Fatalf("%d inserts", st.Batches)
		}
		if got := server.Count("SELECT count() FROM " + db + ".records"); got != uint64(n-1) {
			t.Fatalf("round %d: %d records, want %d", round, got, n-1)
		}
	}
	text, err := os.ReadFile(letters)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 1 || !strings.Contains(string(text), `"dur_ns":13`) {
		t.Fatalf("dead letters:\n%s", text)
	}
}

// TestSchemaBroken drops a column under the shipper: nothing is lost, and the
// column is made again by itself. R12.
func TestSchemaBroken(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	shipping(t, open(t, server.Store(db)), ship.Options{Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.1 }}, func(ctx context.Context, s *ship.Shipper) {
		st := ship.NewStream("0")
		for i := range 4 {
			if err := s.Put(ctx, st, shiptest.Rows("j", 0, 500*i, 500), i); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			server.Exec("ALTER TABLE " + db + ".records DROP COLUMN tokens")
		}
	})
	exactly(t, server, db, 1, 2000)
}

// TestPassword: a wrong one is said with what to do, a corrected one is taken
// without a restart. R11.
func TestPassword(t *testing.T) {
	server := chtest.StartWith(t, chtest.Options{Password: "right"})
	db := server.Database()
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-secret")
	var log bytes.Buffer
	sink := open(t, server.Store(db)+"?password_file="+file)
	err := sink.Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "password_file") || strings.Contains(err.Error(), "wrong-secret") {
		t.Fatalf("Ping() = %v", err)
	}
	shipping(t, sink, ship.Options{Flush: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)), Jitter: func() float64 { return 0.1 }}, func(ctx context.Context, s *ship.Shipper) {
		st := ship.NewStream("0")
		if err := s.Put(ctx, st, shiptest.Rows("j", 0, 0, 100), 1); err != nil {
			t.Fatal(err)
		}
		for s.Stats().Failing != "refused" {
			<-time.After(5 * time.Millisecond)
		}
		write("right")
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if text := log.String(); !strings.Contains(text, "refuses") || !strings.Contains(text, "recovered") || strings.Contains(text, "wrong-secret") {
		t.Fatalf("log:\n%s", text)
	}
	if got := server.Count("SELECT count() FROM " + db + ".steps"); got != 100 {
		t.Fatalf("%d steps", got)
	}
}

// TestErrorsNameObjectCauseRemedy: what a person sees when a store can't be used.
func TestErrorsNameObjectCauseRemedy(t *testing.T) {
	server := chtest.Start(t)
	for name, c := range map[string]struct {
		store string
		words []string
	}{
		"connection_refused":  {"clickhouse://127.0.0.1:1/x", []string{"127.0.0.1:1", "connection refused", "start the server"}},
		"no_database":         {server.Store("nowhere"), []string{"nowhere", "create the database"}},
		"tls_to_a_plain_port": {server.Store("default") + "?secure=true", []string{server.Addr(), "server_name"}},
		"wrong_user":          {strings.Replace(server.Store("default"), "://", "://eve@", 1), []string{"eve", "user in the store URL"}},
	} {
		err := open(t, c.store).Create(t.Context())
		for _, word := range c.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want a word on %q", name, err, word)
			}
		}
	}
	if _, err := clickhouse.Open(t.Context(), "clickhouse://h/d?ca=/nowhere&secure=1", clickhouse.Options{}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a CA that is not there: %v", err)
	}
}
