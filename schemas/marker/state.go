package marker

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// State is what a Pairer knows beyond the ranges that wait for a line. Those are
// rebuilt by reading again the lines from Earliest on; until Live is called
// nothing may be settled, expired or drained.
type State struct {
	Processes []ProcessState  `json:"processes,omitempty"` // that began last first
	Gone      []DepartedState `json:"gone,omitempty"`
	Orphans   []OrphanState   `json:"orphans,omitempty"`
	Index     uint32          `json:"index"`
	Unmatched uint64          `json:"unmatched,omitempty"`
	Clipped   uint64          `json:"clipped,omitempty"`
}

// DepartedState is one process that has ended.
type DepartedState struct {
	departed
	Begun PlaceState `json:"begun,omitzero"`
}

// PlaceState is a Place whose segment has a lasting name; zero for one before Earliest.
type PlaceState struct {
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
}

// ProcessState is one process.
type ProcessState struct {
	Begun    PlaceState     `json:"begun,omitzero"`
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
	Record record.Record `json:"record"`
	ID     uint64        `json:"id"`
	Begin  int64         `json:"begin"`
	PlaceState
	Have        uint8  `json:"have"`
	Device      bool   `json:"device,omitempty"`
	HostStart   uint64 `json:"hs"`
	DeviceStart uint64 `json:"ds,omitempty"`
	DeviceEnd   uint64 `json:"de,omitempty"`
	Thread      uint32 `json:"tid"`
	NPU         uint32 `json:"npu,omitempty"`
	Stream      uint32 `json:"stream,omitempty"`
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
	PlaceState
}

// State returns the state for a reader that begins at low, which is not after Earliest.
// name turns a Place's segment into a lasting name.
func (p *Pairer) State(low Place, name func(segment uint32) string) State {
	s := State{Index: p.index, Unmatched: p.Unmatched, Clipped: p.Clipped}
	place := func(at Place) PlaceState { return PlaceState{Segment: name(at.Segment), Offset: at.Offset} }
	begun := func(at Place) PlaceState {
		if at.Before(low) {
			return PlaceState{}
		}

		return place(at)
	}
	for _, d := range p.gone {
		s.Gone = append(s.Gone, DepartedState{d, begun(d.place)})
	}

	for _, q := range p.live {
		ps := ProcessState{
			PID: q.PID, Index: q.Index, First: q.First, Begun: begun(q.place), Floor: q.Floor,
			After: q.after, MaxID: q.maxID, Earliest: q.earliest, LastHost: q.lastHost, Recent: q.recent,
		}
		for _, r := range q.overdue {
			ps.Overdue = append(ps.Overdue, OverdueState{
				Record: r.Record, ID: r.ID, Begin: r.Begin, PlaceState: place(r.Place),
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
			PlaceState: place(o.Place),
		})
	}

	return s
}

// Restore makes a fresh Pairer what State described, to be fed the lines from
// Earliest on and then told so by Live. segment is the inverse of State's name.
func (p *Pairer) Restore(s State, segment func(name string) uint32) {
	place := func(ps PlaceState) Place {
		if ps == (PlaceState{}) {
			return Place{}
		}

		return Place{Segment: segment(ps.Segment), Offset: ps.Offset}
	}
	p.index, p.Unmatched, p.Clipped = s.Index, s.Unmatched, s.Clipped
	for _, d := range s.Gone {
		d.place = place(d.Begun)
		p.gone = append(p.gone, d.departed)
	}

	for _, ps := range s.Processes {
		q := &Process{
			PID: ps.PID, Index: ps.Index, First: ps.First, Floor: ps.Floor,
			place: place(ps.Begun),
			after: ps.After, maxID: ps.MaxID, earliest: ps.Earliest, lastHost: ps.LastHost, recent: ps.Recent,
			open: make(map[uint64]*Range),
		}
		for _, o := range ps.Overdue {
			r := &Range{
				Record: o.Record, ID: o.ID, Begin: o.Begin, Process: q, overdue: true,
				Place: place(o.PlaceState),
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
			Place: place(o.PlaceState),
		})
	}

	p.replay = true
}

// waits reports whether a line that is read again found no start when it was new, though
// one may be here: what was seen behind it must not decide about it now.
func (p *Pairer) waits(at Place) bool {
	_, found := slices.BinarySearchFunc(p.after, at, func(o orphan, at Place) int {
		return cmp.Or(cmp.Compare(o.Place.Segment, at.Segment), cmp.Compare(o.Place.Offset, at.Offset))
	})
	return found
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
