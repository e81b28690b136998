package ship

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a sink in memory that fails when it is told to.
type memory struct {
	Sink     // nil: Sums and Tally are not asked for
	mu       sync.Mutex
	rows     map[RecordKey]int // how often each record was stored
	order    []RecordKey
	created  int
	inserts  int
	looks    int
	pings    int
	queries  []string
	accounts map[time.Time]uint64 // when they were inserted, and of how many records
	// fail is called before an insert: an error is returned instead; with stored
	// the rows are stored all the same.
	fail func(b *Batch, n int) (err error, stored bool)
	ping error
	gate chan struct{} // not nil: an insert waits for it
}

func (m *memory) Create(context.Context) error { m.created++; return nil }

func (m *memory) Name() string { return "memory" }

func (m *memory) Probe(context.Context) error { return nil }

func (m *memory) Close() error { return nil }

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
		for i := range b.Ledger {
			m.accounts[time.Now()] += b.Ledger[i].Records
		}

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
	if b.Table != row.RecordsTable {
		return
	}

	for i := range b.Len() {
		k := KeyOfRaw(&b.Raws.Rows[i])
		m.rows[k]++
		m.order = append(m.order, k)
	}
}

func (m *memory) Stored(_ context.Context, b *Batch) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	stored := make([]bool, b.Len())
	if b.Table != row.RecordsTable {
		return stored, nil
	}

	for i := range stored {
		stored[i] = m.rows[KeyOfRaw(&b.Raws.Rows[i])] > 0
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

func newMemory() *memory { return &memory{rows: map[RecordKey]int{}, accounts: map[time.Time]uint64{}} }

// records returns rows [from, to) of a stream, the starts an hour apart so that
// they cross partitions.
func records(segment uint64, from, to int) *row.Rows {
	var all []row.Record
	for i := from; i < to; i++ {
		all = append(all, row.Record{
			Job: "j", Rank: uint32(segment), Segment: segment, Offset: uint64(i), StartNs: int64(i) * 3_600_000_000_000, Seq: uint64(i),
		})
	}

	return &row.Rows{Raws: row.Pack(all...)}
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
