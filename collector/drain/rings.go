package drain

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
)

// slotBytes is the size of a slot in a ring (schemas/FORMAT.md section 2.2): by it what was copied is counted in bytes.
const slotBytes = 64

// ringState is one ring file and how far it was drained.
type ringState struct {
	reader   *ring.Reader  // owned: closed with the process, or by lostRing
	resumed  bool          // the cursors are known; the tails are not moved before
	counters ring.Counters // as of the last look
	lanes    [2]laneState
}

// laneState is one of the two rings of a file: how far it was drained, and what a pass has
// copied of it and not given to the Writer yet.
type laneState struct {
	of     *ringState
	lane   ring.Lane
	number uint32 // as records name it

	head    uint64
	cursor  uint64 // next slot to take
	tail    uint64 // what stands in the header
	stuck   uint64 // slot that was wrong or lacked a string, plus one
	stuckAt time.Time

	buf   []byte    // slots, from cursor on
	slot  ring.Slot // the first of them
	end   int64     // of its range
	short bool      // more was there than was copied
}

// findRings opens the ring files that are new. A recorder counts a ring before its thread
// gets it, so one that has records is among those counted.
func (p *process) findRings() error {
	if p.needs = ring.Descriptors + int(p.status.Rings) + 1; p.needs > p.granted && !p.d.grant(p, p.needs) {
		return errNoRoom
	}

	errs := []error{}
	for n := uint32(1); n <= p.status.Rings; n++ {
		if p.bad[n] || slices.ContainsFunc(p.rings, func(r *ringState) bool { return r.reader.N == n }) {
			continue
		}

		r, err := p.folder.OpenReader(n)
		if err != nil {
			// A broken file stays broken. Where no descriptor is left, say, what it holds stays where it is.
			p.bad[n] = errors.Is(err, ring.ErrNotRing) || errors.Is(err, os.ErrNotExist)
			errs = append(errs, err)
			continue
		}

		s := &ringState{reader: r}
		for i := range s.lanes {
			s.lanes[i] = laneState{of: s, lane: ring.Lane(i), number: ring.Number(n, ring.Lane(i))}
		}

		p.rings = append(p.rings, s)
	}

	return errors.Join(errs...)
}

// resume finds where the draining goes on: after what is on disk, after what was
// counted as corrupt, and not before the tail, which covers what has aged: segments that
// were deleted say nothing of their records any more. A ring is resumed once. Later only
// this drain moves the cursor.
func (r *ringState) resume(next map[uint32]uint64, n *note) {
	if r.resumed {
		return
	}

	c, err := r.reader.Counters()
	if err != nil {
		return // the next pass tries again
	}

	r.resumed = true
	for i := range r.lanes {
		l := &r.lanes[i]
		l.tail = c.Tail[i]
		l.cursor = max(next[l.number], n.Done[skipKey(l.number)])
		if l.tail <= c.Head[i] { // else the header lies
			l.cursor = max(l.cursor, l.tail)
		}
	}
}

// advance moves the tails to the cursors: the recorder may write over what is before them
// from then on. So everything before a cursor must be flushed.
func (r *ringState) advance() error {
	var errs []error
	for i := range r.lanes {
		l := &r.lanes[i]
		if !r.resumed || l.tail == l.cursor {
			continue
		}

		if err := r.reader.SetTail(ring.Lane(i), l.cursor); err != nil {
			errs = append(errs, err)
			continue
		}

		l.tail = l.cursor
		crashPoint("tail-moved")
	}

	return errors.Join(errs...)
}

// snapshot reads the heads: every light one before every bulk one, so that the
// communications of a step are seen no later than the step's own end. The ring of a
// thread whose communications belong to a step that was seen to end was counted before
// the light heads were read, but perhaps not when the process was looked at last: it is
// looked at again, until there is no new ring.
func (p *process) snapshot() error {
	for known := -1; known < len(p.rings); {
		known = len(p.rings)
		if err := p.lightHeads(); err != nil {
			return err
		}

		p.refresh()
		if err := p.findRings(); err != nil {
			return err
		}
	}

	for _, r := range p.rings {
		c, err := r.reader.Counters()
		if err != nil {
			return p.lostRing(r, err)
		}

		r.lanes[ring.Bulk].head = c.Head[ring.Bulk]
	}

	return nil
}

// lightHeads reads the counters of every ring, the light heads among them.
func (p *process) lightHeads() error {
	for _, r := range p.rings {
		if !r.resumed {
			r.resume(p.w.Next(), &p.note)
		}

		c, err := r.reader.Counters()
		if err != nil {
			return p.lostRing(r, err)
		}

		r.counters = c
		r.lanes[ring.Light].head = c.Head[ring.Light]
	}

	return nil
}

// lostRing leaves a ring file that became too short to read. What it held beyond
// the cursors is lost; how much, the last heads tell.
func (p *process) lostRing(r *ringState, cause error) error {
	p.rings = slices.DeleteFunc(p.rings, func(q *ringState) bool { return q == r })
	p.bad[r.reader.N] = true
	for i := range r.lanes {
		if l := &r.lanes[i]; l.head > l.cursor {
			p.cut[l.number] = l.head - l.cursor
		}
	}

	p.d.stats.Damaged++
	r.reader.Close()
	return fmt.Errorf("leave ring %d: %w", r.reader.N, cause)
}
