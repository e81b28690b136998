package ship

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

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
	for i := range all.Raws.Rows {
		all.Raws.Rows[i].StartNs = r.Int64N(3) * clickhouse.DayNs
	}

	part := func(from, to int) *row.Rows {
		return &row.Rows{Raws: row.Raws{Rows: slices.Clone(all.Raws.Rows[from:to]), Words: all.Raws.Words}}
	}
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
