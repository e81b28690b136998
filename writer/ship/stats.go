package ship

import (
	"maps"
	"time"
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

// count changes the counters.
func (s *Shipper) count(f func(*Stats)) {
	s.countMu.Lock()
	defer s.countMu.Unlock()
	f(&s.stats)
}

// countTable changes the counters of a table.
func (s *Shipper) countTable(name string, f func(*TableStats)) {
	s.count(func(st *Stats) {
		t := st.Tables[name]
		f(&t)
		st.Tables[name] = t
	})
}

// Stats returns the counters.
func (s *Shipper) Stats() (st Stats) {
	s.count(func(now *Stats) {
		st = *now
		st.Tables = maps.Clone(now.Tables)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	st.PendingRows = s.rows
	return st
}
