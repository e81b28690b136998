package ship

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laggard/schemas/clickhouse"
	"laggard/schemas/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a sink in memory that fails when it is told to.
type memory struct {
	mu      sync.Mutex
	rows    map[RecordKey]int // how often each record was stored
	order   []RecordKey
	created int
	inserts int
	looks   int
	pings   int
	queries []string
	// fail is called before an insert: an error is returned instead; with stored
	// the rows are stored all the same.
	fail func(b *Batch, n int) (err error, stored bool)
	ping error
	gate chan struct{} // not nil: an insert waits for it
}

func newMemory() *memory { return &memory{rows: map[RecordKey]int{}} }

func (m *memory) Create(context.Context) error { m.created++; return nil }
func (m *memory) Close() error                 { return nil }
func (m *memory) Ping(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pings++
	return m.ping
}

func (m *memory) Insert(ctx context.Context, b *Batch) error {
	if m.gate != nil {
		select {
		case <-m.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.Table == row.LedgerTable {
		return nil
	}
	m.inserts++
	m.queries = append(m.queries, b.Query)
	if m.fail != nil {
		if err, stored := m.fail(b, m.inserts); err != nil {
			if stored {
				m.store(b)
			}
			return err
		}
	}
	m.store(b)
	return nil
}

func (m *memory) store(b *Batch) {
	for i := range b.Records {
		k := KeyOfRecord(&b.Records[i])
		m.rows[k]++
		m.order = append(m.order, k)
	}
}

func (m *memory) Stored(_ context.Context, b *Batch) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	stored := make([]bool, b.Len())
	for i := range b.Records {
		stored[i] = m.rows[KeyOfRecord(&b.Records[i])] > 0
	}
	return stored, nil
}

// once fails unless records 0…n-1 of each segment are stored exactly once.
func (m *memory) once(t *testing.T, segments, n int, but ...RecordKey) {
	t.Helper()
	if want := segments*n - len(but); len(m.rows) != want {
		t.Fatalf("%d rows stored, want %d", len(m.rows), want)
	}
	for k, times := range m.rows {
		if times != 1 || slices.Contains(but, k) {
			t.Fatalf("row %v stored %d times", k, times)
		}
	}
}

// records returns rows [from, to) of a stream, the starts an hour apart so that
// they cross partitions.
func records(segment uint64, from, to int) *row.Rows {
	r := &row.Rows{}
	for i := from; i < to; i++ {
		r.Records = append(r.Records, row.Record{
			Job: "j", Rank: uint32(segment), Segment: segment, Offset: uint64(i), StartNs: int64(i) * 3_600_000_000_000, Seq: uint64(i),
		})
	}
	return r
}

// ship runs a shipper over f and ends it.
func ship(t *testing.T, sink Sink, o Options, f func(ctx context.Context, s *Shipper)) *Shipper {
	t.Helper()
	s, err := New(sink, o)
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

func put(t *testing.T, ctx context.Context, s *Shipper, st *Stream, r *row.Rows, mark any) {
	t.Helper()
	if err := s.Put(ctx, st, r, mark); err != nil {
		t.Fatalf("Put: %v", err)
	}
}

func flush(t *testing.T, ctx context.Context, s *Shipper) {
	t.Helper()
	if err := s.Flush(ctx); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

func TestStoresEachRowOnceAndAcknowledges(t *testing.T) {
	m := newMemory()
	s := ship(t, m, Options{BatchRows: 10}, func(ctx context.Context, s *Shipper) {
		a, b := NewStream("a"), NewStream("b")
		for i := 0; i < 100; i += 7 {
			put(t, ctx, s, a, records(1, i, min(i+7, 100)), i)
			put(t, ctx, s, b, records(2, i, min(i+7, 100)), i)
		}
		flush(t, ctx, s)
		if a.Acked() != 98 || b.Acked() != 98 || a.Pending() != 0 {
			t.Fatalf("Acked() = %v, %v", a.Acked(), b.Acked())
		}
	})
	m.once(t, 2, 100)
	if st := s.Stats(); st.Tables[row.RecordsTable].Inserted != 200 || st.Batches == 0 {
		t.Fatalf("Stats() = %+v", st)
	}
}

func TestFlushIntervalStoresAFewRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		ship(t, m, Options{Flush: 5 * time.Second}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			put(t, ctx, s, st, records(1, 0, 3), 1)
			time.Sleep(4900 * time.Millisecond)
			if st.Acked() != nil {
				t.Fatal("stored before the flush interval")
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if st.Acked() != 1 {
				t.Fatal("not stored after the flush interval")
			}
		})
	})
}

