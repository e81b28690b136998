package marker

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Process is one process that wrote lines. Its exported fields are part of State.
type Process struct {
	Begun    Place    `json:"begun,omitzero"` // its first line; zero: before all that is read again
	PID      uint32   `json:"pid"`
	Index    uint32   `json:"index"`           // counts the processes of a Pairer
	First    uint64   `json:"first"`           // its first host time stamp, ns since the Unix epoch
	Floor    int64    `json:"floor"`           // set by the caller: ranges that begin before are not followed
	After    uint64   `json:"after,omitempty"` // host stamps up to here are of an earlier process with this pid
	MaxID    uint64   `json:"max_id"`
	Earliest uint64   `json:"earliest"`          // host stamp
	LastHost uint64   `json:"last_host"`         // latest host stamp
	Recent   uint64   `json:"recent"`            // last host stamp in line order
	Overdue  []*Range `json:"overdue,omitempty"` // ranges whose end is long due

	open    map[uint64]*Range
	waiting []*Range // incomplete and not overdue, by Begin
	weight  int      // of them
}

// begun reports whether the process had written a line before one at a place. Only while
// lines are read again may it not have.
func (p *Process) begun(at Place) bool { return !at.Before(p.Begun) }

// Now returns the latest host time stamp, ns since the Unix epoch.
func (p *Process) Now() int64 { return clamp(p.LastHost) }

// Oldest returns the begin of the oldest range that waits for a line, without
// those that Settle declared overdue.
func (p *Process) Oldest() (begin int64, ok bool) {
	if len(p.waiting) == 0 {
		return 0, false
	}

	return p.waiting[0].Begin, true
}

// Waiting returns the number of incomplete ranges.
func (p *Process) Waiting() int { return len(p.waiting) + len(p.Overdue) }

// Each calls fn for each range that waits for a line, oldest first, without the
// overdue ones.
func (p *Process) Each(fn func(*Range)) {
	for _, r := range p.waiting {
		fn(r)
	}
}

// Range is one range, complete or not.
type Range struct {
	Record record.Record `json:"record"` // times are set when the range is complete or settled
	ID     uint64        `json:"id"`
	Begin  int64         `json:"begin"` // host start, ns since the Unix epoch: what assigns it to a step
	Place                // of its host start line

	// What its lines said so far; HostStart, DeviceStart and DeviceEnd are their stamps.
	Have        uint8  `json:"have"`
	OnDevice    bool   `json:"device,omitempty"` // device lines are to come
	HostStart   uint64 `json:"hs"`
	DeviceStart uint64 `json:"ds,omitempty"`
	DeviceEnd   uint64 `json:"de,omitempty"`
	Thread      uint32 `json:"tid"`
	NPU         uint32 `json:"npu,omitempty"`
	Stream      uint32 `json:"stream,omitempty"`

	First   Place    `json:"-"` // of its first line
	Process *Process `json:"-"`

	he     uint64 // stamp of the host's end
	weight int    // of its record's words
}

const (
	haveHostStart uint8 = 1 << iota
	haveHostEnd
	haveDeviceStart
	haveDeviceEnd
)

// HostEnded reports whether the host's end was seen.
func (r *Range) HostEnded() bool { return r.Have&haveHostEnd != 0 }

// HostEnd returns the host's end, ns since the Unix epoch; 0 unknown.
func (r *Range) HostEnd() int64 { return clamp(r.he) }

// Device returns the number of the device that the range ran on, by its own lines.
func (r *Range) Device() (number uint32, ok bool) {
	return r.NPU, r.Have&(haveDeviceStart|haveDeviceEnd) != 0 && !r.repeated()
}

// repeated reports whether the device lines repeat the host's: there was no device, see
// Encoder.
func (r *Range) repeated() bool {
	return r.Stream == hostStream && r.DeviceStart == r.HostStart && r.DeviceEnd == r.he
}

// complete reports whether all lines of the range have come: two, and of one on a device two more.
func (r *Range) complete() bool {
	all := haveHostStart | haveHostEnd
	if r.OnDevice {
		all |= haveDeviceStart | haveDeviceEnd
	}

	return r.Have == all
}

