package marker

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Bounds of what waits for its other half: lines are hostile input. A range or a line beyond them
// is given up, and counted as Unmatched.
const (
	maxOpen      = 1 << 16 // ranges of one process: 25 MB
	maxWeight    = 2 << 20 // bytes of their words (record.Weight)
	maxOverdue   = 64      // starts whose end is long due, per process
	maxOrphans   = 4096    // lines whose start was not seen (yet): 500 KB
	maxProcesses = 16      // that write to one directory at a time
	maxGone      = 64      // processes that have ended, whose late lines are still told from others'
)

// A restarted process counts its Ids from 1 again. An Id that goes back while time
// goes on is taken for that, unless it could be two threads of one process that
// drew neighbouring Ids and stamped them in the other order.
const (
	raceIDs = 64
	raceNs  = 100e6
)

// slackNs is how far a device stamp may lie before its range's host start: both
// clocks are aligned by sampling, once a range.
const slackNs = 50e6

// trailNs is how far a device stamp may lie behind the last host stamp of a process
// that is not the youngest.
const trailNs = 1e9

// Place is where a line stands. Segments are read in the order of their numbers.
type Place struct {
	Segment int64     `json:"segment"` // its number
	ID      record.ID `json:"id"`      // of the segment: another file may have had the number before
	Offset  int64     `json:"offset"`
}

// Before reports whether a stands before b.
func (a Place) Before(b Place) bool {
	return a.Segment < b.Segment || a.Segment == b.Segment && a.Offset < b.Offset
}

// compare is for sorting.
func (a Place) compare(b Place) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
}

// Result says what a line did.
type Result struct {
	// Range is complete: its last line was this one.
	Range *Range
	// Ended is a range whose host end was this line and whose device lines are
	// still to come.
	Ended *Range
	// Begun is a process whose first line this was.
	Begun *Process
	// Over is a process that has ended: Begun has its pid and began its Ids anew, or
	// there were too many. It is no longer in the Pairer; Drain yields what it left.
	Over *Process
	// Process is the host line's.
	Process *Process
	// Late is set for the start of a range that began before Process.Floor. The
	// range is not followed.
	Late bool
	// Unknown is set for a line with a Kind, Flag or SourceKind that means nothing.
	Unknown bool
}

// Pairer joins lines to ranges by (process, Id, side), in whatever order they
// come. It keeps apart the processes that wrote to one stream of lines, one after
// the other or at once. The zero value is ready; it is not safe for concurrent use.
//
// Invariant: what it holds is bounded, and what it does depends on nothing but the
// lines and the calls of Settle, Expire and Drain between them.
//
// Caveat: a device line says no process. It belongs to the youngest one that was
// there at its time and waits for a line of its Id, to an older one only while that
// one lives.
type Pairer struct {
	// Unmatched counts lines and starts that were given up: an end without a
	// start, a start that never ended.
	Unmatched uint64
	// Clipped counts words that were cut to record.MaxWord.
	Clipped uint64

	seen    map[string]word // by text, see word
	names   cursor          // over the name of a communication
	live    []*Process      // that began last first
	index   uint32
	gone    []*Process           // that have ended, oldest first
	orphans map[orphanKey]Marker // lines whose range's start was not seen

	replay bool     // lines are read again: see Restore
	after  []Marker // what orphans is when that is over, in the order of the lines
}

// Add takes one line; at is where it stands.
func (p *Pairer) Add(m *Marker, at Place) Result {
	m.Place = at
	switch {
	case p.replay && p.waits(at):
		return Result{}
	case m.Kind != KindMarker, m.Source > DeviceSide, !m.starts() && !m.ends():
		return Result{Unknown: true}
	case m.Source == DeviceSide:
		return p.addDevice(m)
	case m.starts():
		return p.addStart(m)
	}

	return p.addEnd(m)
}

// drop counts lines that were given up.
func (p *Pairer) drop(n int) {
	if !p.replay {
		p.Unmatched += uint64(n)
	}
}

// process finds or begins the process of a host line; false means that the line
// is of a process that has ended.
func (p *Pairer) process(m *Marker, res *Result) bool {
	i := slices.IndexFunc(p.live, func(q *Process) bool { return q.PID == m.Process })
	if i < 0 {
		if p.replay {
			return false
		}

		if m.Timestamp != 0 && m.Timestamp <= p.lastOf(m.Process) {
			p.drop(1)
			return false
		}

		p.begin(m, res)
		return true
	}

	q := p.live[i]
	if m.Timestamp != 0 && m.Timestamp <= q.After {
		p.drop(1)
		return false
	}

	if !p.replay && m.starts() && q.restarted(m) {
		p.live = slices.Delete(p.live, i, i+1)
		res.Over = q
		p.depart(q)
		p.begin(m, res)
		return true
	}

	q.stamp(m)
	res.Process = q
	return true
}

// depart remembers a process that has ended, in the place of the oldest when there are too
// many: its lines may still come, and be read again, and are not to be taken for another's.
func (p *Pairer) depart(q *Process) {
	if len(p.gone) == maxGone {
		p.gone = slices.Delete(p.gone, 0, 1)
	}

	p.gone = append(p.gone, q)
}