// TestPrefixIsFound ships a stream that the store has a part of: the part is
// looked up and left out, and looking ends once a batch has nothing there.
func TestPrefixIsFound(t *testing.T) {
	for had := 0; had <= 40; had++ {
		m := newMemory()
		for _, b := range Cut(records(1, 0, had)) {
			m.store(b)
		}
		s := ship(t, m, Options{BatchRows: 8}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			for i := 0; i < 40; i += 5 {
				put(t, ctx, s, st, records(1, i, i+5), i)
				flush(t, ctx, s)
			}
		})
		m.once(t, 1, 40)
		if found := s.Stats().Tables[row.RecordsTable].Found; found != uint64(had) {
			t.Fatalf("with %d rows there %d were found", had, found)
		}
		if had == 0 && m.looks > 1 {
			t.Fatalf("%d looks at an empty store", m.looks)
		}
	}
}

// TestDaysOutOfOrder interrupts shipping after each insert, of rows whose days go
// back and forth, and goes on with a new shipper that cuts them otherwise.
func TestDaysOutOfOrder(t *testing.T) {
	all := records(1, 0, 200)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range all.Records {
		all.Records[i].StartNs = r.Int64N(3) * clickhouse.DayNs
	}
	part := func(from, to int) *row.Rows { return &row.Rows{Records: slices.Clone(all.Records[from:to])} }
	for stopAt := 1; stopAt < 40; stopAt++ {
		m := newMemory()
		ctx, cancel := context.WithCancel(t.Context())
		m.fail = func(_ *Batch, n int) (error, bool) {
			if n >= stopAt {
				cancel()
				return errors.New("killed"), n%2 == 0
			}
			return nil, false
		}
		pass := func(ctx context.Context, step int) {
			s, err := New(m, Options{BatchRows: 16})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			inner, stop := context.WithCancel(ctx)
			go func() { done <- s.Run(inner) }()
			st := NewStream("a")
			for i := 0; i < 200; i += step {
				if s.Put(inner, st, part(i, min(i+step, 200)), i) != nil || s.Flush(inner) != nil {
					break
				}
			}
			stop()
			<-done
		}
		pass(ctx, 50)
		cancel()
		m.fail = nil
		pass(t.Context(), 7)
		m.once(t, 1, 200)
	}
}

// TestTransientErrors fails at random, with and without the rows being stored.
func TestTransientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		r := rand.New(rand.NewPCG(7, 7))
		m.fail = func(*Batch, int) (error, bool) {
			switch r.IntN(4) {
			case 0:
				return errors.New("connection reset"), true // the answer was lost
			case 1:
				return &Error{Class: Transient, Err: errors.New("refused")}, false
			case 2:
				return &Error{Class: Transient, Doubt: true, Err: errors.New("timeout")}, false
			}
			return nil, false
		}
		s := ship(t, m, Options{BatchRows: 10}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			for i := range 50 {
				put(t, ctx, s, st, records(1, 10*i, 10*i+10), i)
				flush(t, ctx, s)
			}
		})
		m.once(t, 1, 500)
		st := s.Stats()
		if st.Doubts == 0 || st.Retries == 0 || st.Tables[row.RecordsTable].Inserted != 500 {
			t.Fatalf("Stats() = %+v", st)
		}
		if st.Failing != "" {
			t.Fatalf("failing %q after all was stored", st.LastError)
		}
	})
}

// TestResendKeepsTheQuery: what is sent again after a doubt has the same query id.
func TestResendKeepsTheQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fail = func(b *Batch, n int) (error, bool) {
			if n == 1 {
				m.store(b.slice(0, 3)) // a server that stored a part
				return errors.New("reset"), false
			}
			return nil, false
		}
		ship(t, m, Options{}, func(ctx context.Context, s *Shipper) {
			put(t, ctx, s, NewStream("a"), records(1, 0, 10), 1)
			flush(t, ctx, s)
		})
		m.once(t, 1, 10)
		if len(m.queries) != 2 || m.queries[0] != m.queries[1] {
			t.Fatalf("queries %q", m.queries)
		}
	})
}

