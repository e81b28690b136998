package intake

import (
	"context"
	"fmt"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Ships reports whether this process ships a rank directory: it holds the lease.
func (f *Follower) Ships(rankDir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams[rankDir] != nil
}

// Holds reports whether a segment was begun and is not yet acknowledged: it can't
// be released before the store has answered.
func (f *Follower) Holds(rankDir, name string) bool {
	number, ok := segment.Number(name)
	if !ok {
		return false
	}

	f.mu.Lock()
	s := f.streams[rankDir]
	f.mu.Unlock()
	return s != nil && s.Begun(number) && !f.Shipped(rankDir, name)
}

// Release lets go of a segment: from its return on nothing of it is ever stored, by
// this process or another one. account writes the loss into the ledger; when it can't,
// the segment is the follower's as before. A segment that was begun is not let go of:
// its records are on their way, and the error says so. See HoldAtMost.
func (f *Follower) Release(rankDir string, s segment.Info, account func() error) error {
	f.mu.Lock()
	stream := f.streams[rankDir]
	f.mu.Unlock()
	if stream == nil {
		return fmt.Errorf("release %s/%s: this process does not ship it", rankDir, s.Name)
	}

	if err := stream.Release(s.Number, account); err != nil {
		return fmt.Errorf("release %s/%s: %w", rankDir, s.Name, err)
	}

	return nil
}

// Account takes entries of the local ledger (of segments that ageing deleted) that
// the store's ledger should have too. It is a copy for dashboards: what a crash
// keeps from the store is still in the local ledger.
func (f *Follower) Account(rows []row.Ledger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		key := record.RankID{Job: r.Job, Rank: int(r.Rank)}
		if len(f.aged[key]) < maxAged {
			f.aged[key] = append(f.aged[key], r)
		}
	}
}

// maxAged bounds the entries of a rank that wait for the store.
const maxAged = 4096

// enterAged hands a member the entries that Account took for it: they go with its rows, in the
// stream's order.
func (f *Follower) enterAged(m *member) {
	key := m.stream.Dir.RankID
	f.mu.Lock()
	defer f.mu.Unlock()
	m.entries = append(m.entries, f.aged[key]...)
	delete(f.aged, key)
}

// HoldAtMost bounds the bytes of segments that are read and not acknowledged, over
// all ranks; 0 is no bound. They can't be deleted, so under a cap they must be a
// small part of it. A step that is longer than that is read on all the same.
func (f *Follower) HoldAtMost(bytes int64) { f.hold = bytes }

// overheld reports whether more is held than may be: from the segment of the last acknowledged
// position on, or from where this process began.
func (f *Follower) overheld() bool {
	if f.hold <= 0 {
		return false
	}

	held := int64(0)
	for _, m := range f.e.members {
		from := m.from
		if acked, ok := m.out.Acked().(segment.Position); ok {
			from, _ = segment.Number(acked.Segment)
		}

		held += m.stream.Unacknowledged(from)
	}

	return held > f.hold
}

// settle waits until everything that was read is acknowledged but for what is open.
func (f *Follower) settle(ctx context.Context) error {
	for _, m := range f.e.members {
		if err := f.e.take(ctx, m, true); err != nil {
			return err
		}
	}

	if err := f.e.shipper.Flush(ctx); err != nil {
		return err
	}

	for _, m := range f.e.members {
		f.acknowledge(m)
	}

	return nil
}
