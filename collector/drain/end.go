package drain

import (
	"fmt"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// tell writes what stands between the records: losses, and the switch.
func (p *process) tell(now time.Time) error {
	if p.gone || now.Sub(p.lossAt) >= lossEvery {
		if err := p.tellLosses(); err != nil {
			return err
		}

		p.lossAt = now
	}

	if err := p.tellSwitch(); err != nil {
		return err
	}

	p.remember()
	return nil
}

// tellLosses writes a loss line for each counter that has grown. The counters
// are cumulative, so what one pass can't write the next one does. They are written by
// others: what no recorder can have lost is not said.
func (p *process) tellLosses() error {
	for _, r := range p.rings {
		for k := range record.Kind(record.KindCount) {
			number := r.lanes[ring.LaneOf(k)].number
			loss := record.Loss{Ring: number, Kind: k.String(), Reason: record.RingFull, Count: r.counters.Dropped[k],
				First: max(r.counters.First, 0), Last: max(r.counters.Last, 0)}
			if err := p.tellLoss(fullKey(number, k), loss); err != nil {
				return err
			}
		}
	}

	for number, count := range p.cut {
		if err := p.tellLoss(cutKey(number), record.Loss{Ring: number, Reason: record.Truncated, Count: count}); err != nil {
			return err
		}
	}

	// What found no ring belongs to none: ring 0.
	for k, count := range p.status.Lost {
		if err := p.tellLoss(noRingKey(k), record.Loss{Kind: record.Kind(k).String(), Reason: record.NoRing, Count: count}); err != nil {
			return err
		}
	}

	return nil
}

// tellLoss writes what a loss that is told of again and again has grown by. First is for the
// first line of it.
func (p *process) tellLoss(key string, loss record.Loss) error {
	total, told := loss.Count, p.note.Done[key]
	if total <= told {
		return nil
	}

	loss.Count = min(total-told, record.MaxLoss)
	if told != 0 {
		loss.First = 0
	}

	if err := p.once(key, total, loss.AppendLine(nil)); err != nil {
		return err
	}

	p.d.stats.Dropped[loss.Reason] += loss.Count
	return nil
}

// tellSwitch writes what the recorder has turned on or off. Until it says
// otherwise all is on.
func (p *process) tellSwitch() error {
	told, ok := p.note.Done[switchKey]
	if !ok {
		told = uint64(ring.AllOn)
	}

	bits := p.status.Followed & ring.AllOn
	if uint64(bits) == told {
		return nil
	}

	line := record.Switch{At: max(p.status.FollowedAt, 0), Default: bits&ring.LightOn != 0, Communication: bits&ring.CommunicationOn != 0}
	return p.once(switchKey, uint64(bits), line.AppendLine(nil))
}

// finish writes the last lines of an incarnation that is gone and drained, and
// removes its folder.
func (p *process) finish(now time.Time) error {
	if !p.w.Ended() { // else only its sync or its folder's removal failed before
		p.lastSign(now)
		for _, r := range p.rings {
			if err := p.tellOpen(r); err != nil {
				return err
			}
		}

		e := record.End{At: p.sign, How: "killed", Emitted: p.emitted(), Dropped: p.dropped()}
		if p.status.State == ring.Closed {
			e.How = "closed"
		}

		if err := p.end(e); err != nil {
			return err
		}
	}

	crashPoint("end-appended")
	if err := p.endWriter(); err != nil {
		return err
	}

	return p.remove(now)
}

// endWriter closes the Writer of an incarnation that has ended, when all of it is on disk.
func (p *process) endWriter() error {
	if err := p.settle(); err != nil {
		return err
	}

	crashPoint("end-flushed")
	if err := p.w.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}

	if err := p.dropWriter(); err != nil {
		return fmt.Errorf("close: %w", err)
	}

	return nil
}

// end gives the incarnation's end line to the Writer. It is no line of once: Writer.Ended
// tells the next agent whether it is there.
func (p *process) end(e record.End) error {
	p.unsaid = true
	if err := p.w.AppendLine(e.AppendLine(nil)); err != nil {
		return fmt.Errorf("write: %w", err)
	}

	return nil
}

