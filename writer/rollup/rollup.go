// Package rollup turns the lines of one rank into rows: ranks, steps, windows of
// communication and raw records. It is the one place that decides which step a
// range belongs to and when a step is finished.
//
// A Stream is fed the segments of one rank's directory in order, each line with
// its offset, laggard's lines and TaskD's told apart line by line:
//
//	s := rollup.New(rollup.Options{Job: "j1", Rank: 3})
//	s.Segment(id, "1753000000"); s.Line(0, line); s.Line(312, line); …
//	s.Take(&rows)          // what is finished
//	p := s.LowWater()      // where to begin again after a restart
//
// Which step: a range belongs to the step whose host window holds its host start.
// Windows are half open and ordered by their start; where two overlap, the one
// that starts later begins where it starts. What lies in no window is in no step
// (-1); the step that its writer wrote down counts only where windows can't be
// known: after the last step of a process that died, or that never had one.
//
// When: a step is closed by content alone, when its own end and the end of a later
// step were seen, or when its incarnation is over. Lines of several rings, and
// device lines, overtake each other, so a closing step waits for rings and ranges
// that are behind, for as long as the recorded times (no timer) say that they may
// still come: ringPatience, pairPatience. The first steps of a TaskD process wait for
// its parallel groups as well: GroupPatience.
//
// Invariant: the rows, their order and the counts are a function of the sequence
// of (segment, offset, line) alone, and of the groups beside TaskD's. How it is cut
// into calls, when Take is called, and a restart from LowWater change nothing.
//
// Caveat: End is not content. What it closes early, it closes for this run.
package rollup

