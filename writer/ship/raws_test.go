package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// literate is a memory that holds raw rows to their words.
type literate struct {
	*memory
	batches int // of raw rows
}

func (l *literate) Insert(ctx context.Context, b *Batch) error {
	if len(b.Raws.Rows) > 0 {
		l.batches++
	}

	for i := range b.Raws.Rows {
		if r := b.Raws.Record(i); r.Op != fmt.Sprint("op", r.Segment) || r.Node != "node-1" || r.Job != "j" {
			return fmt.Errorf("row %+v has other words", r)
		}
	}

	return l.memory.Insert(ctx, b)
}

// wordyRows are rows [0, n) of a segment, of one day but for the last late ones.
func wordyRows(segment uint64, n, late int) *row.Rows {
	var words record.Words
	r := &row.Rows{}
	words.Add(fmt.Sprint("word of segment ", segment))
	for i := range n {
		one := row.Record{Job: "j", Rank: 4, Node: "node-1", Op: fmt.Sprint("op", segment), Segment: segment, Offset: uint64(i), StartNs: int64(i)}
		if i >= n-late {
			one.StartNs += clickhouse.DayNs
		}

		r.Raws.Rows = append(r.Raws.Rows, row.PackInto(&words, &one))
	}

	r.Raws.Words = words.List()
	return r
}

// manyRows are enough for a batch of their own.
const manyRows = 32 << 10

// TestRaws: raw rows reach the sink with their words, of one stream or merged, each batch
// of one partition and under the id of the same rows with words numbered otherwise.
func TestRaws(t *testing.T) {
	m := &literate{memory: newMemory()}
	ship(t, m, Options{Flush: time.Hour}, func(ctx context.Context, s *Shipper) {
		st, other := NewStream("a"), NewStream("b")
		put(t, ctx, s, st, wordyRows(1, manyRows, 0), 1)
		flush(t, ctx, s)
		if m.batches != 1 || st.Acked() != 1 {
			t.Fatalf("%d batches, acked %v", m.batches, st.Acked())
		}

		put(t, ctx, s, st, wordyRows(2, 5000, 0), 2)
		put(t, ctx, s, other, wordyRows(3, manyRows-5001, 7), 3) // the last seven are of the next day
		flush(t, ctx, s)
		if m.batches != 3 || st.Acked() != 2 || other.Acked() != 3 {
			t.Fatalf("%d batches, acked %v and %v", m.batches, st.Acked(), other.Acked())
		}
	})
	if want := 2*manyRows - 1; len(m.rows) != want {
		t.Fatalf("%d rows stored, want %d", len(m.rows), want)
	}

	again := newMemory()
	ship(t, again, Options{}, func(ctx context.Context, s *Shipper) {
		rows := wordyRows(1, manyRows, 0)
		rows.Raws = row.Pack(rows.Raws.AppendTo(nil)...)
		put(t, ctx, s, NewStream("a"), rows, 1)
		flush(t, ctx, s)
	})
	if again.queries[0] != m.queries[0] {
		t.Fatalf("query %s, then %s of the same rows", m.queries[0], again.queries[0])
	}
}

// TestWholePartAtOnce: rows that are a round of their own wait for no others.
func TestWholePartAtOnce(t *testing.T) {
	m := &literate{memory: newMemory()}
	inserted := make(chan int, 2)
	m.fail = func(b *Batch, _ int) (error, bool) {
		inserted <- b.Len()
		return nil, false
	}
	ship(t, m, Options{Flush: time.Hour, BatchRows: manyRows}, func(ctx context.Context, s *Shipper) {
		st := NewStream("a")
		put(t, ctx, s, st, wordyRows(1, 10, 0), 1)
		put(t, ctx, s, st, wordyRows(2, manyRows, 0), 2)
		for _, want := range []int{10, manyRows} {
			if n := <-inserted; n != want {
				t.Errorf("a batch of %d rows, want %d", n, want)
			}
		}
	})
}

// TestRawsOnce: what is stored is left out, what is in doubt is looked up, a poison row
// is found, and all rows keep their words.
func TestRawsOnce(t *testing.T) {
	bad := RecordKey{1, 777}
	m := &literate{memory: newMemory()}
	for i := range uint64(500) {
		m.rows[RecordKey{1, i}] = 1
	}

	lost := false
	m.fail = func(b *Batch, _ int) (error, bool) {
		for i := range b.Raws.Rows {
			if KeyOfRaw(&b.Raws.Rows[i]) == bad {
				return &Error{Class: Poison, Err: errors.New("value 13 brings bad luck")}, false
			}
		}

		if !lost {
			lost = true
			return errors.New("connection reset"), true
		}

		return nil, false
	}
	letters := filepath.Join(t.TempDir(), "letters.jsonl")
	ship(t, m, Options{DeadLetters: letters, Jitter: func() float64 { return 0 }}, func(ctx context.Context, s *Shipper) {
		st := NewStream("a")
		put(t, ctx, s, st, wordyRows(1, manyRows, 0), 1)
		flush(t, ctx, s)
		if got := s.Stats().Tables[row.RecordsTable]; got.Found != 500 || got.Poisoned != 1 {
			t.Fatalf("%+v", got)
		}
	})
	m.once(t, 1, manyRows, bad)
	if !lost {
		t.Fatal("no acknowledgement was lost")
	}

	text, err := os.ReadFile(letters)
	if err != nil || !bytes.Contains(text, []byte("op1")) || !bytes.Contains(text, []byte(`"offset":777`)) {
		t.Fatalf("dead letter %s, %v", text, err)
	}
}
