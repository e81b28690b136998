package ship

import (
	"maps"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
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
	Doubts  uint64 // questions which rows the store has, after an insert that was not acknowledged
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
	// PendingRows wait for the next round.
	PendingRows int
}

// stats are the counters while they change.
type stats struct {
	mu  sync.Mutex
	now Stats // guarded by mu
}

func newStats() *stats {
	s := &stats{now: Stats{Tables: map[string]TableStats{}}}
	for _, table := range clickhouse.Tables {
		s.now.Tables[table] = TableStats{}
	}

	return s
}

// change changes the counters.
func (s *stats) change(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.now)
}

// table changes the counters of a table.
func (s *stats) table(name string, f func(*TableStats)) {
	s.change(func(st *Stats) {
		t := st.Tables[name]
		f(&t)
		st.Tables[name] = t
	})
}

// fail counts a failed call.
func (s *stats) fail(e *Error, at time.Time) {
	s.change(func(st *Stats) {
		st.Retries++
		if st.Failing == "" {
			st.FailingAt = at
		}

		st.Failing, st.LastError = e.Class.String(), e.Error()
	})
}

// ok ends what lasted.
func (s *stats) ok() {
	s.change(func(st *Stats) { st.Failing, st.LastError, st.FailingAt = "", "", time.Time{} })
}

// Stats returns the counters.
func (s *Shipper) Stats() (st Stats) {
	s.stats.change(func(now *Stats) {
		st = *now
		st.Tables = maps.Clone(now.Tables)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	st.PendingRows = s.rows
	return st
}
