package rollup

import (
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// backward is the word of the range that says where backward ends. TaskD has no
// such kind; laggard's recorders and the replay of real traces do.
const backward = "backward"

// addRecord takes a record that is in range (clamp).
func (s *Stream) addRecord(r *record.Record, words record.Numbers, offset int64) {
	inc := s.ofLine()
	if inc == nil {
		return
	}

	end := r.End()
	if r.Side == record.Device && r.HostStart != 0 {
		end = r.HostStart + r.HostDur
	}

	if r.Ring != 0 && s.repeated(inc, r, end) {
		s.counts.Duplicate++
		return
	}

	if !s.replay {
		s.revive(inc)
		inc.Now = max(inc.Now, end)
	}

	if s.hold(inc, r, words, r.HostBegin(), s.place(offset)) && r.Kind == record.Step && r.Step >= 0 && r.HostBegin() >= inc.Floor {
		inc.insert(step{Begin: r.HostBegin(), End: max(end, r.HostBegin()+1), Number: r.Step, complete: true, open: r.Open})
	}

	s.advance(inc)
}

// repeated notes the ring and number of a record; true means that it was read
// before. While lines are read again after a restart, rings of that reading count, for those of
// the state have seen all of them.
func (s *Stream) repeated(inc *incarnation, r *record.Record, end int64) bool {
	rings := inc.Rings
	if s.replay {
		if rings = s.rings[inc.ID]; rings == nil {
			rings = map[uint32]*ring{}
			s.rings[inc.ID] = rings
		}
	}

	g := rings[r.Ring]
	if g == nil {
		if len(rings) >= maxRings {
			return false
		}

		g = &ring{Mark: math.MinInt64}
		rings[r.Ring] = g
	}

	number := int64(r.Seq)
	if g.Seen.count(number) > 0 {
		return true
	}

	g.Seen.add(number, maxStretches)
	g.Mark = max(g.Mark, end)
	return false
}

// addRange takes a TaskD range whose lines are complete or given up.
func (s *Stream) addRange(inc *incarnation, r *marker.Range) {
	rec := &r.Record
	clamp(rec)
	if !s.hold(inc, rec, s.number(rec), r.Begin, r.Place) || rec.Kind != record.Step || r.Begin < inc.Floor {
		return
	}

	for i := range inc.steps {
		if st := &inc.steps[i]; st.id == r.ID && st.Begin == r.Begin {
			st.complete = true
			return
		}
	}

	end := r.HostEnd()
	if end == 0 {
		end = rec.End()
	}

	inc.insert(step{Begin: r.Begin, End: max(end, r.Begin+1), Number: rec.Step, id: r.ID, complete: true, open: rec.Open})
}

// hold keeps a complete range until its step closes; false means that its step is closed already.
func (s *Stream) hold(inc *incarnation, r *record.Record, words record.Numbers, begin int64, at marker.Place) bool {
	s.counts.count(emitted, r.Kind, r.Name)
	if begin < inc.Floor {
		if !s.replay {
			s.addLate(inc, r, words, begin, at)
		}

		return false
	}

	inc.pending = append(inc.pending, pendingRange{})
	p := &inc.pending[len(inc.pending)-1]
	p.begin, p.start, p.dur, p.hostDur, p.exposed, p.bytes, p.tokens = begin, r.Start, r.Dur, -1, r.Exposed, r.Bytes, r.Tokens
	p.own, p.at, p.record, p.call = r.Step, at, -1, -1
	p.kind, p.side, p.open = r.Kind, r.Side, r.Open
	if r.Side == record.Device && r.HostStart != 0 {
		p.hostDur = r.HostDur
	}

	switch r.Kind {
	case record.Communication:
		p.call = s.called(inc, words)
	case record.Other:
		p.backward = strings.EqualFold(r.Name, backward)
	}

	if s.o.Records.takes(r.Kind, true) || r.Kind == record.Other {
		p.record, p.weight = s.keep(r, words, at), int32(r.Weight())
	}

	inc.weight += int(p.weight)
	if (len(inc.pending) > maxPending || inc.weight > maxWeight) && !s.replay {
		s.relieve(inc)
	}

	return true
}

// insert puts a step where it belongs by its begin.
func (inc *incarnation) insert(st step) {
	i := len(inc.steps)
	for i > 0 && inc.steps[i-1].Begin > st.Begin {
		i--
	}

	inc.steps = slices.Insert(inc.steps, i, st)
}

// addLate takes a range whose step is closed: its raw row still names the step,
// its sums come too late.
func (s *Stream) addLate(inc *incarnation, r *record.Record, words record.Numbers, begin int64, at marker.Place) {
	s.counts.Late++
	inc.Late = true
	number, repeat := inc.closedAt(begin)
	if r.Kind == record.Step && r.Step >= 0 {
		number, repeat = r.Step, inc.Seen.add(r.Step, maxRuns)
		s.rows.Steps = append(s.rows.Steps, s.bareStep(inc, r, repeat))
	}

	if r.Kind == record.Communication { // stored one by one or not, it is a call
		if !inc.Window.Open {
			s.openWindow(inc, max(number, 0), r.Start)
		}

		s.addCall(inc, s.called(inc, words), r.Dur, r.Bytes)
		if inc.Over {
			s.flushWindow(inc)
		}
	}

	if s.o.Records.takes(r.Kind, r.Kind == record.Communication) {
		raw := s.pack(r, words, at)
		s.giveRaw(s.owner(inc), &raw, r.Kind, number, repeat)
		return
	}

	s.counts.count(summarised, r.Kind, r.Name)
}

// closedAt returns the closed step in whose window begin lies, NoStep without one.
func (inc *incarnation) closedAt(begin int64) (number int64, repeat uint16) {
	for _, c := range slices.Backward(inc.Closed) {
		if begin >= c.Begin && begin < c.End {
			return c.Number, c.Repeat
		}
	}

	return record.NoStep, 0
}

// giveRange gives out the raw row of a decided range, or counts it as summarised. deep
// is whether Communication was decided with it.
func (s *Stream) giveRange(of owner, p *pendingRange, number int64, repeat uint16, deep bool) {
	if p.record < 0 {
		s.counts.count(summarised, p.kind, "")
		return
	}

	r := &s.kept[p.record]
	if s.o.Records.takes(p.kind, deep) {
		s.giveRaw(of, r, p.kind, number, repeat)
	} else {
		s.counts.count(summarised, p.kind, s.wordOf(p.kind, r))
	}

	s.spare = append(s.spare, p.record)
}

// wordOf is the own word of a range of an unknown kind.
func (s *Stream) wordOf(k record.Kind, r *row.Raw) string {
	if k != record.Other {
		return ""
	}

	return s.words.Text(r.Kind)
}
