package drain

import (
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// copy takes what the rings hold, at most passSlots, in order of the ranges'
// ends, and moves the tails once it is flushed. After an error the cursors stand behind what the Writer accepted:
// that is flushed by a later pass.
func (p *process) copy(now time.Time) (records int, err error) {
	if err := p.snapshot(); err != nil {
		return 0, err
	}

	crashPoint("heads-read")
	p.refresh() // strings after heads: what a slot below a head names is there
	waiting, err := p.waiting()
	if err != nil || waiting == 0 {
		return 0, err
	}

	if p.passed = p.turn(now); !p.passed {
		return 0, nil
	}

	if err := p.gather(waiting, now); err != nil {
		return 0, err
	}

	records, err = p.merge(now)
	crashPoint("appended")
	if records > 0 {
		p.unsaid = true
	}

	if err != nil {
		return records, err
	}

	return records, p.settle()
}

// waiting returns how many rings have slots to copy, and notes whether one is filling
// up. A ring that gets a quarter full in one interval has three more before it overflows:
// time for another pass, even when the rate doubles.
func (p *process) waiting() (n int, err error) {
	p.full = false
	for _, r := range p.rings {
		for i := range r.lanes {
			l := &r.lanes[i]
			if err := p.overrun(l); err != nil {
				return 0, err
			}

			if l.head > l.cursor {
				n++
				p.full = p.full || !p.gone && r.quarterFull(l.lane, l.head)
			}
		}
	}

	return n, nil
}

// quarterFull reports whether a lane whose head that is has more than a quarter of its slots to copy.
func (r *ringState) quarterFull(lane ring.Lane, head uint64) bool {
	cursor := r.lanes[lane].cursor
	return head > cursor && (head-cursor)*4 > uint64(r.reader.Slots[lane])
}

// filling reports whether a ring of the process has become a quarter full, or is new. What can't be read the next pass tells.
func (p *process) filling() bool {
	if s, err := p.folder.Status(); err == nil && s.Rings > p.status.Rings {
		return true
	}

	return slices.ContainsFunc(p.rings, func(r *ringState) bool {
		c, err := r.reader.Counters()
		return err == nil && r.resumed && (r.quarterFull(ring.Light, c.Head[ring.Light]) || r.quarterFull(ring.Bulk, c.Head[ring.Bulk]))
	})
}

// gather copies slots out of every ring that has some: so many rings are waiting. Each
// gets the same share of passSlots, so that a ring that fills up does not hold up the
// others; what is left of it comes in the next pass.
func (p *process) gather(waiting int, now time.Time) error {
	d := p.d
	d.copied = d.copied[:0]
	buf, share := d.buf, uint64(passSlots/waiting)
	for _, r := range p.rings {
		for i := range r.lanes {
			l := &r.lanes[i]
			if l.head <= l.cursor {
				continue
			}

			n := min(l.head-l.cursor, share)
			l.buf, l.short = buf[:n*slotBytes], n < l.head-l.cursor
			buf = buf[n*slotBytes:]
			if err := r.reader.Copy(l.lane, l.cursor, l.buf); err != nil {
				return p.lostRing(r, err)
			}

			ok, err := p.look(l, now)
			if err != nil {
				return err
			}

			if ok {
				d.copied = append(d.copied, l)
			}
		}
	}

	return nil
}

// look decodes the next slot that was copied of a ring. False: there is none for this pass.
func (p *process) look(l *laneState, now time.Time) (bool, error) {
	for len(l.buf) > 0 {
		good := l.of.reader.Decode(&l.slot, l.buf, l.cursor)
		if good && p.named(&l.slot) {
			l.end = end(&l.slot)
			return true, nil
		}

		if wait, err := p.wait(l, now); wait || err != nil {
			l.short = false
			return false, err
		}

		if good { // a string that nobody will write any more: "" stands for it
			l.end = end(&l.slot)
			return true, nil
		}

		n := l.spoilt()
		if err := p.skip(l, n); err != nil {
			return false, err
		}

		l.buf = l.buf[n*slotBytes:]
	}

	return false, nil
}

// wait reports whether to look at a slot again in the next pass: it could be
// that its stores are not seen yet, or that the head was read too large.
func (p *process) wait(l *laneState, now time.Time) (bool, error) {
	c, err := l.of.reader.Counters()
	if err != nil {
		return true, p.lostRing(l.of, err)
	}

	if c.Head[l.lane] <= l.cursor {
		return true, nil
	}

	if p.gone {
		return false, nil
	}

	if l.stuck != l.cursor+1 {
		l.stuck, l.stuckAt = l.cursor+1, now
	}

	return now.Sub(l.stuckAt) < patience, nil
}

// spoilt returns how many slots from the start of what was copied on are wrong: they are
// told of in one loss line.
func (l *laneState) spoilt() uint64 {
	var s ring.Slot
	n := uint64(1)
	for n < uint64(len(l.buf)/slotBytes) && !l.of.reader.Decode(&s, l.buf[n*slotBytes:], l.cursor+n) {
		n++
	}

	return n
}

// overrun counts slots that were overwritten before we took them: no recorder
// that goes by the tail does that.
func (p *process) overrun(l *laneState) error {
	slots := uint64(l.of.reader.Slots[l.lane])
	if !l.of.resumed || l.head <= l.cursor || l.head-l.cursor <= slots {
		return nil
	}

	return p.skip(l, l.head-slots-l.cursor)
}

// skip counts n slots from the cursor on as corrupt and goes on after them. What
// was accepted before them is flushed first.
func (p *process) skip(l *laneState, n uint64) error {
	p.unsaid = true
	if err := p.settle(); err != nil {
		return err
	}

	loss := record.Loss{Ring: l.number, Reason: record.Corrupt, Count: n}
	next := pending{Key: skipKey(l.number), Value: l.cursor + n, Count: n}
	if err := p.write(next, loss.AppendLine(nil)); err != nil {
		return err
	}

	l.cursor += n
	p.d.stats.Dropped[record.Corrupt] += n
	return p.settle()
}

// named reports whether the slot's strings are known. A recorder writes a string before
// the slot that names it; that it isn't seen yet is a matter of the order of its stores.
func (p *process) named(s *ring.Slot) bool {
	_, a := p.folder.Text(s.Text())
	_, b := p.folder.Text(s.Group())
	return a && b
}

// merge appends the records of all rings in order of their ends. Each ring's stay in
// their own order. When what was copied of a longer ring is used up the rest waits
// for it.
func (p *process) merge(now time.Time) (records int, err error) {
	rings := p.d.copied
	for len(rings) > 0 {
		first := 0
		for i, l := range rings {
			if l.end < rings[first].end {
				first = i
			}
		}

		l := rings[first]
		if err := p.accept(l); err != nil {
			return records, err
		}

		records++
		l.buf = l.buf[slotBytes:]
		switch ok, err := p.look(l, now); {
		case err != nil:
			return records, err
		case !ok && l.short:
			p.full = true
			return records, nil
		case !ok:
			rings = slices.Delete(rings, first, first+1)
		}
	}

	return records, nil
}

// accept gives a ring's next record to the Writer. One that it refuses twice, with
// nothing else waiting, is at fault itself (it is too long, say) and counts as corrupt;
// else it is the disk, and the record stays in its ring.
func (p *process) accept(l *laneState) error {
	rec := &p.d.rec
	p.translate(rec, &l.slot, l.of.counters.Thread)
	rec.Ring, rec.Seq = l.number, l.cursor
	p.unsaid = true
	err := p.w.AppendRecord(rec)
	p.tellRotation()
	if err != nil {
		if e := p.w.Flush(); e != nil {
			p.d.stats.WriteErrors++
			return fmt.Errorf("write: %w", e)
		}

		if err = p.w.AppendRecord(rec); err != nil { // this record, not the disk
			return p.skip(l, 1)
		}
	}

	l.cursor++
	p.sign = max(p.sign, l.end)
	p.d.drained(rec.Kind, l.end)
	return nil
}