import (
	"bytes"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

const (
	// ringPatience is for how long, in recorded time, a closing step waits for a
	// ring that has not come past the step's end: a writer that reads ring after ring
	// puts a second of one before a second of the next (laggard's drain merges them
	// by time). A ring that is silent for longer is not waited for.
	ringPatience = 2 * time.Second
	// pairPatience is the same for the missing lines of a TaskD range. TaskD flushes
	// every 5 s and writes what was flushed one round later.
	pairPatience = 15 * time.Second

	// GroupPatience is the number of steps of a TaskD process that are held for its
	// parallel groups: TaskD writes parallel_group.json at step 5, and a step that is
	// closed before has its communication in no dimension for good. Who reads the
	// files later has the groups from the start, so both get the same rows.
	GroupPatience = 16

	// maxPending bounds the ranges of one incarnation that wait for their step to
	// close: about 13 MB. Beyond, the older half goes without a step.
	maxPending = 1 << 17
	// maxWeight bounds the bytes of their words (record.Weight): long names are
	// as good as many. Beyond, the oldest step is closed as it is, or the older half
	// goes without one.
	maxWeight = 2 << 20
	// maxLive bounds the incarnations that are followed at once, maxKept those that
	// are remembered, so that what comes late finds its step.
	maxLive = 8
	maxKept = 16
	// supersededAfter is the number of steps that a newer incarnation finishes,
	// without a line of the older one in between, and supersededFor the recorded time
	// that it comes ahead, before that one is taken for dead: a host that lost power
	// writes no end line. Two pods of one rank overlap while one of them hands over,
	// and the processes of a rank write in turns: TaskD's of a flush, laggard's of a
	// second. One that writes on after all is followed on; its open step is late.
	supersededAfter = 2
	supersededFor   = pairPatience
)

// Options configure a Stream.
type Options struct {
	Job     string    // "" = as identity lines say
	Rank    int       // the directory's
	Records Selection // zero means Light

	// Of files without identity lines (TaskD's).
	Node      string // also of identity lines that name none
	WorldSize int    // 0 = unknown
	// Groups tells the parallel groups that are known now, by communicator name: the
	// same slice while they are the same. It is asked when a process begins and once a
	// step. nil is none, and none to come.
	Groups func() []record.Group

	// Refused is told of each line that can't be right, with the reason, which is counted
	// and left out; nil is nobody. The line is the stream's again when Refused returns.
	Refused func(offset int64, line []byte, reason string)
}

// Stream is the rollup of one rank. It is not safe for concurrent use.
type Stream struct {
	o      Options
	parser record.Parser
	marker marker.Parser
	pairer marker.Pairer

	segments         map[int64]*source // by number: those that a restart would read again
	reading          *source           // nil before the first
	next             int64             // offset after the last line
	earliest, latest int64             // times that lines of the current segment can have (timesOf)

	incarnations []*incarnation // in the order they began
	began        uint64         // incarnations so far
	groups       []record.Group // as Options.Groups told last
	dims         map[string]dim // of all that it told
	learnt       int            // how often dimensions of groups were learnt, of any incarnation

	kept  []row.Raw    // raw ranges that wait for their step
	spare []int32      // free places in kept
	words record.Words // of lines, kept and raws
	given int          // bytes of words that were given out with rows
	sums  sums

	rows   row.Rows
	raws   []row.Raw // finished; rows has none
	before int       // how many the last Take that gave some out gave
	// counts is where lines are counted: in the account, or while they are read again, which were
	// counted then, where nobody looks.
	counts  *tally
	account tally
	mark    segment.Position // LowWater as of the last Take
	ended   bool

	// Reading again what State says was read, up to a place.
	replay bool
	until  segment.Position
	rings  map[record.ID]map[uint32]*ring // of each incarnation, as the lines read again show them
}

// source is one segment. Its exported fields are part of Position.State.
type source struct {
	Name        string     `json:"name"`
	ID          record.ID  `json:"id"`
	Incarnation *record.ID `json:"incarnation,omitempty"` // of inc

	number int64        // in its name
	inc    *incarnation // of its identity line; nil for foreign lines
}

// New returns a stream.
func New(o Options) *Stream {
	s := &Stream{o: o, segments: map[int64]*source{}, dims: map[string]dim{}, learnt: 1}
	s.counts, s.parser.Words = &s.account, &s.words
	s.earliest, s.latest = timesOf("")
	s.Learn()
	return s
}

// Segment begins a segment: the lines that follow are its.
func (s *Stream) Segment(id record.ID, name string) {
	name = segment.Plain(name)
	number, _ := segment.Number(name)
	src := &source{ID: id, Name: name, number: number}
	if s.replay && s.until.Before(segment.Position{Segment: name}) {
		s.goLive()
	}

	if before := s.segments[number]; s.replay && before != nil && before.ID == id {
		src.inc = before.inc // its identity line may lie before the position
	}

	s.segments[number], s.reading = src, src
	s.next = 0
	s.earliest, s.latest = timesOf(name)
}

// source returns the segment being read, one without a name where none was begun.
func (s *Stream) source() *source {
	if s.reading == nil {
		s.Segment(0, "")
	}

	return s.reading
}

// place returns where a line of the segment being read stands.
func (s *Stream) place(offset int64) marker.Place {
	src := s.source()
	return marker.Place{Segment: src.number, ID: src.ID, Offset: offset}
}

// Line takes one complete line, with or without its '\n', and the offset of its
// first byte in the segment. It keeps nothing of line.
func (s *Stream) Line(offset int64, line []byte) {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}

	s.pass(offset, len(line))
	if s.read(offset, line) {
		return
	}

	// A line that a crash cut in the middle, and another writer's behind it.
	if i := restart(line); i > 0 && s.read(offset, line[i:]) {
		s.counts.Torn++
		return
	}

	s.counts.Garbage++
}

// pass moves on over a line of n bytes.
func (s *Stream) pass(offset int64, n int) {
	s.leaveReplay(offset)
	s.next = offset + int64(n) + 1
	s.counts.Lines++
	s.counts.Bytes += uint64(n) + 1
}

