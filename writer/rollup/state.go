package rollup

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// ErrPosition is returned by Resume, wrapped, for a Position that is not of this
// rank or of another version. The rank is then read from its oldest segment.
var ErrPosition = errors.New("not a position of this stream")

// stateVersion changes with every change of state that an older reader would
// misread.
const stateVersion = 4

// state is Position.State, some kilobytes of JSON: everything as of the line at Until, but for
// what is pending. Lines from the Position up to there are read again only to fill that.
type state struct {
	Version      int              `json:"v"`
	Job          string           `json:"job"`
	Rank         int              `json:"rank"`
	Until        segment.Position `json:"until"` // without a State
	Sources      []*source        `json:"sources"`
	Began        uint64           `json:"began"`
	Incarnations []*incarnation   `json:"incarnations"`
	Pairer       marker.State     `json:"pairer"`
	Counts       tally            `json:"counts"`
}

// OpenCalls reads a Position's State: how many calls the open windows sum up, of lines
// before the Position that are in no row yet, and up to where (Segment, Offset) lines
// were read.
func OpenCalls(text string) (calls uint64, until segment.Position, err error) {
	var st state
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Version != stateVersion {
		return 0, segment.Position{}, fmt.Errorf("%w: version %d, %v", ErrPosition, st.Version, err)
	}

	for _, inc := range st.Incarnations {
		if inc.Window.Open {
			for _, c := range inc.Window.Calls {
				calls += uint64(c.Count)
			}
		}
	}

	return calls, st.Until, nil
}

// LowWater returns where a restart must begin so that nothing is lost: a stream
// that Resumes there and is fed the lines from there on goes on as this one will.
// It covers the rows that were taken: while there are finished ones that were not,
// it returns what it last was, so call it right after Take.
func (s *Stream) LowWater() segment.Position {
	if s.replay || s.ended || s.rows.Len()+len(s.raws) > 0 || s.reading == nil {
		return s.mark
	}

	low := s.place(s.next)
	for _, inc := range s.incarnations {
		for i := range inc.pending {
			if at := inc.pending[i].at; at.Before(low) {
				low = at
			}
		}
	}

	low = s.pairer.Earliest(low)
	text, err := json.Marshal(s.state(low))
	if err != nil {
		panic("BUG: marshal rollup state: " + err.Error())
	}

	s.mark = segment.Position{Segment: s.segments[low.Segment].Name, Offset: low.Offset, State: string(text)}
	return s.mark
}

// state collects the state, and forgets the segments before low.
func (s *Stream) state(low marker.Place) *state {
	st := &state{
		Version: stateVersion, Job: s.o.Job, Rank: s.o.Rank, Began: s.began, Counts: s.account,
		Until: segment.Position{Segment: s.reading.Name, Offset: s.next}, Incarnations: s.incarnations,
		Pairer: s.pairer.State(low),
	}
	maps.DeleteFunc(s.segments, func(number int64, _ *source) bool { return number < low.Segment })
	for _, i := range slices.Sorted(maps.Keys(s.segments)) {
		src := s.segments[i]
		if src.inc != nil {
			src.Incarnation = &src.inc.ID
		}

		st.Sources = append(st.Sources, src)
	}

	return st
}

// Resume makes a new stream go on from p. The lines from p on (or from any earlier
// place) must follow: Segment with p's segment, then its lines. A zero Position is
// the start of the oldest segment.
func (s *Stream) Resume(p segment.Position) error {
	if p.State == "" {
		if p == (segment.Position{}) {
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

	s.account, s.began, s.incarnations = st.Counts, st.Began, st.Incarnations
	s.counts = &tally{}
	for _, src := range st.Sources {
		if src.Incarnation != nil {
			src.inc = s.find(*src.Incarnation)
		}

		src.number, _ = segment.Number(src.Name)
		s.segments[src.number] = src
	}

	s.pairer.Restore(st.Pairer)
	for _, q := range s.pairer.Processes() {
		for _, inc := range s.incarnations {
			if inc.Process != nil && *inc.Process == q.Index {
				inc.process = q
			}
		}
	}

	for _, inc := range s.incarnations {
		inc.restore(&s.words)
		inc.row = s.rankRow(inc)
	}

	s.groups = nil // what these were told may be older
	s.mark = p
	s.replay, s.until, s.rings = true, st.Until, map[record.ID]map[uint32]*ring{}
	return nil
}

// restore fills what follows from a state's fields. What is pending is read again.
func (inc *incarnation) restore(words *record.Words) {
	if inc.Rings == nil {
		inc.Rings = map[uint32]*ring{}
	}

	inc.dims = map[string]dim{}
	addDims(inc.dims, inc.Meta.Groups)
	w := &inc.Window
	for _, c := range w.Calls {
		w.all[w.named(words, c.Group, c.Op)] = c
	}
}

// leaveReplay ends reading again when the next line is one that is new.
func (s *Stream) leaveReplay(offset int64) {
	if !s.replay {
		return
	}

	next := segment.Position{Offset: offset}
	if s.reading != nil {
		next.Segment = s.reading.Name
	}

	if !next.Before(s.until) {
		s.goLive()
	}
}

// goLive ends reading again: from the next line on everything counts, and no ring is compared with what it was.
func (s *Stream) goLive() {
	s.replay, s.counts = false, &s.account
	s.pairer.Live()
	s.until, s.rings = segment.Position{}, nil
}
