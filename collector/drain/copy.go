package drain

import (
	"fmt"
	"math"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// run is the copied part of one ring in a pass.
type run struct {
	r     *ringState
	lane  ring.Lane
	buf   []byte
	slot  ring.Slot
	end   int64
	short bool // more of this ring was there than we copied
}

// copy takes what the rings hold, at most passSlots, in order of the ranges'
// ends, and moves the tails once it is flushed.
func (p *process) copy(now time.Time) (records int, more bool, err error) {
	if err := p.snapshot(); err != nil {
		return 0, false, err
	}

	crashPoint("heads-read")
	p.refresh() // strings after heads: what a slot below a head names is there
	waiting, err := p.waiting()
	if err != nil || waiting == 0 {
		return 0, false, err
	}

	if p.denied = !p.turn(now); p.denied {
		return 0, false, nil
	}

	if err := p.gather(waiting, now); err != nil {
		return 0, false, err
	}

	records, more, err = p.merge(now)
	crashPoint("appended")
	if records > 0 {
		p.unsaid = true
	}

	if err != nil {
		return records, false, err
	}

	return records, more, p.settle()
}

// waiting returns how many rings have slots to copy, and notes whether one is filling
// up.
func (p *process) waiting() (n int, err error) {
	p.full = false
	for _, r := range p.rings {
		for i := range r.lanes {
			if err := p.overrun(r, ring.Lane(i)); err != nil {
				return 0, err
			}

			l := &r.lanes[i]
			if l.head > l.cursor {
				n++
				p.full = p.full || (l.head-l.cursor)*4 > uint64(r.reader.Slots[i])
			}
		}
	}

	return n, nil
}

// gather copies slots out of every ring that has some: so many rings are waiting.
func (p *process) gather(waiting int, now time.Time) error {
	d := p.d
	d.runs = d.runs[:0]
	buf, share := d.buf, uint64(passSlots/waiting)
	for _, r := range p.rings {
		for i := range r.lanes {
			l := &r.lanes[i]
			if l.head <= l.cursor {
				continue
			}

			n := min(l.head-l.cursor, share)
			q := run{r: r, lane: ring.Lane(i), buf: buf[:n*slotBytes], short: n < l.head-l.cursor}
			buf = buf[n*slotBytes:]
			if err := r.reader.Copy(q.lane, l.cursor, q.buf); err != nil {
				return p.lostRing(r, err)
			}

			ok, err := p.look(&q, now)
			if err != nil {
				return err
			}

			if ok {
				d.runs = append(d.runs, q)
			}
		}
	}

	return nil
}

// look decodes the next slot of a run. False: the run is over for this pass.
func (p *process) look(q *run, now time.Time) (bool, error) {
	l := &q.r.lanes[q.lane]
	for len(q.buf) > 0 {
		good := q.slot.Decode(q.buf, l.cursor, q.r.reader.Checksum())
		if good && p.named(&q.slot) {
			q.end = end(&q.slot)
			return true, nil
		}

		if wait, err := p.wait(q, now); wait || err != nil {
			q.short = false
			return false, err
		}

		if good { // a string that nobody will write any more: "" stands for it
			q.end = end(&q.slot)
			return true, nil
		}

		n := p.spoilt(q)
		if err := p.skip(q.r, q.lane, n); err != nil {
			return false, err
		}

		q.buf = q.buf[n*slotBytes:]
	}

	return false, nil
}

// wait reports whether to look at a slot again in the next pass: it could be
// that its stores are not seen yet, or that the head was read too large.
func (p *process) wait(q *run, now time.Time) (bool, error) {
	l := &q.r.lanes[q.lane]
	head, err := q.r.reader.Head(q.lane)
	if err != nil {
		return true, p.lostRing(q.r, err)
	}

	if head <= l.cursor {
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

// spoilt returns how many slots from the start of the run on are wrong.
func (p *process) spoilt(q *run) uint64 {
	l := &q.r.lanes[q.lane]
	var s ring.Slot
	n := uint64(1)
	for n < uint64(len(q.buf)/slotBytes) && !s.Decode(q.buf[n*slotBytes:], l.cursor+n, q.r.reader.Checksum()) {
		n++
	}

	return n
}

// overrun counts slots that were overwritten before we took them: no recorder
// that goes by the tail does that.
func (p *process) overrun(r *ringState, i ring.Lane) error {
	l := &r.lanes[i]
	slots := uint64(r.reader.Slots[i])
	if !r.resumed || l.head <= l.cursor || l.head-l.cursor <= slots {
		return nil
	}

	return p.skip(r, i, l.head-slots-l.cursor)
}

// skip counts n slots from the cursor on as corrupt and goes on after them. What
// was accepted before them is flushed first.
func (p *process) skip(r *ringState, i ring.Lane, n uint64) error {
	p.unsaid = true
	if err := p.settle(); err != nil {
		return err
	}

	l := &r.lanes[i]
	loss := record.Loss{Ring: l.number, Reason: record.Corrupt, Count: n}
	next := pending{Key: skipKey(l.number), Value: l.cursor + n, Count: n}
	if err := p.write(next, loss.AppendLine(nil)); err != nil {
		return err
	}

	l.cursor += n
	p.d.lose(record.Corrupt, n)
	return p.settle()
}

// named reports whether the slot's strings are known.
func (p *process) named(s *ring.Slot) bool {
	_, a := p.folder.Text(s.Text())
	_, b := p.folder.Text(s.Group())
	return a && b
}

// merge appends the runs' records in order of their ends. Each ring's stay in
// their own order. When a run that was copied only in part is used up the rest
// waits for it.
func (p *process) merge(now time.Time) (records int, more bool, err error) {
	d := p.d
	runs := d.runs
	for len(runs) > 0 {
		best, second := 0, int64(math.MaxInt64)
		for i := 1; i < len(runs); i++ {
			switch e := runs[i].end; {
			case e < runs[best].end:
				best, second = i, runs[best].end
			case e < second:
				second = e
			}
		}

		q := &runs[best]
		for ok := true; ok && q.end <= second; {
			if err := p.accept(q); err != nil {
				return records, false, err
			}

			records++
			q.buf = q.buf[slotBytes:]
			if ok, err = p.look(q, now); err != nil {
				return records, false, err
			} else if !ok && q.short {
				return records, true, nil
			} else if !ok {
				runs[best] = runs[len(runs)-1]
				runs = runs[:len(runs)-1]
			}
		}
	}

	return records, false, nil
}

// accept gives the run's record to the Writer.
func (p *process) accept(q *run) error {
	l := &q.r.lanes[q.lane]
	rec := &p.d.rec
	p.translate(rec, &q.slot, q.r.counters.Thread)
	rec.Ring, rec.Seq = l.number, l.cursor
	p.unsaid = true
	err := p.w.AppendRecord(rec)
	p.tellRotation()
	if err != nil {
		if e := p.w.Flush(); e != nil {
			p.d.count(func(s *Stats) { s.WriteErrors++ })
			return fmt.Errorf("write: %w", e)
		}

		if err = p.w.AppendRecord(rec); err != nil { // this record, not the disk
			return p.skip(q.r, q.lane, 1)
		}
	}

	l.cursor++
	p.sign = max(p.sign, q.end)
	p.d.drained(rec.Kind, q.end)
	return nil
}
