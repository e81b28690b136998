package rollup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Position is where a restart begins: the first line that something open needs,
// and what can't be read from there on.
type Position struct {
	// Segment and Offset name the line; Segment has no ".zst" ending. "" is the
	// oldest segment there is.
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	// State is opaque: identities, counts, sums of the open windows, and up to where
	// the rows are done. It is some kilobytes of JSON text.
	State string `json:"state,omitempty"`
}

// ErrPosition is returned by Resume, wrapped, for a Position that is not of this
// rank or of another version. The rank is then read from its oldest segment.
var ErrPosition = errors.New("not a position of this stream")

// stateVersion changes with every change of state that an older reader would
// misread.
const stateVersion = 1

// state is Position.State: everything as of the line at Until, but for what is
// pending. Lines from the Position up to there are read again only to fill that.
type state struct {
	Version      int                `json:"v"`
	Job          string             `json:"job"`
	Rank         int                `json:"rank"`
	Until        lineRef            `json:"until"`
	Sources      []sourceState      `json:"sources"`
	Began        uint64             `json:"began"`
	Incarnations []incarnationState `json:"incarnations"`
	Pairer       marker.State       `json:"pairer"`
	Counts       tally              `json:"counts"`
}

// OpenCalls reads a Position's State: how many calls the open windows sum up, of lines
// before the Position that are in no row yet, and up to where (Segment, Offset) lines
// were read.
func OpenCalls(text string) (calls uint64, until Position, err error) {
	var st state
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Version != stateVersion {
		return 0, Position{}, fmt.Errorf("%w: version %d, %v", ErrPosition, st.Version, err)
	}

	for i := range st.Incarnations {
		if w := &st.Incarnations[i].Window; w.Open {
			for _, c := range w.Calls {
				calls += uint64(c.Count)
			}
		}
	}

	return calls, Position{Segment: st.Until.Segment, Offset: st.Until.Offset}, nil
}

// lineRef names a line.
type lineRef struct {
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
}

type sourceState struct {
	Name        string     `json:"name"`
	ID          record.ID  `json:"id"`
	Incarnation *record.ID `json:"incarnation,omitempty"`
}

type incarnationState struct {
	ID        record.ID        `json:"id"`
	Index     uint64           `json:"index"`
	Process   *uint32          `json:"process,omitempty"` // marker.Process.Index
	Meta      record.Meta      `json:"meta"`
	Version   uint32           `json:"version"`
	EndedNs   int64            `json:"ended_ns,omitempty"`
	Over      bool             `json:"over,omitempty"`
	Ended     bool             `json:"ended,omitempty"`
	Quiet     int              `json:"quiet,omitempty"`
	Floor     int64            `json:"floor"`
	Now       int64            `json:"now"`
	Rings     map[uint32]*ring `json:"rings,omitempty"`
	Closed    []closedStep     `json:"closed,omitempty"`
	Serial    uint64           `json:"serial"`
	Seen      passes           `json:"seen"`
	Windows   passes           `json:"windows"`
	Window    windowState      `json:"window"`
	Switches  []int64          `json:"switches,omitempty"`
	Switching *record.Switch   `json:"switching,omitempty"`
	Off       []string         `json:"off,omitempty"`
	Late      bool             `json:"late,omitempty"`
}

type windowState struct {
	Number int64       `json:"number"`
	Repeat uint16      `json:"repeat,omitempty"`
	Open   bool        `json:"open"`
	Start  int64       `json:"start"`
	Calls  []callState `json:"calls,omitempty"`
}

type callState struct {
	Group, Op            string
	Count, Steps         uint32
	Serial               uint64
	Total, Min, Max, Sum int64
}

// LowWater returns where a restart must begin so that nothing is lost: a stream
// that Resumes there and is fed the lines from there on goes on as this one will.
// It covers the rows that were taken: while there are finished ones that were not,
// it returns what it last was, so call it right after Take.
func (s *Stream) LowWater() Position {
	if s.replay || s.ended || !s.taken {
		return s.mark
	}

	low := marker.Place{Segment: s.current, Offset: s.next}
	for _, inc := range s.incarnations {
		for i := range inc.pending {
			if p := (marker.Place{Segment: inc.pending[i].segment, Offset: inc.pending[i].offset}); p.Before(low) {
				low = p
			}
		}
	}

	low = s.pairer.Earliest(low)
	src := s.segments[low.Segment]
	if src == nil {
		return s.mark
	}

	text, err := json.Marshal(s.state(low))
	if err != nil {
		panic("BUG: marshal rollup state: " + err.Error())
	}

	s.mark = Position{Segment: src.name, Offset: low.Offset, State: string(text)}
	return s.mark
}

// state collects the state, and forgets the segments before low that nothing
// names any more.
func (s *Stream) state(low marker.Place) *state {
	st := &state{
		Version: stateVersion, Job: s.o.Job, Rank: s.o.Rank, Began: s.began, Counts: s.counts,
		Until: lineRef{s.segments[s.current].name, s.next},
	}
	needed := map[uint32]bool{s.current: true}
	for i := range s.segments {
		needed[i] = i >= low.Segment
	}

	name := func(segment uint32) string {
		needed[segment] = true
		if src := s.segments[segment]; src != nil {
			return src.name
		}

		return ""
	}
	st.Pairer = s.pairer.State(low, name)
	maps.DeleteFunc(s.segments, func(i uint32, _ *source) bool { return !needed[i] })

	for _, i := range slices.Sorted(maps.Keys(needed)) {
		src := s.segments[i]
		if src == nil {
			continue
		}

		ss := sourceState{Name: src.name, ID: src.id}
		if src.inc != nil {
			ss.Incarnation = &src.inc.id
		}

		st.Sources = append(st.Sources, ss)
	}

	for _, inc := range s.incarnations {
		st.Incarnations = append(st.Incarnations, inc.state())
	}

	return st
}

