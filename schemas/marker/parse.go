package marker

import (
	"bytes"
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
	Marker  Marker // after Parse; its byte slices are valid until the next Parse
	scratch []byte // unescaped name, reused
}

// Parse reads one complete line, with or without its '\n'.
func (p *Parser) Parse(line []byte) error {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}

	p.Marker = Marker{}
	if p.quick(line) {
		return nil
	}

	p.Marker = Marker{}
	return p.strict(line)
}

// beforeNumbers is what stands before each number of a marker line, in TaskD's order.
var beforeNumbers = [...]string{
	`{"Kind":1,"Flag":`, `,"SourceKind":`, `,"Timestamp":`, `,"Id":`, `,"MsptiObjectId":{"Pt":{"ProcessId":`, `,"ThreadId":`,
	`},"Ds":{"DeviceId":`, `,"StreamId":`,
}

// quick reads a marker line with the keys in TaskD's order and no white space.
func (p *Parser) quick(line []byte) bool {
	var v [len(beforeNumbers)]uint64
	for k, before := range beforeNumbers {
		if len(line) < len(before) || string(line[:len(before)]) != before {
			return false
		}

		line = line[len(before):]
		n := 0
		for n < len(line) && line[n]-'0' <= 9 {
			v[k] = v[k]*10 + uint64(line[n]-'0')
			n++
		}

		// A longer number is left to the strict path, which knows where uint64 ends.
		if n == 0 || n > 19 || n > 1 && line[0] == '0' {
			return false
		}

		line = line[n:]
	}

	if max(v[0], v[1], v[4], v[5], v[6], v[7]) > math.MaxUint32 {
		return false
	}

	m := &p.Marker
	m.Kind, m.Timestamp, m.ID = KindMarker, v[2], v[3]
	m.Flag, m.Source = uint32(v[0]), uint32(v[1])
	m.Process, m.Thread, m.Device, m.Stream = uint32(v[4]), uint32(v[5]), uint32(v[6]), uint32(v[7])
	return p.words(line)
}

// words reads the rest of a marker line, its name and its domain.
func (p *Parser) words(line []byte) bool {
	if string(line) == `}},"Name":"","Domain":""}` { // every line but a host start
		return true
	}

	c := cursor{b: line}
	c.expect(`}},"Name":"`)
	if c.bad {
		return false
	}

	p.Marker.Name = p.text(&c)
	c.expect(`,"Domain":"`)
	if c.bad {
		return false
	}

	p.Marker.Domain = c.plain()
	c.expect(`}`)
	return !c.bad && c.i == len(line)
}

// text reads the rest of a string value and its closing quote, with escapes: a
// communication's name is JSON itself, so its quotes are escaped. What it returns is a part
// of the line where it has none, else p.scratch.
func (p *Parser) text(c *cursor) []byte {
	out := p.scratch[:0]
	for {
		end := bytes.IndexByte(c.b[c.i:], '"')
		if end < 0 {
			break
		}

		raw := c.b[c.i : c.i+end]
		slash := bytes.IndexByte(raw, '\\')
		if slash >= 0 {
			raw = raw[:slash]
		}

		if controls(raw) {
			break
		}

		c.i += len(raw)
		if slash < 0 {
			c.i++
			if len(out) > 0 {
				raw = append(out, raw...)
				p.scratch = raw
			}

			c.bad = c.bad || !utf8.Valid(raw)
			return raw
		}

		e, ok := c.escape()
		if !ok {
			break
		}

		out = append(append(out, raw...), e)
	}

	c.bad = true
	return nil
}

// controls reports whether b holds a byte below 0x20, which JSON wants escaped.
func controls(b []byte) bool {
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}

	return false
}

// cursor walks over a line. Once bad it stays so.
type cursor struct {
	b   []byte
	i   int
	bad bool
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

func (c *cursor) expect(s string) {
	if !c.skip(s) {
		c.bad = true
	}
}

// plain reads the rest of a string value without escapes and its closing quote.
func (c *cursor) plain() []byte {
	end := bytes.IndexByte(c.b[c.i:], '"')
	if end < 0 {
		c.bad = true
		return nil
	}

	s := c.b[c.i : c.i+end]
	c.i += end + 1
	if controls(s) || bytes.IndexByte(s, '\\') >= 0 || !utf8.Valid(s) {
		c.bad = true
		return nil
	}

	return s
}

// escape reads the escape of a quote, a backslash or a slash; any other is left to the
// strict path.
func (c *cursor) escape() (byte, bool) {
	if c.i+1 >= len(c.b) {
		return 0, false
	}

	e := c.b[c.i+1]
	c.i += 2
	return e, e == '"' || e == '\\' || e == '/'
}
