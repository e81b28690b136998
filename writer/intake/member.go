package intake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// member is one rank directory that this process ships: its stream of lines, what
// they become, and where that goes. It stands between tail and roller as a
// tail.Visitor to keep the account of each segment.
type member struct {
	stream *tail.Stream
	lease  *tail.Lease
	roller *rollup.Stream
	out    *ship.Stream

	// rows were taken from the roller and not yet put, with mark: a Put that was
	// broken off must not be skipped.
	rows *row.Rows
	mark any
	// spare is what the roller's rows are taken into.
	spare *row.Rows
	// unmarked is true when lines were read since the last mark, made at marked.
	unmarked bool
	marked   time.Time
	behind   bool // a segment was begun since the last mark, or it is in one before
	// unreadable is the last error of reading, said once.
	unreadable string

	segment account // the one being counted
	reading string  // name of the one being read
	entries []row.Ledger
	from    int64     // segments with a smaller number were stored before this process
	id      record.ID // of the segment being read
	refuse  func(id record.ID, line []byte, reason, text string)
	altered map[string]uint64 // as of the last look
}

// account is where the account of a segment begins. It is segment.Position.State, and holds that of the
// roller there.
type account struct {
	Name   string        `json:"name"`
	ID     record.ID     `json:"id"`
	Base   rollup.Counts `json:"base"` // as of its first line
	Roller string        `json:"roller"`
}

// Segment implements tail.Visitor.
func (m *member) Segment(id record.ID, name string) {
	before := segment.Position{Segment: m.segment.Name}
	if before.Segment == "" || before.Before(segment.Position{Segment: name}) || name == before.Segment && id != m.segment.ID {
		m.closeSegment()
		m.segment = account{Name: name, ID: id, Base: m.roller.Counts()}
		m.behind = true
	} // else it is read again, only to fill what is open

	m.reading, m.id = name, id
	m.roller.Segment(id, name)
}

// unknownLine is the reason of lines of a type that is not known here.
const unknownLine = "unknown"

// Line implements tail.Visitor.
func (m *member) Line(offset int64, line []byte) { m.roller.Line(offset, line) }

// why says what the reason of a line that is refused means.
var why = map[string]string{
	rollup.BadTime:     fmt.Sprintf("the time is more than %.0f years from the segment's", rollup.Around.Hours()/24/365),
	record.Implausible: fmt.Sprintf("no writer can lose more than %d records between two lines", uint64(record.MaxLoss)),
}

// refuseLine keeps a line that can't be right, which the roller has counted, as a dead letter.
func (m *member) refuseLine(offset int64, line []byte, reason string) {
	id := record.HashID(m.id.String(), strconv.FormatInt(offset, 10))
	m.refuse(id, line, reason, fmt.Sprintf("%s: %s/%s at %d: %s", reason, m.stream.Dir.Path, m.reading, offset, why[reason]))
}

// Torn implements tail.Visitor.
func (m *member) Torn(bytes int64) { m.roller.Torn(bytes) }

// closeSegment writes what became of the records that were read in the current
// segment into the ledger. A segment that is read again after it has grown gets
// new entries with a larger LastOffset: of entries that agree in segment, state,
// reason and kind (and have no batch) the one with the largest LastOffset counts.
func (m *member) closeSegment() {
	if m.segment.Name == "" {
		return
	}

	now, base := m.roller.Counts(), m.segment.Base
	number, _ := segment.Number(m.segment.Name)
	entry := row.Ledger{
		Job: m.stream.Dir.Job, Rank: uint32(m.stream.Dir.Rank), Segment: m.segment.ID, Name: m.segment.Name,
		LastOffset: now.Bytes - base.Bytes, AtNs: number * int64(time.Second),
	}
	emitted := maps.Clone(now.Emitted)
	slices.SortFunc(now.Lost, func(a, b record.Loss) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	for _, l := range now.Lost {
		n := l.Count - min(base.LostAs(l.Kind, l.Reason), l.Count)
		if n == 0 {
			continue
		}

		e := entry
		e.State, e.Kind, e.Reason, e.Records = "dropped", l.Kind, l.Reason, n
		m.entries = append(m.entries, e)
		if l.Reason != rollup.LateRange {
			emitted[l.Kind] += n
		}
	}

	m.enter(entry, "emitted", emitted, base.Emitted)
	m.enter(entry, "stored", now.Stored, base.Stored)
	entry.Reason = record.NotSelected
	m.enter(entry, "summarised", now.Summarised, base.Summarised)
	entry.State = "dropped"
	if n := now.Garbage - base.Garbage; n > 0 {
		entry.Reason, entry.Records = record.Corrupt, n
		m.lose(entry)
	}

	if n := now.Unknown - base.Unknown; n > 0 { // of a newer version
		entry.Reason, entry.Records = unknownLine, n
		m.lose(entry)
	}
}

// lose adds the entry of records that are gone, and that they were emitted.
func (m *member) lose(e row.Ledger) {
	emitted := e
	emitted.State, emitted.Reason = "emitted", ""
	m.entries = append(m.entries, emitted, e)
}

// enter adds an entry for each kind whose count has grown, in the order of their words: the same
// segment gives the same entries in the same order.
func (m *member) enter(e row.Ledger, state string, now, was map[string]uint64) {
	e.State = state
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		if n := now[kind] - min(was[kind], now[kind]); n > 0 {
			e.Kind, e.Records = kind, n
			m.entries = append(m.entries, e)
		}
	}
}

// markDue reports whether a position is to go with the next rows. Ageing can delete a segment
// without loss only when a mark lies behind it, so a new segment makes one due sooner.
func (m *member) markDue() bool {
	since := time.Since(m.marked)
	return since >= markEvery || m.behind && since >= markBehind
}

// position is where a restart must begin, with what it must know.
func (m *member) position() segment.Position {
	low := m.roller.LowWater()
	if low.Segment == "" {
		return segment.Position{}
	}

	st := m.segment
	st.Roller = low.State
	state, err := json.Marshal(st)
	if err != nil {
		panic("BUG: marshal member state: " + err.Error())
	}

	low.ID, low.State = m.stream.ID(low.Segment), string(state)
	return low
}

// resume makes a new member go on from p; false is from the oldest segment.
func (m *member) resume(p segment.Position) (bool, error) {
	var st account
	if p.Segment == "" || json.Unmarshal([]byte(p.State), &st) != nil {
		return false, nil
	}

	ok, err := m.stream.Start(p)
	if err != nil || !ok {
		return false, err
	}

	p.State, st.Roller = st.Roller, ""
	m.segment = st
	m.from, _ = segment.Number(p.Segment)
	err = m.roller.Resume(p)
	return true, err
}