// absorbed reports whether a device line is of a process that has ended and is
// younger than the one with an index.
func (p *Pairer) absorbed(m *Marker, index uint32) bool {
	for _, d := range p.gone {
		if d.Index > index && d.Begun.Before(m.Place) && m.ID <= d.MaxID && (m.Timestamp == 0 || m.Timestamp+slackNs >= d.Earliest) {
			return true
		}
	}

	return false
}

// lastOf returns the last host stamp of the ended processes with a pid.
func (p *Pairer) lastOf(pid uint32) uint64 {
	last := uint64(0)
	for _, d := range p.gone {
		if d.PID == pid {
			last = max(last, d.LastHost)
		}
	}

	return last
}

// begin makes a process of its first line.
func (p *Pairer) begin(m *Marker, res *Result) {
	after := p.lastOf(m.Process)
	q := &Process{PID: m.Process, Index: p.index, First: m.Timestamp, Begun: m.Place, After: after, open: make(map[uint64]*Range)}
	p.index++
	if len(p.live) == maxProcesses && res.Over == nil { // the one that is silent for the longest time
		res.Over = slices.MinFunc(p.live, func(a, b *Process) int { return cmp.Compare(a.LastHost, b.LastHost) })
		p.Forget(res.Over)
	}

	p.live = slices.Insert(p.live, 0, q)
	q.stamp(m)
	res.Begun, res.Process = q, q
}

// addStart begins a range. A start without a time (0: it could not be collected) is taken
// to be as late as the host line before it.
func (p *Pairer) addStart(m *Marker) Result {
	var res Result
	if !p.process(m, &res) {
		return res
	}

	q := res.Process
	begin := clamp(m.Timestamp)
	if begin == 0 {
		begin = clamp(q.Recent)
	}

	if begin < q.Floor {
		res.Late = true
		return res
	}

	if old := q.open[m.ID]; old != nil { // a line that was written twice, or a lost end
		p.remove(old)
		p.drop(1)
	}

	for len(q.waiting) >= maxOpen || q.weight > maxWeight {
		p.remove(q.waiting[0])
		p.drop(1)
	}

	r := &Range{
		Record: p.classify(m.Name, m.Domain), ID: m.ID, Begin: begin, Place: m.Place, First: m.Place, Process: q,
		HostStart: m.Timestamp, Thread: m.Thread, Have: haveHostStart, OnDevice: m.Flag == StartDevice || m.Flag == InstantDevice,
	}
	r.weight = r.Record.Weight()
	if m.instant() {
		p.instant(r, m)
	}

	q.open[m.ID] = r
	q.insert(r)
	p.adopt(r)
	res.finish(p, r)
	return res
}

// instant makes a moment of a range: its end is its start. Whatever its name, it
// is no Step and no FP: those last.
func (p *Pairer) instant(r *Range, m *Marker) {
	r.he = m.Timestamp
	r.Have |= haveHostEnd
	if r.Record.Kind != record.Communication {
		r.Record = record.New(record.Other)
		r.Record.Name = unnamed
		if !null(m.Name) {
			r.Record.Name = p.word(m.Name).text
		}
	}
}

// addEnd ends a range on the host. An end that no range of its process waits for, or that
// lies before the range's start, waits for another start (orphan).
func (p *Pairer) addEnd(m *Marker) Result {
	var res Result
	if !p.process(m, &res) {
		return res
	}

	r := res.Process.open[m.ID]
	if r == nil || !r.take(m) {
		p.orphan(m)
		return res
	}

	if !res.finish(p, r) {
		res.Ended = r
	}

	return res
}

// addDevice joins a device line to a range of the process that it most likely belongs to:
// the youngest first, see Pairer.
func (p *Pairer) addDevice(m *Marker) Result {
	var res Result
	passed := false // a younger process that was there does not wait for it
	for i, q := range p.live {
		first := i == len(p.live)-1 && len(p.gone) == 0 // then nobody else can have written it
		if !q.begun(m.Place) || m.Timestamp != 0 && m.Timestamp+slackNs < q.Earliest && !first {
			continue
		}

		if p.absorbed(m, q.Index) || passed && m.Timestamp > q.LastHost+trailNs {
			break
		}

		if r := q.open[m.ID]; r != nil && r.take(m) {
			res.finish(p, r)
			return res
		}

		passed = true
	}

	p.orphan(m)
	return res
}

// finish hands r out when it is complete.
func (res *Result) finish(p *Pairer, r *Range) bool {
	if !r.complete() {
		return false
	}

	p.remove(r)
	if !r.settle() {
		p.drop(1)
		return true
	}

	res.Range = r
	return true
}

// remove takes r out of its process.
func (p *Pairer) remove(r *Range) {
	q := r.Process
	delete(q.open, r.ID)
	if !q.unlink(r) {
		q.Overdue = slices.DeleteFunc(q.Overdue, func(o *Range) bool { return o == r })
	}
}