// TestRefusedPausesAndGoesOn: a schema error drops nothing, is said once in half a
// minute, and shipping goes on by itself.
func TestRefusedPausesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		bad := true
		m.fail = func(*Batch, int) (error, bool) {
			if bad {
				return &Error{Class: Refused, Err: errors.New("no such table"), Hint: "make it"}, false
			}
			return nil, false
		}
		var log bytes.Buffer
		s := ship(t, m, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(ctx context.Context, s *Shipper) {
			put(t, ctx, s, NewStream("a"), records(1, 0, 10), 1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if st := s.Stats(); st.Failing != "refused" || !strings.Contains(st.LastError, "make it") {
				t.Fatalf("Stats() = %+v", st)
			}
			m.mu.Lock()
			bad = false
			m.mu.Unlock()
			time.Sleep(lastBackoff)
			flush(t, ctx, s)
		})
		m.once(t, 1, 10)
		if st := s.Stats(); st.Tables[row.RecordsTable].Poisoned != 0 {
			t.Fatalf("Stats() = %+v", st)
		}
		if lines := strings.Count(log.String(), "refuses"); lines < 10 || lines > 22 {
			t.Fatalf("%d lines in ten minutes:\n%s", lines, log.String())
		}
		if !strings.Contains(log.String(), "recovered") || m.created < 2 {
			t.Fatalf("no recovery said, or Create not tried again (%d):\n%s", m.created, log.String())
		}
	})
}

// TestBreaker: with the store away for long, only the cheap call is tried.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.ping = errors.New("away")
		m.fail = func(*Batch, int) (error, bool) {
			if m.ping != nil {
				return &Error{Class: Transient, Err: errors.New("away")}, false
			}
			return nil, false
		}
		ship(t, m, Options{}, func(ctx context.Context, s *Shipper) {
			put(t, ctx, s, NewStream("a"), records(1, 0, 10), 1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			m.mu.Lock()
			if m.inserts > openAfter || m.pings < 10 || m.pings > 200 {
				t.Fatalf("%d inserts, %d pings in ten minutes", m.inserts, m.pings)
			}
			m.ping = nil
			m.mu.Unlock()
			time.Sleep(lastBackoff)
			flush(t, ctx, s)
		})
		m.once(t, 1, 10)
	})
}

func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fail = func(*Batch, int) (error, bool) {
			return &Error{Class: Transient, Err: errors.New("away")}, false
		}
		s, err := New(m, Options{GiveUp: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		put(t, t.Context(), s, NewStream("a"), records(1, 0, 10), 1)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "away") {
			t.Fatalf("Run() = %v", err)
		}
	})
}

// TestPoison: one bad row in 4096 costs about 2 log2 n inserts, is kept with its
// reason, and the rest is stored; the next shipper knows it.
func TestPoison(t *testing.T) {
	dir := t.TempDir()
	bad := RecordKey{1, 1234}
	m := newMemory()
	m.fail = func(b *Batch, _ int) (error, bool) {
		for i := range b.Records {
			if KeyOfRecord(&b.Records[i]) == bad {
				return &Error{Class: Poison, Err: errors.New("value 13 brings bad luck")}, false
			}
		}
		return nil, false
	}
	all := func() *row.Rows {
		r := records(1, 0, 4096)
		for i := range r.Records {
			r.Records[i].StartNs = 5
			r.Records[i].Group = "g\"\xff"
		}
		return r
	}
	letters := filepath.Join(dir, "state", "dead-letters.jsonl")
	for round := range 2 {
		m.inserts = 0
		s := ship(t, m, Options{DeadLetters: letters}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			put(t, ctx, s, st, all(), 1)
			flush(t, ctx, s)
			if st.Acked() != 1 {
				t.Fatal("poison stops the stream")
			}
		})
		m.once(t, 1, 4096, bad)
		if round == 0 && (m.inserts > 40 || s.Stats().Tables[row.RecordsTable].Poisoned != 1) {
			t.Fatalf("%d inserts, %+v", m.inserts, s.Stats().Tables)
		}
		if round == 1 && m.inserts != 0 {
			t.Fatalf("%d inserts in the second round", m.inserts)
		}
	}
	f, err := os.Open(letters)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []letter
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var l letter
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 1 || lines[0].Reason != "value 13 brings bad luck" || !strings.Contains(string(lines[0].Row), `"offset":1234`) {
		t.Fatalf("dead letters %+v", lines)
	}
}

