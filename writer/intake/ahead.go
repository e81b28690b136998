package intake

import (
	"slices"
	"sync/atomic"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/rollup"
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
// before them are rolled up. When the member's turn has enough it goes on with the next
// one's, for as long as the rest of the turn is rolled up: else both would wait for each
// other at every change of turns. Lines keep their order, and no goroutine is left when
// read returns.
type ahead struct {
	free chan *portion
	left []*portion // parsed for the turn that is next
}

func newAhead() *ahead {
	a := &ahead{free: make(chan *portion, portionsAhead)}
	parser := &rollup.Ahead{} // the portions are filled one at a time
	for range portionsAhead {
		a.free <- &portion{parser: parser}
	}
	return a
}

// read feeds m until it has enough finished rows or there is no more, and begins with
// next, whose turn it will be: m itself where it is alone. It returns what
// tail.Stream.Read does.
func (a *ahead) read(m, next *member, enough int) (n int64, more bool, err error) {
	ready := make(chan *portion, portionsAhead)
	var full atomic.Bool
	over := make(chan struct{})
	go func() {
		defer close(ready)
		for last := false; !full.Load() && !last; {
			last = a.fill(<-a.free, m, false, ready)
		}
		for last := false; !last; {
			select {
			case <-over:
				return
			case p := <-a.free:
				last = a.fill(p, next, true, ready)
			}
		}
	}()
	replay := func(p *portion) {
		n, more, err = n+p.bytes, p.more, p.err
		a.replay(p)
		if m.roller.Finished() >= enough || m.roller.Crowded() {
			full.Store(true)
		}
	}
	left := a.left
	a.left = nil
	for _, p := range left {
		replay(p)
	}
	for p := range ready {
		if !p.early {
			replay(p)
			continue
		}
		if len(a.left) == 0 {
			close(over)
		}
		a.left = append(a.left, p)
	}
	return n, more, err
}

// fill fills a portion and hands it over; it reports whether it is the member's last.
func (a *ahead) fill(p *portion, m *member, early bool, ready chan<- *portion) (last bool) {
	p.early = early
	p.fill(m)
	last = p.err != nil || !p.more
	ready <- p
	return last
}

// replay rolls a portion up and frees it.
func (a *ahead) replay(p *portion) {
	p.replay()
	a.free <- p
}

// finish feeds what was begun for turns that don't come. It returns the bytes.
func (a *ahead) finish() (n int64) {
	for _, p := range a.left {
		if n += p.bytes; p.err != nil {
			p.of.unreadable = p.err.Error()
		}
		a.replay(p)
	}
	a.left = nil
	return n
}

// portion is a stretch of a member's lines. It is a tail.Visitor that keeps what it
// is told.
type portion struct {
	parser  *rollup.Ahead // shared
	of      *member
	early   bool // for the turn after this one
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

// fill reads the next portion of a member.
func (p *portion) fill(m *member) {
	p.events, p.records, p.begins, p.text = p.events[:0], p.records[:0], p.begins[:0], p.text[:0]
	p.of = m
	p.parser.Segment(m.parsed) // the parser may come from another member's
	p.bytes, p.more, p.err = m.stream.Read(portionBytes, p)
}

// Segment implements tail.Visitor.
func (p *portion) Segment(id record.ID, name string) {
	p.of.parsed = name
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

// replay tells the member what the portion was told.
func (p *portion) replay() {
	m := p.of
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
