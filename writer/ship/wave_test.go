package ship

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// parallel is a memory that takes batches of several tables at once: an insert waits
// until the first of each of its tables has come.
type parallel struct {
	*memory
	tables int
	come   chan string
	open   chan struct{}
}

func (*parallel) TablesAtOnce() bool { return true }

func (p *parallel) Insert(ctx context.Context, b *Batch) error {
	if b.Table != row.LedgerTable {
		select {
		case p.come <- b.Table:
		case <-p.open:
		}
		select {
		case <-p.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.memory.Insert(ctx, b)
}

// all lets the inserts go on when every table's is under way.
func (p *parallel) all(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for len(seen) < p.tables {
		select {
		case table := <-p.come:
			if seen[table] {
				t.Errorf("two batches of %s at once", table)
			}
			seen[table] = true
		case <-time.After(20 * time.Second):
			t.Errorf("only %v are inserted at once, want %d tables", seen, p.tables)
			close(p.open)
			return
		}
	}
	close(p.open)
}

// TestTablesAtOnce: the tables of a round are inserted at once, the batches of one after
// the other, and one whose acknowledgement is lost is looked up while the others stay
// stored once.
func TestTablesAtOnce(t *testing.T) {
	p := &parallel{memory: newMemory(), tables: 3, come: make(chan string), open: make(chan struct{})}
	lost := false
	p.fail = func(b *Batch, _ int) (error, bool) {
		if b.Table == row.RecordsTable && !lost {
			lost = true
			return errors.New("connection reset"), true
		}
		return nil, false
	}
	const n = 40 // of two days: two batches of records
	s := ship(t, p, Options{Flush: time.Hour, Jitter: func() float64 { return 0 }}, func(ctx context.Context, s *Shipper) {
		st := NewStream("a")
		rows := records(1, 0, n)
		rows.Steps = []row.Step{{Job: "j", Rank: 1, Step: 7}}
		rows.Communications = []row.Communication{{Job: "j", Rank: 1, StepTo: 7}}
		put(t, ctx, s, st, rows, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.all(t)
		}()
		flush(t, ctx, s)
		<-done
		if st.Acked() != 1 {
			t.Errorf("acked %v", st.Acked())
		}
	})
	p.once(t, 1, n)
	stats := s.Stats().Tables
	for table, want := range map[string]uint64{row.RecordsTable: n, row.StepsTable: 1, row.CommunicationsTable: 1} {
		if got := stats[table]; got.Inserted != want {
			t.Errorf("%s: %+v, want %d inserted", table, got, want)
		}
	}
	if !lost {
		t.Error("no acknowledgement was lost")
	}
}