// TestNothingButPoison does not cost an insert a row.
func TestNothingButPoison(t *testing.T) {
	m := newMemory()
	m.fail = func(*Batch, int) (error, bool) { return &Error{Class: Poison, Err: errors.New("no")}, false }
	s := ship(t, m, Options{}, func(ctx context.Context, s *Shipper) {
		put(t, ctx, s, NewStream("a"), records(1, 0, 20000), 1)
		flush(t, ctx, s)
	})
	if st := s.Stats().Tables[row.RecordsTable]; st.Poisoned != 20000 || m.inserts > 2000 {
		t.Fatalf("%+v with %d inserts", st, m.inserts)
	}
}

// TestMemoryIsBounded: with the store standing still, Put takes no more than the
// bound, and goes on when it moves again.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.gate = make(chan struct{})
		one := Size(records(1, 0, 100))
		ship(t, m, Options{Memory: 5 * one, BatchRows: 100}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			var taken int
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range 20 {
					if s.Put(ctx, st, records(1, 100*i, 100*i+100), i) != nil {
						return
					}
					taken++
				}
			}()
			synctest.Wait()
			if taken != 5 {
				t.Errorf("%d puts taken, want 5", taken)
			}
			close(m.gate)
			<-done
			flush(t, ctx, s)
		})
		m.once(t, 1, 2000)
	})
}

func TestPutGivesUpWithItsContext(t *testing.T) {
	s, err := New(newMemory(), Options{Memory: 1000})
	if err != nil {
		t.Fatal(err)
	}
	st := NewStream("a")
	if err := s.Put(t.Context(), st, records(1, 0, 100), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, st, records(1, 100, 200), 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("Put() = %v", err)
	}
	if st.Pending() != 1 {
		t.Fatalf("%d puts pending", st.Pending())
	}
}

func TestConflicts(t *testing.T) {
	of := func(job, table string, ranks ...uint32) *Batch {
		b := &Batch{Table: table, Job: job}
		for _, r := range ranks {
			if table == row.StepsTable {
				b.Steps = append(b.Steps, row.Step{Job: job, Rank: r})
			} else {
				b.Records = append(b.Records, row.Record{Job: job, Rank: r})
			}
		}
		b.seal()
		return b
	}
	many := []uint32{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}
	b := of("j", row.StepsTable, 0, 1, 2, 3)
	for other, want := range map[*Batch]bool{
		of("j", row.StepsTable, 3):               true,
		of("j", row.StepsTable, 4, 9):            false,
		of("j", row.StepsTable, 7, 2):            true,
		of("j", row.StepsTable, many...):         true,
		of("j", row.RecordsTable, 3):             false,
		of("k", row.StepsTable, 3):               false,
		{Query: "SELECT 1"}:                      false,
		{Query: "laggard-odd"}:                   false,
		{Query: of("j", "steps", 3).Query + "x"}: true,
	} {
		if got := b.Conflicts(other.Query); got != want {
			t.Errorf("Conflicts(%q) = %t, want %t", other.Query, got, want)
		}
	}
}

// TestIdIsContent: the same rows make the same id in every batch, others another.
func TestIdIsContent(t *testing.T) {
	ids := map[string]string{}
	for i := range 100 {
		b := Cut(&row.Rows{Records: records(1, i, i+1).Records})[0]
		again := Cut(&row.Rows{Records: records(1, i, i+1).Records})[0]
		if b.ID != again.ID || b.Query != again.Query {
			t.Fatal("the same rows have two ids")
		}
		if other, ok := ids[b.ID.String()]; ok {
			t.Fatalf("rows %s and %d share an id", other, i)
		}
		ids[b.ID.String()] = fmt.Sprint(i)
	}
}

func TestRowJSON(t *testing.T) {
	b := Cut(&row.Rows{Ranks: []row.Rank{{Job: "j", Groups: []string{"a"}, GroupRanks: [][]uint32{{1}}, Incarnation: 1<<64 - 1}}})[0]
	var object map[string]any
	if err := json.Unmarshal(b.RowJSON(0), &object); err != nil {
		t.Fatal(err)
	}
	if keys := len(slices.Collect(maps.Keys(object))); keys != 16 || object["job"] != "j" {
		t.Fatalf("RowJSON() = %s", b.RowJSON(0))
	}
}
