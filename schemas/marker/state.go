package marker

import "github.com/laggard-dev/laggard/schemas/record"

// State is what a Pairer knows beyond the ranges that wait for a line. Those are
// rebuilt by reading again the lines from Earliest on; until Live is called
// nothing may be settled, expired or drained.
type State struct {
	Processes []ProcessState `json:"processes,omitempty"` // that began last first
	Gone      []departed     `json:"gone,omitempty"`
	Orphans   []OrphanState  `json:"orphans,omitempty"`
	Index     uint32         `json:"index"`
	Unmatched uint64         `json:"unmatched,omitempty"`
	Clipped   uint64         `json:"clipped,omitempty"`
}

// ProcessState is one process.
type ProcessState struct {
	PID      uint32         `json:"pid"`
	Index    uint32         `json:"index"`
	First    uint64         `json:"first"`
	Floor    int64          `json:"floor"`
	After    uint64         `json:"after,omitempty"`
	MaxID    uint64         `json:"max_id"`
	Earliest uint64         `json:"earliest"`
	LastHost uint64         `json:"last_host"`
	Recent   uint64         `json:"recent"`
	Overdue  []OverdueState `json:"overdue,omitempty"`
}

// OverdueState is a range whose end is long due.
type OverdueState struct {
	Record      record.Record `json:"record"`
	ID          uint64        `json:"id"`
	Begin       int64         `json:"begin"`
	Segment     string        `json:"segment"`
	Offset      int64         `json:"offset"`
	Have        uint8         `json:"have"`
	Device      bool          `json:"device,omitempty"`
	HostStart   uint64        `json:"hs"`
	DeviceStart uint64        `json:"ds,omitempty"`
	DeviceEnd   uint64        `json:"de,omitempty"`
	Thread      uint32        `json:"tid"`
	NPU         uint32        `json:"npu,omitempty"`
	Stream      uint32        `json:"stream,omitempty"`
}

// OrphanState is a line without a start.
type OrphanState struct {
	ID        uint64 `json:"id"`
	Source    uint32 `json:"source"`
	Flag      uint32 `json:"flag"`
	Timestamp uint64 `json:"ts"`
	PID       uint32 `json:"pid"`
	NPU       uint32 `json:"npu,omitempty"`
	Stream    uint32 `json:"stream,omitempty"`
	Segment   string `json:"segment"`
	Offset    int64  `json:"offset"`
}

// State returns the state. name turns a Place's segment into a lasting name.
func (p *Pairer) State(name func(segment uint32) string) State {
	s := State{Index: p.index, Unmatched: p.Unmatched, Clipped: p.Clipped, Gone: p.gone}
	for _, q := range p.live {
		ps := ProcessState{
			PID: q.PID, Index: q.Index, First: q.First, Floor: q.Floor,
			After: q.after, MaxID: q.maxID, Earliest: q.earliest, LastHost: q.lastHost, Recent: q.recent,
		}
		for _, r := range q.overdue {
			ps.Overdue = append(ps.Overdue, OverdueState{
				Record: r.Record, ID: r.ID, Begin: r.Begin, Segment: name(r.Place.Segment), Offset: r.Place.Offset,
				Have: r.have, Device: r.device, HostStart: r.hs, DeviceStart: r.ds, DeviceEnd: r.de,
				Thread: r.tid, NPU: r.npu, Stream: r.stream,
			})
		}

		s.Processes = append(s.Processes, ps)
	}

	for _, k := range p.order {
		o := p.orphans[k]
		s.Orphans = append(s.Orphans, OrphanState{
			ID: k.ID, Source: k.Source, Flag: k.Flag, Timestamp: o.Timestamp, PID: o.PID, NPU: o.Device, Stream: o.Stream,
			Segment: name(o.Place.Segment), Offset: o.Place.Offset,
		})
	}

	return s
}

// Restore makes a fresh Pairer what State described, to be fed the lines from
// Earliest on and then told so by Live. segment is the inverse of State's name.
func (p *Pairer) Restore(s State, segment func(name string) uint32) {
	p.index, p.Unmatched, p.Clipped, p.gone = s.Index, s.Unmatched, s.Clipped, s.Gone
	for _, ps := range s.Processes {
		q := &Process{
			PID: ps.PID, Index: ps.Index, First: ps.First, Floor: ps.Floor,
			after: ps.After, maxID: ps.MaxID, earliest: ps.Earliest, lastHost: ps.LastHost, recent: ps.Recent,
			open: make(map[uint64]*Range),
		}
		for _, o := range ps.Overdue {
			r := &Range{
				Record: o.Record, ID: o.ID, Begin: o.Begin, Process: q, overdue: true,
				Place: Place{Segment: segment(o.Segment), Offset: o.Offset},
				have:  o.Have, device: o.Device, hs: o.HostStart, ds: o.DeviceStart, de: o.DeviceEnd,
				tid: o.Thread, npu: o.NPU, stream: o.Stream,
			}
			q.open[r.ID] = r
			q.overdue = append(q.overdue, r)
		}

		p.live = append(p.live, q)
	}

	for _, o := range s.Orphans {
		p.after = append(p.after, orphan{
			Key: orphanKey{ID: o.ID, Source: o.Source, Flag: o.Flag}, Timestamp: o.Timestamp, PID: o.PID, Device: o.NPU, Stream: o.Stream,
			Place: Place{Segment: segment(o.Segment), Offset: o.Offset},
		})
	}

	p.replay = true
}

// Live ends reading again: the lines that follow are new.
func (p *Pairer) Live() {
	if !p.replay {
		return
	}

	// What found no start among the lines read again had found it before them.
	p.orphans, p.order = nil, nil
	for _, o := range p.after {
		p.await(o)
	}

	p.after, p.replay = nil, false
}