// read takes a line; false means that it is no line of anybody.
func (s *Stream) read(offset int64, line []byte) bool {
	t, err := s.parser.Parse(line)
	if err != nil {
		return false
	}

	switch t {
	case record.LineRecord:
		r := &s.parser.Record
		if !s.timely(r.Start) || !s.timely(r.HostStart) {
			s.refuse(offset, line, r.Word(), BadTime)
			return true
		}

		clamp(r)
		words := s.parser.Numbers
		if !s.parser.Numbered {
			words = s.number(r)
		}

		s.addRecord(r, words, offset)
	case record.LineMeta:
		s.identify(&s.parser.Meta)
	case record.LineLoss:
		if !s.parser.Loss.Plausible() {
			s.refuse(offset, line, "", record.Implausible)
			return true
		}

		l := &s.parser.Loss
		s.counts.Lose(l.Kind, l.Reason, l.Count)
	case record.LineSwitch:
		s.switched(s.parser.Switch)
	case record.LineEnd:
		s.finish(&s.parser.End)
	case record.LineTaskD:
		return s.readMarker(offset, line)
	default:
		// TaskD's writer puts Kind first, which nothing in JSON asks of another one.
		if bytes.Contains(line, []byte(`"Kind"`)) && s.readMarker(offset, line) {
			return true
		}

		s.counts.Unknown++
	}

	return true
}

// restart returns where the last line begins that could stand behind a torn one.
func restart(line []byte) int {
	at := 0
	for _, begin := range [...]string{`{"kind":"`, `{"Kind":`, `{"meta":{`, `{"loss":{`, `{"switch":{`, `{"end":{`} {
		at = max(at, bytes.LastIndex(line, []byte(begin)))
	}

	return at
}

// Torn counts bytes without a '\n' at the end of a segment that will not grow any
// more.
func (s *Stream) Torn(bytes int64) {
	if bytes > 0 {
		s.counts.Torn++
		s.counts.TornBytes += uint64(bytes)
	}
}

// Take appends the finished rows to dst and forgets them. Of an empty dst the
// stream takes the memory in exchange.
func (s *Stream) Take(dst *row.Rows) {
	move(&dst.Ranks, &s.rows.Ranks)
	move(&dst.Steps, &s.rows.Steps)
	move(&dst.Communications, &s.rows.Communications)
	s.takeRaws(dst)
}

// move appends src to dst and empties it, or exchanges them where dst is empty.
func move[T any](dst, src *[]T) {
	if len(*dst) == 0 {
		*dst, *src = *src, (*dst)[:0]
		return
	}

	*dst = append(*dst, *src...)
	*src = (*src)[:0]
}

// End says that no more lines will come: an `ingest` or `analyze` over files as
// they are. It closes the steps whose own end was seen and in which nothing is
// pending, ends incarnations that a newer one has replaced, and gives out what is
// left of them. Nothing may be fed afterwards; LowWater stays what it was before,
// so a later run that finds more lines computes their rows as if there had been
// no End.
func (s *Stream) End() {
	if s.ended {
		return
	}

	s.LowWater()
	s.goLive()
	s.ended = true
	live := s.live()
	for i, inc := range live {
		if i < len(live)-1 {
			s.over(inc, 0)
			continue
		}

		s.closeAtEnd(inc)
	}
}

// Endless reports whether a living process writes TaskD's lines: none of them will ever
// say that it has ended.
func (s *Stream) Endless() bool {
	return slices.ContainsFunc(s.live(), func(inc *incarnation) bool { return inc.process != nil })
}

// Open returns how many steps ended that are not given out yet.
func (s *Stream) Open() (n int) {
	for _, inc := range s.live() {
		n += len(inc.steps)
	}

	return n
}

// live returns the incarnations that are not over, oldest first.
func (s *Stream) live() []*incarnation {
	var all []*incarnation
	for _, inc := range s.incarnations {
		if !inc.Over {
			all = append(all, inc)
		}
	}

	return all
}