// state is what restored needs to make the incarnation again.
func (inc *incarnation) state() incarnationState {
	w := &inc.window
	st := incarnationState{
		ID: inc.id, Index: inc.index, Meta: inc.meta, Version: inc.version, EndedNs: inc.endedNs,
		Over: inc.over, Ended: inc.ended, Quiet: inc.quiet, Floor: inc.floor, Now: inc.now, Rings: inc.rings,
		Closed: inc.closed, Serial: inc.serial, Seen: inc.seen, Windows: inc.windows,
		Window:   windowState{Number: w.number, Repeat: w.repeat, Open: w.open, Start: w.start},
		Switches: inc.switches, Switching: inc.switching, Off: slices.Clone(inc.off), Late: inc.late,
	}
	if inc.process != nil {
		st.Process = &inc.process.Index
	}

	for _, i := range w.order {
		c, n := &w.calls[i], w.names[i]
		st.Window.Calls = append(st.Window.Calls, callState{
			Group: n.group, Op: n.op, Count: c.count, Steps: c.steps, Serial: c.serial,
			Total: c.total, Min: c.min, Max: c.max, Sum: c.bytes,
		})
	}

	return st
}

// Resume makes a new stream go on from p. The lines from p on (or from any earlier
// place) must follow: Segment with p's segment, then its lines. A zero Position is
// the start of the oldest segment.
func (s *Stream) Resume(p Position) error {
	if p.State == "" {
		if p == (Position{}) {
			return nil
		}

		return fmt.Errorf("resume at %s:%d: %w: it has no state", p.Segment, p.Offset, ErrPosition)
	}

	var st state
	if err := json.Unmarshal([]byte(p.State), &st); err != nil {
		return fmt.Errorf("resume at %s:%d: %w: %v", p.Segment, p.Offset, ErrPosition, err)
	}

	if st.Version != stateVersion || st.Job != s.o.Job || st.Rank != s.o.Rank {
		return fmt.Errorf("resume at %s:%d: %w: it is of version %d, job %q, rank %d",
			p.Segment, p.Offset, ErrPosition, st.Version, st.Job, st.Rank)
	}

	s.counts, s.began = st.Counts, st.Began
	for i := range st.Incarnations {
		s.incarnations = append(s.incarnations, restored(&st.Incarnations[i]))
	}

	names := map[string]uint32{}
	for _, ss := range st.Sources {
		s.newest++
		src := &source{id: ss.ID, name: ss.Name}
		if ss.Incarnation != nil {
			src.inc = s.find(*ss.Incarnation)
		}

		s.segments[s.newest] = src
		names[ss.Name] = s.newest
	}

	s.pairer.Restore(st.Pairer, func(name string) uint32 { return names[name] })
	for _, q := range s.pairer.Processes() {
		for j := range st.Incarnations {
			if x := st.Incarnations[j].Process; x != nil && *x == q.Index {
				s.incarnations[j].process = q
				s.foreign[q] = s.incarnations[j]
			}
		}
	}

	for _, inc := range s.incarnations {
		inc.row = s.rankRow(inc)
	}

	s.groups = nil // what these were told may be older
	s.mark = p
	s.replay = true
	s.until = until{lineRef: st.Until, sources: names}
	return nil
}

// restored is the incarnation that a state was taken of, but for what is pending: its lines are read
// again. It undoes incarnation.state.
func restored(st *incarnationState) *incarnation {
	inc := &incarnation{
		id: st.ID, index: st.Index, meta: st.Meta, version: st.Version, endedNs: st.EndedNs,
		over: st.Over, ended: st.Ended, quiet: st.Quiet, floor: st.Floor, now: st.Now, rings: st.Rings,
		closed: st.Closed, serial: st.Serial, seen: st.Seen, windows: st.Windows,
		switches: st.Switches, switching: st.Switching, off: st.Off, late: st.Late, dims: map[string]dim{},
	}
	if inc.rings == nil {
		inc.rings = map[uint32]*ring{}
	}

	addDims(inc.dims, st.Meta.Groups)
	w := &inc.window
	w.number, w.repeat, w.open, w.start = st.Window.Number, st.Window.Repeat, st.Window.Open, st.Window.Start
	for _, c := range st.Window.Calls {
		i := w.find(callName{c.Group, c.Op})
		w.calls[i] = call{
			count: c.Count, steps: c.Steps, serial: c.Serial, total: c.Total, min: c.Min, max: c.Max, bytes: c.Sum,
		}
		w.order = append(w.order, i)
	}

	return inc
}

// until is where reading again ends.
type until struct {
	lineRef
	sources map[string]uint32 // segments that State names: all from the position on
	rings   map[record.ID]map[uint32]*ring
}

// replayed returns the rings of an incarnation as the lines read again show them.
func (u *until) replayed(id record.ID) map[uint32]*ring {
	if u.rings == nil {
		u.rings = map[record.ID]map[uint32]*ring{}
	}

	if u.rings[id] == nil {
		u.rings[id] = map[uint32]*ring{}
	}

	return u.rings[id]
}

// leaveReplay ends reading again when the next line is one that is new.
func (s *Stream) leaveReplay(offset int64) {
	if !s.replay {
		return
	}

	name := ""
	if src := s.segments[s.current]; src != nil {
		name = src.name
	}

	if c := compareNames(name, s.until.Segment); c < 0 || c == 0 && offset < s.until.Offset {
		return
	}

	s.goLive()
}

func (s *Stream) goLive() {
	s.replay = false
	s.pairer.Live()
	s.until = until{}
}

// compareNames orders segment names as numbers.
func compareNames(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
