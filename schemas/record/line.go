package record

import (
	"errors"
	"math"
)

// LineType says what one line of a segment is. Its first key decides.
type LineType uint8

// The lines of a segment (schemas/FORMAT.md section 1).
const (
	LineUnknown LineType = 0 // a first key that is none of ours, or no JSON object at all
	LineRecord  LineType = 1 // "kind"
	LineMeta    LineType = 2 // "meta"
	LineLoss    LineType = 3 // "loss"
	LineSwitch  LineType = 4 // "switch"
	LineEnd     LineType = 5 // "end"
	LineTaskD   LineType = 6 // "Kind": package schemas/marker reads it
)

// firstKeys are the keys by which lines are told apart, by type.
var firstKeys = [...]string{
	LineUnknown: "unknown", LineRecord: "kind", LineMeta: "meta", LineLoss: "loss", LineSwitch: "switch", LineEnd: "end", LineTaskD: "Kind",
}

// String returns the line's first key, "unknown" for LineUnknown.
func (t LineType) String() string { return firstKeys[t] }

// errMissing is what Parse says of a record without start or dur.
var errMissing = errors.New("no start or no dur")

// missing marks a start or dur that no key has set. A line can't say it: it is
// 292 years before the epoch.
const missing = math.MinInt64

// Parser reads lines. The zero value is ready. It numbers the words it has seen (ops,
// groups, dtypes), so that reading a line of a known group allocates nothing. It is not
// safe for concurrent use.
//
// Promise: for every line Parse accepts, rejects and yields what encoding/json
// would with the plain structs of this package, but for two things: keys are
// matched exactly (encoding/json folds case, and "Kind" is TaskD's), and a record
// without start or dur or with an unknown side is rejected. The canonical path only
// ever says "yes" or "not sure"; encoding/json alone says "no".
type Parser struct {
	Record Record // after LineRecord
	Meta   Meta   // after LineMeta
	Loss   Loss   // after LineLoss
	Switch Switch // after LineSwitch
	End    End    // after LineEnd

	// Numbers are those of the record's words in Words, where Numbered is true. It is false
	// for a record that is not written as AppendLine does, or that has a long word.
	Numbers  Numbers
	Numbered bool
	// Words are the reader's, which sees to it that they don't become too many; nil are the
	// parser's own, which begin anew when they are Full: hostile input costs allocations,
	// never memory.
	Words *Words

	own Words
}

// Parse reads one complete line, with or without its '\n'. The result stands in
// the field that the LineType names and is valid until the next Parse; its
// strings and slices stay valid for good. A line of another program or version
// (LineUnknown, LineTaskD) is no error. An error means that the line is not JSON
// or does not have the types of FORMAT.md; the LineType is then what its first
// key says, as far as that could be read.
func (p *Parser) Parse(line []byte) (LineType, error) {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}

	switch {
	case has(line, 0, `{"kind":"`):
		if p.canonical(line) {
			return LineRecord, nil
		}
	case has(line, 0, `{"Kind":`):
		return LineTaskD, nil
	}

	return p.strict(line)
}

// reset makes the record what a line without any key would say. Name stays
// empty for known kinds.
func (p *Parser) reset() {
	p.Record = Record{Step: NoStep, Peer: NoPeer, Exposed: -1, Start: missing, Dur: missing}
	p.Numbers, p.Numbered = Numbers{}, true
	if p.Words == nil {
		p.Words = &p.own
	}

	if p.Words == &p.own && p.own.Full() {
		p.own = Words{}
	}
}

// longestWord bounds what a parser numbers, in bytes: a communicator's name has about 40, a
// path is seen once. What is longer its reader cuts first, see MaxWord.
const longestWord = 128