// lastSign finds the latest time that the process was seen alive: among the last
// slots of its rings, which are still in memory after they were drained, and the
// open ranges.
func (p *process) lastSign(now time.Time) {
	const last = 64
	var buf [last * slotBytes]byte
	// A time after now is no sign of life: what a program says of itself may be wrong.
	see := func(s *ring.Slot) {
		if e := end(s); e <= now.UnixNano() {
			p.sign = max(p.sign, e)
		}

		if h := s.HostStart(); s.Flags()&ring.FlagHost != 0 && h <= now.UnixNano() {
			p.sign = max(p.sign, h)
		}
	}
	for _, r := range p.rings {
		for i := range r.lanes {
			head := r.lanes[i].head
			n := min(head, last, uint64(r.reader.Slots[i]))
			if r.reader.Copy(ring.Lane(i), head-n, buf[:n*slotBytes]) != nil {
				continue
			}

			for k := range n {
				var s ring.Slot
				if r.reader.Decode(&s, buf[k*slotBytes:], head-n+k) {
					see(&s)
				}
			}
		}

		open, _ := r.reader.OpenRanges()
		for i := range open {
			see(&open[i].Slot)
		}
	}

	p.sign = min(p.sign, max(now.UnixNano(), 0))
}

// tellOpen writes a record for each range that never ended. One that was closing when its
// process died has ended when its ring has the record (Published): it is told once.
func (p *process) tellOpen(r *ringState) error {
	open, err := r.reader.OpenRanges()
	if err != nil {
		return nil // truncated since: nobody can tell
	}

	for i := range open {
		o := &open[i]
		key := openKey(r.reader.N, o.Level)
		if o.Published(r.lanes[o.Lane].head) || p.note.Done[key] != 0 {
			continue
		}

		rec := p.open(o, r.counters.Thread, p.sign)
		if err := p.once(key, 1, rec.AppendLine(nil)); err != nil {
			return err
		}

		p.d.stats.Open[rec.Kind]++
	}

	return nil
}

// open returns the record of a range that is open at a time.
func (p *process) open(o *ring.Open, thread uint64, at int64) record.Record {
	var rec record.Record
	p.translate(&rec, &o.Slot, thread)
	rec.Dur, rec.Open = max(at-rec.Start, 0), true
	return rec
}

// emitted returns the ranges emitted by kind. A kill between publishing a slot
// and counting it leaves the count one behind the head: the last slot tells
// which.
func (p *process) emitted() map[string]uint64 {
	var sum [record.KindCount]uint64
	for _, r := range p.rings {
		c := &r.counters
		light := c.Head[ring.Light]
		var counted uint64
		for k := range record.Kind(record.KindCount) {
			if k == record.Communication { // the only kind of its ring, so the head counts it
				sum[k] += c.Head[ring.Bulk] + c.Dropped[k]
				continue
			}

			sum[k] += c.Emitted[k]
			counted += c.Emitted[k]
			light += c.Dropped[k]
		}

		if light > counted {
			sum[p.lastKind(r)] += light - counted
		}
	}

	for k := range sum {
		sum[k] += p.status.Lost[k]
	}

	out := make(map[string]uint64)
	for k, n := range sum {
		if n > 0 {
			out[record.Kind(k).String()] = n
		}
	}

	return out
}

// lastKind returns the kind of the last slot in the light ring, Other where it can't be
// read: the sum of what was emitted is right then, and one kind's count is not.
func (p *process) lastKind(r *ringState) record.Kind {
	var buf [slotBytes]byte
	var s ring.Slot
	head := r.counters.Head[ring.Light]
	if head == 0 || r.reader.Copy(ring.Light, head-1, buf[:]) != nil || !r.reader.Decode(&s, buf[:], head-1) {
		return record.Other
	}

	return s.Kind().Known()
}

// dropped returns what did not arrive, by reason: what the loss lines of the incarnation
// add up to, those of the recorder's own counters and those of corrupt slots.
func (p *process) dropped() map[string]uint64 {
	out := make(map[string]uint64)
	add := func(reason string, n uint64) {
		if n > 0 {
			out[reason] += n
		}
	}
	for _, r := range p.rings {
		for k := range record.KindCount {
			add(record.RingFull, r.counters.Dropped[k])
		}
	}

	for _, n := range p.status.Lost {
		add(record.NoRing, n)
	}

	add(record.Corrupt, p.note.Done[corruptKey])
	return out
}
