package ship

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// storeAll stores batches one after the other: each is looked up when those before it
// are stored.
func (s *Shipper) storeAll(ctx context.Context, batches []*Batch) error {
	for _, c := range batches {
		b, err := s.sift(ctx, c)
		if err != nil {
			return err
		}

		if b.Len() == 0 {
			continue
		}

		if err := s.insert(ctx, b); err != nil {
			return err
		}
	}

	return nil
}

// sift returns what of a batch is to be inserted. The store is asked what it has of a batch in which
// a stream is not past what was there.
func (s *Shipper) sift(ctx context.Context, c *Batch) (*Batch, error) {
	c.Unplaced = c.back || slices.ContainsFunc(c.streams, func(st *Stream) bool { return !st.look(c.Table).done })
	if !c.Unplaced {
		return c, nil
	}

	stored, err := s.stored(ctx, c)
	if err != nil {
		return nil, err
	}

	s.recovered()
	had := slices.Contains(stored, true)
	for _, st := range c.streams {
		l := st.look(c.Table)
		l.asked, l.had = true, l.had || had
	}

	if err := s.complete(ctx, c, stored); err != nil {
		return nil, err
	}

	rest := c.missing(stored)
	s.countTable(c.Table, func(t *TableStats) { t.Found += uint64(c.Len() - rest.Len()) })
	return rest, nil
}

// stored asks the sink, for as long as it takes, and adds the dead rows.
func (s *Shipper) stored(ctx context.Context, b *Batch) ([]bool, error) {
	var stored []bool
	err := s.until(ctx, "look up "+b.Table, func() error {
		var err error
		stored, err = s.sink.Stored(ctx, b)
		if err == nil && len(stored) != b.Len() {
			return fmt.Errorf("BUG: the store answered for %d of %d rows", len(stored), b.Len())
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	for i := range stored {
		stored[i] = stored[i] || s.dead.has(b.Table, b.sum(i))
	}

	return stored, nil
}

// insert stores a batch through whatever goes wrong.
func (s *Shipper) insert(ctx context.Context, b *Batch) error {
	for {
		over, doubt, err := s.outcome(ctx, b, s.sink.Insert(ctx, b))
		if over || err != nil {
			return err
		}

		if !doubt {
			continue
		}

		// A part of it may be there.
		if b, err = s.resolve(ctx, b); err != nil {
			return err
		}

		if b.Len() == 0 {
			s.recovered()
			return nil
		}
	}
}

// outcome deals with what an insert of b came to. over is that nothing is left to do:
// b is stored, or refused and kept. Else it is to be tried again, and doubt says that a
// part of it may be there already.
func (s *Shipper) outcome(ctx context.Context, b *Batch, failed error) (over, doubt bool, err error) {
	if failed == nil {
		s.recovered()
		s.done(b)
		return true, false, nil
	}

	if ctx.Err() != nil {
		return false, false, ctx.Err()
	}

	e := classify(failed)
	if e.Class == Poison {
		return true, false, s.bisect(ctx, b, e.Doubt, e)
	}

	if err := s.wait(ctx, "insert into "+b.Table, e); err != nil {
		return false, false, err
	}

	if e.Class == Refused {
		// What was refused may be missing; a failure shows at the next insert.
		if err := s.sink.Create(ctx); err != nil {
			s.o.Logger.Debug("create tables", "err", err)
		}
	}

	return false, e.Doubt, nil
}

// resolve ends a doubt: it looks which rows of b an insert that was not
// acknowledged has stored, keeps their account, and returns the others.
func (s *Shipper) resolve(ctx context.Context, b *Batch) (*Batch, error) {
	b.Sent = true
	stored, err := s.stored(ctx, b)
	if err != nil {
		return nil, err
	}

	s.count(func(st *Stats) { st.Doubts++ })
	if slices.Contains(stored, true) {
		s.done(b.only(func(i int) bool { return stored[i] }))
	}

	return b.missing(stored), nil
}

// maxSingles is how many rows in a row are tried one by one and refused before
// the rest of their batch is taken to be like them: a file of nothing but poison
// must not cost an insert a row.
const maxSingles = 64

// bisect finds the rows that the store refuses: it inserts halves until a refused
// half is one row, and keeps that one in the dead-letter file.
func (s *Shipper) bisect(ctx context.Context, b *Batch, doubt bool, cause *Error) error {
	if doubt {
		var err error
		if b, err = s.resolve(ctx, b); err != nil || b.Len() == 0 {
			return err
		}
	}

	if b.Len() == 1 || s.dead.refusedInARow >= maxSingles {
		s.dead.refusedInARow++
		s.countTable(b.Table, func(t *TableStats) { t.Poisoned += uint64(b.Len()) })
		s.o.Logger.Error("row refused by the store, kept as a dead letter",
			"table", b.Table, "rows", b.Len(), "reason", cause.Err, "file", s.o.DeadLetters)
		return s.dead.keep(b, cause)
	}

	half := b.Len() / 2
	for _, part := range []*Batch{b.slice(0, half), b.slice(half, b.Len())} {
		if err := s.insert(ctx, part); err != nil {
			return err
		}
	}

	return nil
}

// done keeps the account of a stored batch.
func (s *Shipper) done(b *Batch) {
	s.dead.refusedInARow = 0
	s.countTable(b.Table, func(t *TableStats) { t.Inserted += uint64(b.Len()) })
	s.count(func(st *Stats) {
		st.Batches++
		st.LastAck = time.Now()
	})
	if b.Table != row.LedgerTable {
		s.accounts = appendAccounts(s.accounts, b)
	}
}

// account writes the entries of the batches stored so far when it is time, or
// when all is to be flushed.
func (s *Shipper) account(ctx context.Context, flush bool) error {
	if len(s.accounts) == 0 {
		return nil
	}

	if s.accountsAt.IsZero() {
		s.accountsAt = time.Now()
	}

	if !flush && time.Since(s.accountsAt) < max(ledgerEvery, ledgerFlushes*s.o.Flush) && len(s.accounts) < maxAccounts {
		return nil
	}

	entries := s.accounts
	s.accounts, s.accountsAt = nil, time.Now()
	// Entries of one batch id are new by construction: nothing to look up.
	for _, b := range Cut(&row.Rows{Ledger: entries}) {
		if err := s.insert(ctx, b); err != nil {
			return err
		}
	}

	return nil
}

// maxAccounts bounds the entries kept in memory between two writes.
const maxAccounts = 4096

// appendAccounts adds the entries of a stored batch: one per process, and for
// raw rows per segment.
func appendAccounts(dst []row.Ledger, b *Batch) []row.Ledger {
	first := len(dst)
	for _, n := range b.spans {
		at := len(dst) - 1
		for at >= first && (dst[at].Rank != n.rank || dst[at].Incarnation != n.incarnation || dst[at].Segment != n.segment) {
			at--
		}

		if at < first {
			at = len(dst)
			dst = append(dst, row.Ledger{
				Job: b.Job, Rank: n.rank, Incarnation: n.incarnation, Segment: n.segment,
				Batch: b.ID.String(), Table: b.Table, State: "stored", FirstOffset: n.first, LastOffset: n.last, AtNs: n.startNs,
			})
		}

		e := &dst[at]
		e.Records += n.rows
		e.FirstOffset, e.LastOffset = min(e.FirstOffset, n.first), max(e.LastOffset, n.last)
	}

	return dst
}
