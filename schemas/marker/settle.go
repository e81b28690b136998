package marker

import (
	"cmp"
	"maps"
	"slices"
)

// Settle ends the wait for what began before a moment: a range whose host end was
// seen is yielded with its host times (its device lines never came), one without
// an end becomes overdue: it holds nothing up any more, and when its end comes
// after all, Add yields it.
func (p *Pairer) Settle(q *Process, before int64, fn func(*Range)) {
	for len(q.waiting) > 0 && q.waiting[0].Begin < before {
		r := q.waiting[0]
		if r.HostEnded() {
			p.yield(r, fn)
			continue
		}

		q.unlink(r)
		if len(q.Overdue) == maxOverdue {
			delete(q.open, q.Overdue[0].ID)
			q.Overdue = slices.Delete(q.Overdue, 0, 1)
			p.drop(1)
		}

		q.Overdue = append(q.Overdue, r)
	}
}

// yield hands r to fn and forgets it.
func (p *Pairer) yield(r *Range, fn func(*Range)) {
	p.remove(r)
	if r.settle() {
		fn(r)
	} else {
		p.drop(1)
	}
}

// Drain ends the wait for a process that seems to have ended: fn gets every range
// that waited for a line, oldest first. One without an end is open: its Dur runs to
// last, the last sign of life. Overdue ones are given up. A process that writes on
// after all is followed on. Drain may be called for one that Result.Over named.
func (p *Pairer) Drain(q *Process, last int64, fn func(*Range)) {
	for len(q.waiting) > 0 {
		r := q.waiting[0]
		if !r.HostEnded() {
			p.remove(r)
			r.Record.Start, r.Record.Dur = r.Begin, max(last-r.Begin, 0)
			r.Record.Thread, r.Record.Open = uint64(r.Thread), true
			fn(r)
			continue
		}

		p.yield(r, fn)
	}

	p.drop(len(q.Overdue))
	q.Overdue, q.waiting, q.open = nil, nil, map[uint64]*Range{} // small again: see depart
}

// Forget says that a drained process has ended: a host line of its pid that is not
// older is another process's.
func (p *Pairer) Forget(q *Process) {
	if i := slices.Index(p.live, q); i >= 0 {
		p.live = slices.Delete(p.live, i, i+1)
		p.depart(q)
	}
}

// orphanKey is what a start knows of the lines that it waits for. Which process wrote them,
// Range.take looks at.
type orphanKey struct {
	id           uint64
	source, flag uint32
}

// keyOf returns the key of a line.
func keyOf(m *Marker) orphanKey { return orphanKey{m.ID, m.Source, m.Flag} }

// orphan keeps a line for a start that may still come. Its texts are the parser's.
func (p *Pairer) orphan(m *Marker) {
	o := *m
	o.Name, o.Domain = nil, nil
	p.await(o)
}

// await keeps an orphan. One with the same key takes the place of the older one, which is
// given up.
func (p *Pairer) await(o Marker) {
	if p.orphans == nil {
		p.orphans = make(map[orphanKey]Marker)
	}

	if len(p.orphans) >= maxOrphans { // give up the oldest eighth
		for _, old := range p.inOrder()[:maxOrphans/8] {
			delete(p.orphans, keyOf(&old))
			p.drop(1)
		}
	}

	k := keyOf(&o)
	if _, ok := p.orphans[k]; ok {
		p.drop(1)
	}

	p.orphans[k] = o
}

// inOrder returns the orphans in the order of the lines.
func (p *Pairer) inOrder() []Marker {
	return slices.SortedFunc(maps.Values(p.orphans), func(a, b Marker) int { return a.compare(b.Place) })
}

// adopt joins to r the lines that came before its start.
func (p *Pairer) adopt(r *Range) {
	if len(p.orphans) == 0 {
		return
	}

	for _, k := range [...]orphanKey{
		{r.ID, HostSide, End}, {r.ID, HostSide, EndDevice},
		{r.ID, DeviceSide, StartDevice}, {r.ID, DeviceSide, EndDevice}, {r.ID, DeviceSide, InstantDevice},
	} {
		if o, ok := p.orphans[k]; ok && r.take(&o) {
			delete(p.orphans, k)
			if o.Place.Before(r.First) {
				r.First = o.Place
			}
		}
	}
}

// Earliest returns the first of the lines that wait for their partners and of the
// given one.
func (p *Pairer) Earliest(at Place) Place {
	for _, q := range p.live {
		q.Each(func(r *Range) {
			if r.First.Before(at) {
				at = r.First
			}
		})
	}

	for _, o := range p.orphans {
		if o.Place.Before(at) {
			at = o.Place
		}
	}

	return at
}

// Expire gives up the lines without a start that were stamped before a moment.
func (p *Pairer) Expire(before int64) {
	maps.DeleteFunc(p.orphans, func(_ orphanKey, o Marker) bool {
		if clamp(o.Timestamp) >= before {
			return false
		}

		p.drop(1)
		return true
	})
}

// Processes returns the processes that have not ended, in the order they began.
func (p *Pairer) Processes() []*Process {
	all := slices.Clone(p.live)
	slices.SortFunc(all, func(a, b *Process) int { return cmp.Compare(a.Index, b.Index) })
	return all
}
