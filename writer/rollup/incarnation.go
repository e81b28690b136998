package rollup

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// never is later than any moment.
const never = math.MaxInt64

// incarnation is one process of the rank and what is known of it that is not a
// row yet.
//
// Invariant: Floor divides time. What begins (on the host) before it is decided,
// in rows or in the windows; what begins at or after it is in pending, and that
// is all that a restart has to read again.
//
// Its exported fields are what Position.State holds of it; the others are filled again
// by what is read from the Position on.
type incarnation struct {
	ID      record.ID   `json:"id"`
	Index   uint64      `json:"index"`             // counts the stream's incarnations
	Process *uint32     `json:"process,omitempty"` // index of process, nil without one
	Meta    record.Meta `json:"meta"`              // identity; made up for TaskD's
	Version uint32      `json:"version"`
	EndedNs int64       `json:"ended_ns,omitempty"`
	Over    bool        `json:"over,omitempty"`
	Ended   bool        `json:"ended,omitempty"` // by an end line
	Quiet   int         `json:"quiet,omitempty"` // steps that newer incarnations finished since its last line

	Floor  int64            `json:"floor"` // see above
	Now    int64            `json:"now"`   // latest host time seen
	Rings  map[uint32]*ring `json:"rings,omitempty"`
	Closed []step           `json:"closed,omitempty"` // the last ones, oldest first
	Serial uint64           `json:"serial"`           // steps closed
	Seen   passes           `json:"seen"`             // step numbers, how often

	Windows   passes         `json:"windows"`
	Window    window         `json:"window"`
	Switches  []int64        `json:"switches,omitempty"` // moments at or after Floor when the switch changed
	Switching *record.Switch `json:"switching,omitempty"`
	Off       []string       `json:"off,omitempty"`  // as row.Rank has them
	Late      bool           `json:"late,omitempty"` // since the last step row something came late

	process *marker.Process // of TaskD lines; nil for laggard's
	row     row.Rank        // as it was last given out
	steps   []step          // the open ones
	pending []pendingRange
	weight  int // of pending
	dims    map[string]dim
}

// pendingRange is one complete range that waits for its step to close. Strings are left
// out: what a raw row needs more stands in Stream.records.
type pendingRange struct {
	begin      int64 // host start: what assigns it to a step
	start, dur int64
	hostDur    int64 // -1 unknown, or start is the host's
	exposed    int64 // -1 unknown
	bytes      int64
	tokens     int64
	own        int64 // step as the writer knew it
	at         marker.Place
	record     int32 // index into Stream.records, -1 = no raw row
	call       int32 // Communication: index into window.all
	weight     int32 // of the raw row's words
	kind       record.Kind
	side       record.Side
	open       bool
	backward   bool // Other: of that word
}

// end is when the range was over, on the clock of its start.
func (p *pendingRange) end() int64 { return p.start + p.dur }

// step is a step whose own end was seen on the host. Of one that is closed Position.State holds where
// it was, in the exported fields.
type step struct {
	Number     int64  `json:"n"`
	Repeat     uint16 `json:"r,omitempty"` // once it is closed
	Begin, End int64  // host window

	id       uint64 // TaskD: of the range
	complete bool   // its device end was seen too, or there is none to come
	open     bool   // it never ended: its window has no end
}

// maxClosed is the number of closed steps that are remembered for what comes late, 1 KiB of a
// state. The raw row of a range that comes later still names no step.
const maxClosed = 32

// begin adds an incarnation.
func (s *Stream) begin(id record.ID) *incarnation {
	inc := &incarnation{ID: id, Index: s.began, Floor: math.MinInt64, Rings: map[uint32]*ring{}, dims: map[string]dim{}}
	s.began++
	s.incarnations = append(s.incarnations, inc)
	if live := s.live(); len(live) > maxLive { // the one that is silent for the longest time
		s.over(slices.MinFunc(live[:maxLive], func(a, b *incarnation) int { return cmp.Compare(a.clock(), b.clock()) }), 0)
	}

	for i := 0; len(s.incarnations) > maxKept && i < len(s.incarnations); {
		if old := s.incarnations[i]; old.Over {
			s.depart(old)
			s.incarnations = slices.Delete(s.incarnations, i, i+1)
			continue
		}

		i++
	}

	return inc
}

// find returns a remembered incarnation, nil for none. The newest is asked for most.
func (s *Stream) find(id record.ID) *incarnation {
	for _, inc := range slices.Backward(s.incarnations) {
		if inc.ID == id {
			return inc
		}
	}

	return nil
}

// identify takes an identity line.
func (s *Stream) identify(m *record.Meta) {
	src := s.source()
	inc := s.find(m.Incarnation)
	if inc == nil {
		if s.replay {
			return
		}

		inc = s.begin(m.Incarnation)
	}

	src.inc = inc
	if s.replay {
		return
	}

	inc.Quiet = 0
	inc.Meta = s.fitting(inc, m)
	inc.Version++
	inc.dims = map[string]dim{}
	addDims(inc.dims, inc.Meta.Groups)
	s.learnt++
	s.giveRank(inc)
}

// giveRank gives out the rank row when it says something new beside its version.
func (s *Stream) giveRank(inc *incarnation) {
	r := s.rankRow(inc)
	old := inc.row
	old.Version = r.Version
	if reflect.DeepEqual(old, r) {
		return
	}

	inc.row = r
	s.rows.Ranks = append(s.rows.Ranks, r)
}

