package ship

import (
	"sync"

	"github.com/laggard-dev/laggard/schemas/row"
)

// pool holds bundles of rows between their uses, so that a pass keeps within the memory that its user
// allows: a sync.Pool forgets bundles at a collection. The zero value is empty.
type pool struct {
	mu   sync.Mutex
	free []*row.Rows // guarded by mu
	held int64       // guarded by mu: bytes of their capacity
}

// maxFree bounds the bundles that are kept: two large ones wait while a third is
// stored and a fourth filled. Small ones, not quite full, are as many as make a batch.
const maxFree = 4

// Rows returns an empty bundle for the next Put, with the memory of an earlier one.
func (s *Shipper) Rows() *row.Rows {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	n := len(s.pool.free)
	if n == 0 {
		return &row.Rows{}
	}

	r := s.pool.free[n-1]
	s.pool.free = s.pool.free[:n-1]
	s.pool.held -= room(r)
	return r
}

// Recycle takes back a bundle that was not put.
func (s *Shipper) Recycle(r *row.Rows) {
	*r = row.Rows{
		Ranks: emptied(r.Ranks), Steps: emptied(r.Steps), Communications: emptied(r.Communications),
		Raws: row.Raws{Rows: r.Raws.Rows[:0]}, Verdicts: emptied(r.Verdicts), Ledger: emptied(r.Ledger),
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if n := room(r); len(s.pool.free) < maxFree || s.pool.held+n <= s.o.BatchBytes+s.o.BatchBytes/4 {
		s.pool.free = append(s.pool.free, r)
		s.pool.held += n
	}
}

// emptied is the memory of rows without what they refer to.
func emptied[T any](rows []T) []T {
	clear(rows)
	return rows[:0]
}

// room is the bytes that the raw rows of a bundle may take.
func room(r *row.Rows) int64 { return int64(cap(r.Raws.Rows)) * rawBytes }
