package intake

import (
	"slices"
	"sync/atomic"

	"laggard/schemas/record"
	"laggard/writer/rollup"
	"laggard/writer/tail"
)

const (
	// portionBytes is how much is read and parsed before it is handed over: what comes
	// of it still lies in a core's second cache.
	portionBytes = 256 << 10
	// portionsAhead bounds what lies between the two goroutines.
	portionsAhead = 4
	// portionsShare is the part of a batch that may come beyond what is asked for: the
	// portions under way, and the step that they finish.
	portionsShare = 32
)

// ahead reads and parses a member's lines on a goroutine of its own, while those
// before them are rolled up. Lines keep their order, and no goroutine is left when
// read returns: the rest of an engine knows nothing of it.
type ahead struct {
	free chan *portion
}

func newAhead() *ahead {
	a := &ahead{free: make(chan *portion, portionsAhead)}
	parser := &rollup.Ahead{} // the portions are filled one at a time
	for range portionsAhead {
		a.free <- &portion{parser: parser}
	}
	return a
}

// read feeds m until it has enough finished rows or there is no more. It returns what
// tail.Stream.Read does.
func (a *ahead) read(m *member, enough int) (n int64, more bool, err error) {
	ready := make(chan *portion, portionsAhead)
	var full atomic.Bool
	go func() {
		defer close(ready)
		for !full.Load() {
			p := <-a.free
			p.fill(m.stream)
			last := p.err != nil || !p.more
			ready <- p
			if last {
				return
			}
		}
	}()
	for p := range ready {
		n, more, err = n+p.bytes, p.more, p.err
		p.replay(m)
		a.free <- p
		if m.roller.Finished() >= enough || m.roller.Crowded() {
			full.Store(true)
		}
	}
	return n, more, err
}

// portion is a stretch of a member's lines. It is a tail.Visitor that keeps what it
// is told.
type portion struct {
	parser  *rollup.Ahead // shared
	events  []event
	records []record.Record // of the events that are plain records
	begins  []begin
	text    []byte // of the other lines
	// What tail.Stream.Read returned.
	bytes int64
	more  bool
	err   error
}

// event is one call of a Visitor.
type event struct {
	offset int64
	n      int32
	what   what
}

type what uint8

const (
	isRecord what = iota
	isLine
	isSegment
	isTorn
)

// begin is the beginning of a segment.
type begin struct {
	id   record.ID
	name string
}

// fill reads the next portion.
func (p *portion) fill(s *tail.Stream) {
	p.events, p.records, p.begins, p.text = p.events[:0], p.records[:0], p.begins[:0], p.text[:0]
	p.bytes, p.more, p.err = s.Read(portionBytes, p)
}

// Segment implements tail.Visitor.
func (p *portion) Segment(id record.ID, name string) {
	p.parser.Segment(name)
	p.begins = append(p.begins, begin{id, name})
	p.events = append(p.events, event{what: isSegment})
}

// Line implements tail.Visitor.
func (p *portion) Line(offset int64, line []byte) {
	e := event{offset: offset, n: int32(len(line)), what: isRecord}
	n := len(p.records)
	p.records = slices.Grow(p.records, 1)[:n+1] // the parser fills it
	if !p.parser.Record(line, &p.records[n]) {
		p.records = p.records[:n]
		e.what = isLine
		p.text = append(p.text, line...)
	}
	p.events = append(p.events, e)
}

// Torn is called by the tail.
func (p *portion) Torn(bytes int64) {
	p.events = append(p.events, event{offset: bytes, what: isTorn})
}

// replay tells m what the portion was told.
func (p *portion) replay(m *member) {
	records, begins, text := p.records, p.begins, p.text
	for i := range p.events {
		switch e := &p.events[i]; e.what {
		case isRecord:
			m.record(e.offset, int(e.n), &records[0])
			records = records[1:]
		case isLine:
			m.Line(e.offset, text[:e.n:e.n])
			text = text[e.n:]
		case isSegment:
			m.Segment(begins[0].id, begins[0].name)
			begins = begins[1:]
		case isTorn:
			m.Torn(e.offset)
		}
	}
}
