package rollup

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
)

// advance closes the steps that are finished.
func (s *Stream) advance(inc *incarnation) {
	if s.replay {
		return
	}

	for len(inc.steps) > 1 && s.closable(inc) {
		s.closeFirst(inc)
	}
}

// closable reports whether the first open step is finished: a later one has ended
// too, and nothing of it can still come.
func (s *Stream) closable(inc *incarnation) bool {
	if s.held(inc) {
		return false
	}

	first := &inc.steps[0]
	now := inc.clock()
	if !slices.ContainsFunc(inc.steps[1:], func(st step) bool { return st.complete }) &&
		now-inc.steps[1].End < int64(pairPatience) {
		return false
	}

	if inc.process != nil {
		return inc.paired() || now-first.End >= int64(pairPatience)
	}

	for _, g := range inc.Rings {
		if g.Mark < first.End && now-g.Mark < int64(ringPatience) {
			return false
		}
	}

	return true
}

// clock returns the latest host time seen.
func (inc *incarnation) clock() int64 {
	if inc.process != nil {
		return inc.process.Now()
	}

	return inc.Now
}

// cut returns where the first open step's window ends.
func (inc *incarnation) cut() int64 {
	end := inc.steps[0].End
	if inc.steps[0].open {
		end = never
	}

	if len(inc.steps) > 1 {
		end = min(end, inc.steps[1].Begin)
	}

	return end
}

// closeFirst closes the first open step: it and what lies before it become rows.
func (s *Stream) closeFirst(inc *incarnation) {
	cut := inc.cut()
	if p := inc.process; p != nil {
		s.pairer.Settle(p, cut, func(r *marker.Range) { s.addRange(inc, r) })
		s.pairer.Expire(p.Now() - int64(pairPatience))
	}

	st := inc.steps[0]
	st.Repeat = inc.Seen.add(st.Number, maxRuns)
	s.openWindow(inc, st.Number, st.Begin)
	r := s.stepRow(inc, &st, cut)
	if r.CommNs >= 0 && s.ungrouped(inc) {
		s.counts.Ungrouped++
	}

	s.rows.Steps = append(s.rows.Steps, r)
	s.decide(inc, cut, func(p *pendingRange) (int64, uint16) {
		if p.begin < st.Begin {
			return record.NoStep, 0
		}

		return st.Number, st.Repeat
	})

	inc.steps = slices.Delete(inc.steps, 0, 1)
	inc.Serial++
	inc.raise(cut)
	if len(inc.Closed) == maxClosed {
		inc.Closed = slices.Delete(inc.Closed, 0, 1)
	}

	st.End = cut
	inc.Closed = append(inc.Closed, st)
	s.supersede(inc)
}

// raise moves the floor.
func (inc *incarnation) raise(to int64) {
	inc.Floor = max(inc.Floor, to)
	if inc.process != nil {
		inc.process.Floor = inc.Floor
	}

	inc.Switches = slices.DeleteFunc(inc.Switches, func(at int64) bool { return at < inc.Floor })
}

// decide gives out what began before cut, in line order: where says in which step
// it is. Communication is added to the open window.
func (s *Stream) decide(inc *incarnation, cut int64, where func(*pendingRange) (number int64, repeat uint16)) {
	rest, of := inc.pending[:0], s.owner(inc)
	deep := slices.ContainsFunc(inc.pending, func(p pendingRange) bool { return p.kind == record.Communication && p.begin < cut })
	for i := 0; i < len(inc.pending); i++ {
		p := &inc.pending[i]
		if p.begin >= cut {
			from := i // those of the next step follow one another
			for i+1 < len(inc.pending) && inc.pending[i+1].begin >= cut {
				i++
			}

			rest = append(rest, inc.pending[from:i+1]...)
			continue
		}

		number, repeat := where(p)
		if p.kind == record.Communication {
			s.addCall(inc, p.call, p.dur, p.bytes)
		}

		inc.weight -= int(p.weight)
		s.giveRange(of, p, number, repeat, deep)
	}

	inc.pending = rest
}

// supersede ends older incarnations that have gone silent while inc finishes steps.
func (s *Stream) supersede(inc *incarnation) {
	for _, old := range s.incarnations {
		if old.Over || old.Index >= inc.Index {
			continue
		}

		if old.Quiet++; old.Quiet >= supersededAfter && inc.clock()-old.clock() >= int64(supersededFor) {
			s.over(old, 0)
		}
	}
}

// leftovers gives out what is in no window that can be known: with the step that
// its writer wrote down.
func (s *Stream) leftovers(inc *incarnation) {
	if len(inc.pending) == 0 {
		return
	}

	latest := inc.Floor
	for i := range inc.pending {
		latest = max(latest, inc.pending[i].begin+1)
	}

	s.outside(inc, never)
	inc.raise(latest)
}

// outside gives out what began before cut and is in no closed step.
func (s *Stream) outside(inc *incarnation, cut int64) {
	s.decide(inc, cut, func(p *pendingRange) (int64, uint16) {
		number := inc.guess(p)
		if number < 0 {
			s.openWindow(inc, inc.Window.first(), p.start)
			return record.NoStep, 0
		}

		s.openWindow(inc, number, p.start)
		return number, inc.Seen.count(number)
	})
}

// guess returns the step of a range whose window is not closed: one that is open
// yet, one that began and has no end, else what the writer wrote down. A process that hung or was
// killed left such ranges, and they are what somebody wants to see of it.
func (inc *incarnation) guess(p *pendingRange) int64 {
	for _, st := range slices.Backward(inc.steps) {
		if p.begin >= st.Begin && p.begin < st.End {
			return st.Number
		}
	}

	number := p.own
	if inc.process != nil {
		inc.process.Each(func(r *marker.Range) {
			if r.Record.Kind == record.Step && !r.HostEnded() && r.Begin <= p.begin {
				number = r.Record.Step
			}
		})
	}

	return number
}

// closeAtEnd closes what the end of input allows.
func (s *Stream) closeAtEnd(inc *incarnation) {
	for len(inc.steps) > 0 {
		later := slices.ContainsFunc(inc.steps[1:], func(st step) bool { return st.complete })
		if !later && !s.settled(inc) {
			break
		}

		s.closeFirst(inc)
	}

	s.outside(inc, never)
	s.flushWindow(inc)
}

// settled reports whether the first open step and all that it holds is complete.
func (s *Stream) settled(inc *incarnation) bool {
	if !inc.steps[0].complete {
		return false
	}

	return inc.process == nil || inc.paired()
}

// paired reports whether no TaskD range of the first open step waits for a line.
func (inc *incarnation) paired() bool {
	oldest, waits := inc.process.Oldest()
	return !waits || oldest >= inc.cut()
}

// relieve makes room when more waits than memory allows. What goes is counted as Crowded; what
// comes of its step afterwards is late.
func (s *Stream) relieve(inc *incarnation) {
	before := s.counts.given()
	defer func() { s.counts.Crowded += s.counts.given() - before }()
	if len(inc.steps) > 0 {
		s.closeFirst(inc)
		return
	}

	begins := make([]int64, len(inc.pending))
	for i := range inc.pending {
		begins[i] = inc.pending[i].begin
	}

	slices.Sort(begins)
	cut := begins[len(begins)/2] + 1
	if cut == math.MinInt64 {
		return
	}

	s.outside(inc, cut)
	if inc.process != nil {
		s.pairer.Settle(inc.process, cut, func(r *marker.Range) { s.addRange(inc, r) })
		s.outside(inc, cut)
	}

	inc.raise(cut)
}