// settle sets the record's times from the lines that came. It reports whether
// there is a side with a start and an end.
func (r *Range) settle() bool {
	rec := &r.Record
	host := r.Have&haveHostEnd != 0 && r.HostStart != 0 && r.he != 0
	device := r.Have&(haveDeviceStart|haveDeviceEnd) == haveDeviceStart|haveDeviceEnd && r.DeviceStart != 0 && r.DeviceEnd != 0 && !r.repeated()
	switch {
	case device:
		rec.Side, rec.Thread = record.Device, uint64(r.Stream)
		rec.Start, rec.Dur = clamp(r.DeviceStart), span(r.DeviceStart, r.DeviceEnd)
		if host {
			rec.HostStart, rec.HostDur = clamp(r.HostStart), span(r.HostStart, r.he)
		}
	case host:
		rec.Thread = uint64(r.Thread)
		rec.Start, rec.Dur = clamp(r.HostStart), span(r.HostStart, r.he)
	default:
		rec.Thread = uint64(r.Thread)
		rec.Start, rec.Dur = r.Begin, 0
		return false
	}

	return true
}

// span returns the time from start to end, ns; 0 where the end lies before the start.
func span(start, end uint64) int64 { return max(clamp(end)-clamp(start), 0) }

// insert lets r wait, behind those that began with it. Ranges begin nearly in line order, so
// its place is near the end.
func (p *Process) insert(r *Range) {
	i := len(p.waiting)
	for i > 0 && p.waiting[i-1].Begin > r.Begin {
		i--
	}

	p.waiting = slices.Insert(p.waiting, i, r)
	p.weight += r.weight
}

// unlink ends r's wait, and reports whether it waited: an overdue one does not.
func (p *Process) unlink(r *Range) bool {
	i := slices.Index(p.waiting, r)
	if i < 0 {
		return false
	}

	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.weight -= r.weight
	return true
}

// take joins an end on the host, or a device line; false means it is none of this range's.
func (r *Range) take(m *Marker) bool {
	ts := m.Timestamp
	switch {
	case m.Source == DeviceSide:
		return r.OnDevice && (ts == 0 || ts+slackNs >= r.HostStart) && r.takeDevice(m)
	case r.HostEnded() || m.Process != r.Process.PID || ts != 0 && ts < r.HostStart:
		return false
	}

	r.he = ts
	r.Have |= haveHostEnd
	return true
}

// takeDevice is take for what the device stamped.
func (r *Range) takeDevice(m *Marker) bool {
	switch m.Flag {
	case StartDevice:
		if r.Have&haveDeviceStart != 0 {
			return false
		}

		r.DeviceStart = m.Timestamp
		r.Have |= haveDeviceStart
	case EndDevice:
		if r.Have&haveDeviceEnd != 0 {
			return false
		}

		r.DeviceEnd = m.Timestamp
		r.Have |= haveDeviceEnd
	case InstantDevice:
		r.DeviceStart, r.DeviceEnd = m.Timestamp, m.Timestamp
		r.Have |= haveDeviceStart | haveDeviceEnd
	default:
		return false
	}

	r.NPU, r.Stream = m.Device, m.Stream
	return true
}

// restarted reports whether a start line can't be of p: its Id was drawn before,
// though it is later than anything p did.
func (p *Process) restarted(m *Marker) bool {
	if m.ID > p.MaxID || m.Timestamp <= p.LastHost || p.LastHost == 0 {
		return false
	}

	if r := p.open[m.ID]; r != nil {
		return true
	}

	return p.MaxID-m.ID >= raceIDs || m.Timestamp-p.LastHost >= raceNs
}

// stamp notes the Id and the time of a host line. A time that can't be one, or that could
// not be collected (0), moves nothing.
func (p *Process) stamp(m *Marker) {
	if m.starts() {
		p.MaxID = max(p.MaxID, m.ID)
	}

	if m.Timestamp != 0 && m.Timestamp <= 1<<63-1 {
		p.Recent = m.Timestamp
		p.LastHost = max(p.LastHost, m.Timestamp)
		if p.Earliest == 0 || m.Timestamp < p.Earliest {
			p.Earliest = m.Timestamp
		}
	}
}
