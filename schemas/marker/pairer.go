package marker

import (
	"slices"

	"laggard/schemas/record"
)

// Bounds of what waits for its other half.
const (
	maxOpen      = 1 << 16 // ranges of one process
	maxOverdue   = 64      // starts whose end is long due, per process
	maxOrphans   = 4096    // lines whose start was not seen (yet)
	maxProcesses = 16
)

// A restarted process counts its Ids from 1 again. An Id that goes back while time
// goes on is taken for that, unless it could be two threads of one process that
// drew neighbouring Ids and stamped them in the other order.
const (
	raceIDs = 64
	raceNs  = 100e6
)

// slackNs is how far a device's start may lie before its host start: both clocks
// are aligned by sampling, once a range.
const slackNs = 1e9

// Place is where a line stands, in the caller's terms.
type Place struct {
	Segment uint32
	Offset  int64
}

// Result says what a line did.
type Result struct {
	// Range is complete: its last line was this one. It is valid until the next
	// call of Add.
	Range *Range
	// Ended is a range whose host end was this line and whose device lines are
	// still to come.
	Ended *Range
	// Begun is a process whose first line this was.
	Begun *Process
	// Over is a process that has ended, for certain: Begun has its pid and began
	// its Ids anew, or there were too many. It is no longer in the Pairer; Drain
	// yields what it left.
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
// Caveat: a device line says no process. It belongs to the process that last wrote
// a host line among those that wait for that Id.
type Pairer struct {
	// Unmatched counts lines and starts that were given up: an end without a
	// start, a start that never ended.
	Unmatched uint64
	// Replay makes Add follow only what State knows of: see Restore.
	Replay bool

	names   names
	live    []*Process // that wrote a host line last first
	index   uint32
	orphans map[orphanKey]orphan
	order   []orphanKey // of orphans, by arrival
	free    []*Range
	last    *Range // handed out by Add, free at its next call
}

// Process is one process that wrote lines.
type Process struct {
	PID   uint32
	Index uint32 // counts the processes of a Pairer
	First uint64 // its first host time stamp, ns since the Unix epoch
	Floor int64  // set by the caller: ranges that begin before are not followed

	after    uint64 // host stamps up to here are of an earlier process with this pid
	maxID    uint64
	lastHost uint64 // latest host stamp
	recent   uint64 // last host stamp in line order

	open       map[uint64]*Range
	head, tail *Range // of the incomplete ranges that are not overdue, by Begin
	overdue    []*Range
	waiting    int // in the list
}

// Now returns the latest host time stamp, ns since the Unix epoch.
func (p *Process) Now() int64 { return clamp(p.lastHost) }

// Oldest returns the begin of the oldest range that waits for a line, without
// those that Settle declared overdue.
func (p *Process) Oldest() (begin int64, ok bool) {
	if p.head == nil {
		return 0, false
	}
	return p.head.Begin, true
}

// Waiting returns the number of incomplete ranges.
func (p *Process) Waiting() int { return p.waiting + len(p.overdue) }

// Each calls fn for each range that waits for a line, oldest first, without the
// overdue ones.
func (p *Process) Each(fn func(*Range)) {
	for r := p.head; r != nil; r = r.next {
		fn(r)
	}
}

// Range is one range, complete or not.
type Range struct {
	Record  record.Record // times are set when the range is complete or settled
	ID      uint64
	Begin   int64 // host start, ns since the Unix epoch: what assigns it to a step
	Place   Place // of its host start line
	Process *Process

	have           uint8
	device         bool // device lines are to come
	overdue        bool
	hs, he, ds, de uint64
	tid, stream    uint32
	prev, next     *Range
}

const (
	haveHostStart uint8 = 1 << iota
	haveHostEnd
	haveDeviceStart
	haveDeviceEnd
)

// HostEnded reports whether the host's end was seen.
func (r *Range) HostEnded() bool { return r.have&haveHostEnd != 0 }

// HostEnd returns the host's end, ns since the Unix epoch; 0 unknown.
func (r *Range) HostEnd() int64 { return clamp(r.he) }

func (r *Range) complete() bool {
	all := haveHostStart | haveHostEnd
	if r.device {
		all |= haveDeviceStart | haveDeviceEnd
	}
	return r.have == all
}

// settle sets the record's times from the lines that came. It reports whether
// there is a side with a start and an end.
func (r *Range) settle() bool {
	rec := &r.Record
	host := r.have&haveHostEnd != 0 && r.hs != 0 && r.he != 0
	device := r.have&(haveDeviceStart|haveDeviceEnd) == haveDeviceStart|haveDeviceEnd && r.ds != 0 && r.de != 0
	switch {
	case device:
		rec.Side, rec.Thread = record.Device, uint64(r.stream)
		rec.Start, rec.Dur = clamp(r.ds), span(r.ds, r.de)
		if host {
			rec.HostStart, rec.HostDur = clamp(r.hs), span(r.hs, r.he)
		}
	case host:
		rec.Thread = uint64(r.tid)
		rec.Start, rec.Dur = clamp(r.hs), span(r.hs, r.he)
	default:
		rec.Thread = uint64(r.tid)
		rec.Start, rec.Dur = r.Begin, 0
		return false
	}
	return true
}

func span(start, end uint64) int64 { return max(clamp(end)-clamp(start), 0) }

// Add takes one line; at is where it stands.
func (p *Pairer) Add(m *Marker, at Place) Result {
	if p.last != nil {
		p.release(p.last)
		p.last = nil
	}
	switch {
	case m.Kind == KindAPI, m.Kind == KindKernel:
		return p.activity(m, at)
	case m.Kind != KindMarker, m.Source > DeviceSide, !m.starts() && !m.ends():
		return Result{Unknown: true}
	case m.Source == DeviceSide:
		return p.addDevice(m)
	case m.starts():
		return p.addStart(m, at)
	}
	return p.addEnd(m)
}

// activity makes a complete range of an API or kernel line.
func (p *Pairer) activity(m *Marker, at Place) Result {
	var res Result
	if m.Kind == KindAPI {
		if !p.process(m, &res) {
			return res
		}
	} else if len(p.live) > 0 {
		res.Process = p.live[0]
	} else {
		p.drop(1)
		return res
	}
	r := p.take()
	r.Record = p.names.activity(m)
	r.ID, r.Begin, r.Place, r.Process = m.ID, r.Record.Start, at, res.Process
	p.last, res.Range = r, r
	return res
}

// drop counts lines that were given up.
func (p *Pairer) drop(n int) {
	if !p.Replay {
		p.Unmatched += uint64(n)
	}
}

// process finds or begins the process of a host line; false means that the line
// is of a process that has ended.
func (p *Pairer) process(m *Marker, res *Result) bool {
	i := slices.IndexFunc(p.live, func(q *Process) bool { return q.PID == m.Process })
	if i < 0 {
		if p.Replay {
			return false
		}
		p.begin(m, 0, res)
		return true
	}
	q := p.live[i]
	if m.Timestamp != 0 && m.Timestamp <= q.after {
		p.drop(1)
		return false
	}
	if !p.Replay && m.Kind == KindMarker && m.starts() && q.restarted(m) {
		p.live = slices.Delete(p.live, i, i+1)
		res.Over = q
		p.begin(m, q.lastHost, res)
		return true
	}
	if i > 0 {
		copy(p.live[1:i+1], p.live[:i])
		p.live[0] = q
	}
	q.stamp(m)
	res.Process = q
	return true
}

// restarted reports whether a start line can't be of q: its Id was drawn before,
// though it is later than anything q did.
func (q *Process) restarted(m *Marker) bool {
	if m.ID > q.maxID || m.Timestamp <= q.lastHost || q.lastHost == 0 {
		return false
	}
	if r := q.open[m.ID]; r != nil {
		return true
	}
	return q.maxID-m.ID >= raceIDs || m.Timestamp-q.lastHost >= raceNs
}

func (p *Pairer) begin(m *Marker, after uint64, res *Result) {
	q := &Process{PID: m.Process, Index: p.index, First: m.Timestamp, after: after, open: make(map[uint64]*Range)}
	p.index++
	if len(p.live) == maxProcesses && res.Over == nil {
		res.Over = p.live[maxProcesses-1]
		p.live = p.live[:maxProcesses-1]
	}
	p.live = slices.Insert(p.live, 0, q)
	q.stamp(m)
	res.Begun, res.Process = q, q
}

func (q *Process) stamp(m *Marker) {
	if m.Kind == KindMarker && m.starts() {
		q.maxID = max(q.maxID, m.ID)
	}
	if m.Timestamp != 0 && m.Timestamp <= 1<<63-1 {
		q.recent = m.Timestamp
		q.lastHost = max(q.lastHost, m.Timestamp)
	}
}

func (p *Pairer) addStart(m *Marker, at Place) Result {
	var res Result
	if !p.process(m, &res) {
		return res
	}
	q := res.Process
	begin := clamp(m.Timestamp)
	if begin == 0 {
		begin = clamp(q.recent)
	}
	if begin < q.Floor {
		res.Late = true
		return res
	}
	if old := q.open[m.ID]; old != nil { // a line that was written twice, or a lost end
		p.remove(old)
		p.drop(1)
		p.release(old)
	}
	if q.waiting >= maxOpen {
		old := q.head
		p.remove(old)
		p.drop(1)
		p.release(old)
	}
	r := p.take()
	r.Record = p.names.classify(m.Name, m.Domain)
	r.ID, r.Begin, r.Place, r.Process = m.ID, begin, at, q
	r.hs, r.tid = m.Timestamp, m.Thread
	r.have = haveHostStart
	r.device = m.Flag == StartDevice || m.Flag == InstantDevice
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
	r.have |= haveHostEnd
	if r.Record.Kind != record.Communication {
		r.Record = record.New(record.Other)
		r.Record.Name = unnamed
		if !null(m.Name) {
			r.Record.Name = p.names.intern(m.Name)
		}
	}
}

func (p *Pairer) addEnd(m *Marker) Result {
	var res Result
	if !p.process(m, &res) {
		return res
	}
	r := res.Process.open[m.ID]
	if r == nil || r.HostEnded() || m.Timestamp != 0 && m.Timestamp < r.hs {
		p.orphan(m)
		return res
	}
	r.he = m.Timestamp
	r.have |= haveHostEnd
	if !res.finish(p, r) {
		res.Ended = r
	}
	return res
}

func (p *Pairer) addDevice(m *Marker) Result {
	var res Result
	for _, q := range p.live {
		if r := q.open[m.ID]; r != nil && r.takeDevice(m.Flag, m.Timestamp, m.Stream) {
			res.finish(p, r)
			return res
		}
	}
	p.orphan(m)
	return res
}

// takeDevice joins a device line; false means it is none of this range's.
func (r *Range) takeDevice(flag uint32, ts uint64, stream uint32) bool {
	if !r.device || ts != 0 && ts+slackNs < r.hs {
		return false
	}
	switch flag {
	case StartDevice:
		if r.have&haveDeviceStart != 0 {
			return false
		}
		r.ds = ts
		r.have |= haveDeviceStart
	case EndDevice:
		if r.have&haveDeviceEnd != 0 {
			return false
		}
		r.de = ts
		r.have |= haveDeviceEnd
	case InstantDevice:
		r.ds, r.de = ts, ts
		r.have |= haveDeviceStart | haveDeviceEnd
	default:
		return false
	}
	r.stream = stream
	return true
}

// finish hands r out when it is complete.
func (res *Result) finish(p *Pairer, r *Range) bool {
	if !r.complete() {
		return false
	}
	p.remove(r)
	p.last = r
	if !r.settle() {
		p.drop(1)
		return true
	}
	res.Range = r
	return true
}

// insert puts r into the list of q, which is sorted by Begin: ranges begin nearly
// in line order.
func (q *Process) insert(r *Range) {
	at := q.tail
	for at != nil && at.Begin > r.Begin {
		at = at.prev
	}
	r.prev = at
	if at == nil {
		r.next, q.head = q.head, r
	} else {
		r.next, at.next = at.next, r
	}
	if r.next == nil {
		q.tail = r
	} else {
		r.next.prev = r
	}
	q.waiting++
}

// unlink takes r out of the list.
func (q *Process) unlink(r *Range) {
	if r.prev == nil {
		q.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	q.waiting--
}

// remove takes r out of its process.
func (p *Pairer) remove(r *Range) {
	q := r.Process
	delete(q.open, r.ID)
	if r.overdue {
		q.overdue = slices.DeleteFunc(q.overdue, func(o *Range) bool { return o == r })
		return
	}
	q.unlink(r)
}

func (p *Pairer) take() *Range {
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r
	}
	return new(Range)
}

func (p *Pairer) release(r *Range) {
	*r = Range{}
	if len(p.free) < maxOpen/16 {
		p.free = append(p.free, r)
	}
}
