package marker

import (
	"math"
	"unicode/utf8"
)

// Parser reads lines. The zero value is ready; it is not safe for concurrent use.
//
// Promise: for every line Parse accepts, rejects and yields what encoding/json
// would for TaskD's structs with exact key names. The quick path takes the key
// order that TaskD writes and says "yes" or "not sure"; the strict one alone says
// "no".
type Parser struct {
	Marker  Marker // after Parse; its byte slices are valid until the next Parse, and as long as the line is
	scratch []byte // of its texts, reused
}

// Parse reads one complete line, with or without its '\n'.
func (p *Parser) Parse(line []byte) error {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}

	if p.quick(line) {
		return nil
	}

	p.Marker = Marker{}
	return p.strict(line)
}

// quick reads a marker line with the keys in TaskD's order and no white space.
func (p *Parser) quick(line []byte) bool {
	c := cursor{b: line, texts: p.scratch[:0]}
	m := &p.Marker
	m.Kind = KindMarker
	m.Flag = uint32(c.number(`{"Kind":1,"Flag":`, math.MaxUint32))
	m.Source = uint32(c.number(`,"SourceKind":`, math.MaxUint32))
	m.Timestamp = c.number(`,"Timestamp":`, math.MaxUint64)
	m.ID = c.number(`,"Id":`, math.MaxUint64)
	m.Process = uint32(c.number(`,"MsptiObjectId":{"Pt":{"ProcessId":`, math.MaxUint32))
	m.Thread = uint32(c.number(`,"ThreadId":`, math.MaxUint32))
	m.Device = uint32(c.number(`},"Ds":{"DeviceId":`, math.MaxUint32))
	m.Stream = uint32(c.number(`,"StreamId":`, math.MaxUint32))
	c.expect(`}},"Name":"`)
	m.Name = c.text()
	c.expect(`,"Domain":"`)
	m.Domain = c.text()
	c.expect(`}`)
	p.scratch = c.texts
	return !c.bad && c.i == len(line)
}

// cursor walks over a line, and keeps the texts that it read. Once bad it stays so: that means
// "not sure".
type cursor struct {
	b     []byte
	i     int
	bad   bool
	texts []byte
}

// skip advances over the literal s, or stays. It is for what may be there, expect for what
// must be.
func (c *cursor) skip(s string) bool {
	if len(c.b)-c.i >= len(s) && string(c.b[c.i:c.i+len(s)]) == s {
		c.i += len(s)
		return true
	}

	return false
}

// expect goes behind s, and marks the line as bad where something else stands.
func (c *cursor) expect(s string) { c.bad = !c.skip(s) || c.bad }

// number reads the number behind a literal. One of more than 19 digits is left to the strict
// path, which knows where uint64 ends.
func (c *cursor) number(behind string, most uint64) (v uint64) {
	c.expect(behind)
	from := c.i
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		v = v*10 + uint64(c.b[c.i]-'0')
		c.i++
	}

	n := c.i - from
	c.bad = c.bad || n == 0 || n > 19 || n > 1 && c.b[from] == '0' || v > most
	return v
}

// text reads the rest of a string value and its closing quote. It is the line's own where nothing in
// it is escaped.
func (c *cursor) text() []byte {
	from, high := c.i, byte(0)
	for i := from; i < len(c.b) && !c.bad; i++ {
		x := c.b[i]
		high |= x
		switch {
		case x == '"':
			text := c.b[from:i]
			c.i = i + 1
			c.bad = high >= utf8.RuneSelf && !utf8.Valid(text)
			return text
		case x == '\\':
			return c.escaped()
		case x < 0x20:
			c.bad = true
		}
	}

	c.bad = true
	return nil
}

// escaped is text for one in which quotes, backslashes and slashes may be escaped: a communication's
// name is JSON itself. Any other escape, and what is not UTF-8, is left to the strict path.
func (c *cursor) escaped() []byte {
	i, texts := c.i, c.texts
	for i < len(c.b) && !c.bad {
		x := c.b[i]
		i++
		switch {
		case x == '"':
			text := texts[len(c.texts):]
			c.i, c.texts = i, texts
			c.bad = !utf8.Valid(text)
			return text
		case x == '\\' && i < len(c.b):
			x = c.b[i]
			i++
			c.bad = x != '"' && x != '\\' && x != '/'
		case x < 0x20:
			c.bad = true
		}

		texts = append(texts, x)
	}

	c.bad = true
	return nil
}