// rankRow is the row that says who this process is. It has values that a hostile line may have made up,
// bounded to what the columns hold.
func (s *Stream) rankRow(inc *incarnation) row.Rank {
	m := &inc.Meta
	r := row.Rank{
		Job: s.job(inc), Rank: uint32(s.o.Rank), Incarnation: uint64(inc.ID),
		WorldSize: u32(m.WorldSize), LocalRank: uint16(min(u32(m.LocalRank), math.MaxUint16)), Node: s.node(inc),
		Device: m.Device, Pod: m.Pod, PID: u32(m.PID), BootID: m.BootID,
		StartedNs: m.StartedNs, EndedNs: inc.EndedNs, Writer: m.Writer, Version: inc.Version,
		Groups: []string{}, GroupRanks: [][]uint32{}, Off: append([]string{}, inc.Off...),
	}
	for _, g := range m.Groups {
		r.Groups = append(r.Groups, topology.FormatGroup(g))
		ranks := make([]uint32, len(g.Ranks))
		for i, n := range g.Ranks {
			ranks[i] = u32(n)
		}

		r.GroupRanks = append(r.GroupRanks, ranks)
	}

	return r
}

// u32 bounds a number that a hostile line may have made up.
func u32(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// job is the directory's, else what identity lines say.
func (s *Stream) job(inc *incarnation) string { return cmp.Or(s.o.Job, inc.Meta.Job) }

// node is what identity lines say, else what is known beside the files.
func (s *Stream) node(inc *incarnation) string { return cmp.Or(inc.Meta.Node, s.o.Node) }

// ofLine returns the incarnation of a laggard line; a file whose identity line is
// missing is an incarnation of its own.
func (s *Stream) ofLine() *incarnation {
	src := s.source()
	if src.inc == nil {
		id := record.HashID(s.o.Job, strconv.Itoa(s.o.Rank), "segment", src.ID.String())
		src.inc = s.find(id)
		if src.inc == nil && !s.replay {
			src.inc = s.begin(id)
			src.inc.Version = 1
			src.inc.Meta = record.Meta{Job: s.o.Job, WorldSize: s.o.WorldSize, Groups: s.groups}
			s.giveRank(src.inc)
		}
	}

	if src.inc != nil && !s.replay {
		src.inc.Quiet = 0
	}

	return src.inc
}

// switched takes a switch line. Only a change is one; the first line says how the
// process began.
func (s *Stream) switched(w record.Switch) {
	inc := s.ofLine()
	if s.replay || inc == nil {
		return
	}

	if old := inc.Switching; old != nil && (old.Default != w.Default || old.Communication != w.Communication) &&
		w.At >= inc.Floor && len(inc.Switches) < maxWords {
		inc.Switches = append(inc.Switches, w.At)
	}

	inc.Switching = &w
	if s.timely(w.At) && inc.turnOff(!w.Default, w.At) {
		inc.Version++
		s.giveRank(inc)
	}
}

// turnOff notes that recording is off, or on again, from a moment on; it reports whether
// that is news.
func (inc *incarnation) turnOff(off bool, at int64) bool {
	last := len(inc.Off) - 1
	was := last >= 0 && strings.HasSuffix(inc.Off[last], ":")
	switch {
	case off == was || off && len(inc.Off) == row.MaxOff:
		return false
	case off:
		inc.Off = append(inc.Off, strconv.FormatInt(at, 10)+":")
	default:
		inc.Off[last] += strconv.FormatInt(at, 10)
	}

	return true
}

// finish takes an end line.
func (s *Stream) finish(e *record.End) {
	inc := s.ofLine()
	if s.replay || inc == nil {
		return
	}

	inc.Version++
	inc.Ended = true
	s.over(inc, e.At)
}

// over closes everything of an incarnation that is open: it has ended, or seems to
// have. at is when it ended, 0 where no line says so.
func (s *Stream) over(inc *incarnation, at int64) {
	if inc.Over {
		if at != 0 {
			inc.EndedNs = at
			s.giveRank(inc)
		}

		return
	}

	inc.Over = true
	if p := inc.process; p != nil {
		at = max(p.Now(), inc.Now)
		s.pairer.Drain(p, at, func(r *marker.Range) { s.addRange(inc, r) })
		inc.Version++
	}

	for len(inc.steps) > 0 {
		s.closeFirst(inc)
	}

	s.leftovers(inc)
	s.flushWindow(inc)
	inc.Window.forget(&s.words, inc.pending)
	if inc.Ended {
		inc.Floor = never
	}

	if at != 0 {
		inc.EndedNs = at
		s.giveRank(inc)
	}
}

// depart ends an incarnation of TaskD lines for good.
func (s *Stream) depart(inc *incarnation) {
	s.over(inc, 0)
	p := inc.process
	if p == nil {
		return
	}

	s.pairer.Forget(p)
	inc.process, inc.Process, inc.Ended, inc.Floor = nil, nil, true, never
}

// revive goes on with an incarnation that was taken for dead: it has written a line.
func (s *Stream) revive(inc *incarnation) {
	inc.Quiet = 0
	if !inc.Over || inc.Ended {
		return
	}

	inc.Over = false
	if inc.EndedNs != 0 {
		inc.EndedNs = 0
		inc.Version++
		s.giveRank(inc)
	}
}
