package marker

import "github.com/laggard-dev/laggard/schemas/record"

// Process is one process that wrote lines.
type Process struct {
	PID   uint32
	Index uint32 // counts the processes of a Pairer
	First uint64 // its first host time stamp, ns since the Unix epoch
	Floor int64  // set by the caller: ranges that begin before are not followed

	place    Place  // of its first line; zero: before all that is read again
	after    uint64 // host stamps up to here are of an earlier process with this pid
	earliest uint64 // earliest host stamp
	maxID    uint64
	lastHost uint64 // latest host stamp
	recent   uint64 // last host stamp in line order

	open       map[uint64]*Range
	head, tail *Range // of the incomplete ranges that are not overdue, by Begin
	overdue    []*Range
	waiting    int // in the list
	weight     int // of them
}

// begun reports whether the process had written a line before one at a place. Only while
// lines are read again may it not have.
func (p *Process) begun(at Place) bool { return !at.Before(p.place) }

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
	First   Place // of its first line
	Process *Process

	have           uint8
	device         bool // device lines are to come
	overdue        bool
	hs, he, ds, de uint64
	tid            uint32
	npu, stream    uint32 // of the device lines
	weight         int    // see weight
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

// Device returns the number of the device that the range ran on, by its own lines.
func (r *Range) Device() (number uint32, ok bool) {
	return r.npu, r.have&(haveDeviceStart|haveDeviceEnd) != 0 && !r.repeated()
}

// repeated reports whether the device lines repeat the host's: there was no device, see
// Encoder.
func (r *Range) repeated() bool { return r.stream == hostStream && r.ds == r.hs && r.de == r.he }

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
	device := r.have&(haveDeviceStart|haveDeviceEnd) == haveDeviceStart|haveDeviceEnd && r.ds != 0 && r.de != 0 && !r.repeated()
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

// insert puts r into the list of p, which is sorted by Begin: ranges begin nearly
// in line order.
func (p *Process) insert(r *Range) {
	at := p.tail
	for at != nil && at.Begin > r.Begin {
		at = at.prev
	}

	r.prev = at
	if at == nil {
		r.next, p.head = p.head, r
	} else {
		r.next, at.next = at.next, r
	}

	if r.next == nil {
		p.tail = r
	} else {
		r.next.prev = r
	}

	p.waiting++
	p.weight += r.weight
}

// unlink takes r out of the list.
func (p *Process) unlink(r *Range) {
	if r.prev == nil {
		p.head = r.next
	} else {
		r.prev.next = r.next
	}

	if r.next == nil {
		p.tail = r.prev
	} else {
		r.next.prev = r.prev
	}

	r.prev, r.next = nil, nil
	p.waiting--
	p.weight -= r.weight
}

// takeDevice joins a device line; false means it is none of this range's.
func (r *Range) takeDevice(flag uint32, ts uint64, npu, stream uint32) bool {
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

	r.npu, r.stream = npu, stream
	return true
}

// restarted reports whether a start line can't be of p: its Id was drawn before,
// though it is later than anything p did.
func (p *Process) restarted(m *Marker) bool {
	if m.ID > p.maxID || m.Timestamp <= p.lastHost || p.lastHost == 0 {
		return false
	}

	if r := p.open[m.ID]; r != nil {
		return true
	}

	return p.maxID-m.ID >= raceIDs || m.Timestamp-p.lastHost >= raceNs
}

func (p *Process) stamp(m *Marker) {
	if m.Kind == KindMarker && m.starts() {
		p.maxID = max(p.maxID, m.ID)
	}

	if m.Timestamp != 0 && m.Timestamp <= 1<<63-1 {
		p.recent = m.Timestamp
		p.lastHost = max(p.lastHost, m.Timestamp)
		if p.earliest == 0 || m.Timestamp < p.earliest {
			p.earliest = m.Timestamp
		}
	}
}
