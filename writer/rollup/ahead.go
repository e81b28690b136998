package rollup

import (
	"github.com/laggard-dev/laggard/schemas/record"
)

// Ahead parses lines before their turn, on another goroutine than the Stream's. The
// zero value is ready; it is not safe for concurrent use.
type Ahead struct {
	parser record.Parser
	bounds bounds
}

// Segment begins a segment.
func (a *Ahead) Segment(name string) { a.bounds = boundsOf(plainName(name)) }

// Record parses a line without its '\n' into r, which is for Stream.Record. False means
// that the Stream must see the line itself: it is no record, or not one that is simply
// taken; r is then undefined.
func (a *Ahead) Record(line []byte, r *record.Record) bool {
	if !a.parser.ReadRecord(line, r) {
		if t, err := a.parser.Parse(line); err != nil || t != record.LineRecord {
			return false
		}
		*r = a.parser.Record
	}
	return a.bounds.hold(r.Start) && a.bounds.hold(r.HostStart) && isTame(r)
}

// Record is Line for a line of n bytes without its '\n' that an Ahead, told of the
// same segment, made r of.
func (s *Stream) Record(offset int64, n int, r *record.Record) {
	s.pass(offset, n)
	s.addRecord(r, offset)
}
