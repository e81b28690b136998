package ship

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TableStats counts the rows of one table since the shipper was made.
type TableStats struct {
	Inserted uint64 // stored by us
	Found    uint64 // the store had them already
	Poisoned uint64 // refused by the store, kept as dead letters
}

// Stats is what metrics show.
type Stats struct {
	Tables  map[string]TableStats
	Batches uint64 // inserts that were acknowledged
	Looks   uint64 // questions which rows the store has
	Doubts  uint64 // of these, after an insert that was not acknowledged
	Retries uint64 // failed calls
	// Uncopied rounds of inserts wait for a second copy; Singles went on without.
	Uncopied, Singles uint64
	// Reached is that the store was reached: its tables are there, and it takes rows.
	Reached bool
	// Failing is the class of the failure that lasts, "" when the store answers.
	Failing   string
	LastError string
	FailingAt time.Time // since when
	LastAck   time.Time // zero before the first
	// PendingRows and PendingBytes wait for the next round.
	PendingRows  int
	PendingBytes int64
}

// tableIndex orders the counters.
var tableIndex = map[string]int{
	row.RanksTable: 0, row.StepsTable: 1, row.CommunicationsTable: 2,
	row.RecordsTable: 3, row.VerdictsTable: 4, row.LedgerTable: 5,
}

type stats struct {
	tables                          [6]struct{ inserted, found, poisoned atomic.Uint64 }
	batches, looks, doubts, retries atomic.Uint64
	uncopied, singles               atomic.Uint64
	lastAck                         atomic.Int64
	reached                         atomic.Bool

	mu      sync.Mutex
	failing *Error    // guarded by mu
	since   time.Time // guarded by mu
}

func (s *stats) inserted(table string, n int) { s.tables[tableIndex[table]].inserted.Add(uint64(n)) }
func (s *stats) found(table string, n int)    { s.tables[tableIndex[table]].found.Add(uint64(n)) }
func (s *stats) poisoned(table string, n int) { s.tables[tableIndex[table]].poisoned.Add(uint64(n)) }

func (s *stats) fail(e *Error, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing == nil {
		s.since = at
	}

	s.failing = e
}

func (s *stats) ok() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = nil
}

// Stats returns the counters.
func (s *Shipper) Stats() Stats {
	st := Stats{
		Tables: map[string]TableStats{}, Batches: s.stats.batches.Load(), Looks: s.stats.looks.Load(),
		Doubts: s.stats.doubts.Load(), Retries: s.stats.retries.Load(), Reached: s.stats.reached.Load(),
		Uncopied: s.stats.uncopied.Load(), Singles: s.stats.singles.Load(),
	}
	for table, i := range tableIndex {
		t := &s.stats.tables[i]
		st.Tables[table] = TableStats{t.inserted.Load(), t.found.Load(), t.poisoned.Load()}
	}

	if ns := s.stats.lastAck.Load(); ns != 0 {
		st.LastAck = time.Unix(0, ns)
	}

	s.stats.mu.Lock()
	if e := s.stats.failing; e != nil {
		st.Failing, st.LastError, st.FailingAt = e.Class.String(), e.Error(), s.stats.since
	}

	s.stats.mu.Unlock()
	s.mu.Lock()
	st.PendingRows, st.PendingBytes = s.rows, s.bytes
	s.mu.Unlock()
	return st
}
