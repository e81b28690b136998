package marker

import (
	"bytes"
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

// quick reads a marker line with the keys in TaskD's order and no white space.
func (p *Parser) quick(line []byte) bool {
	c := cursor{b: line}
	m := &p.Marker
	m.Kind = KindMarker
	if !c.skip(`{"Kind":1,"Flag":`) {
		return false
	}

	m.Flag = c.u32()
	c.expect(`,"SourceKind":`)
	m.Source = c.u32()
	c.expect(`,"Timestamp":`)
	m.Timestamp = c.u64()
	c.expect(`,"Id":`)
	m.ID = c.u64()
	c.expect(`,"MsptiObjectId":{"Pt":{"ProcessId":`)
	m.Process = c.u32()
	c.expect(`,"ThreadId":`)
	m.Thread = c.u32()
	c.expect(`},"Ds":{"DeviceId":`)
	m.Device = c.u32()
	c.expect(`,"StreamId":`)
	m.Stream = c.u32()
	c.expect(`}},"Name":"`)
	if c.bad {
		return false
	}

	if c.skip(`","Domain":""}`) { // every line but a host start
		return c.i == len(line)
	}

	m.Name = p.text(&c)
	c.expect(`,"Domain":"`)
	if c.bad {
		return false
	}

	m.Domain = c.plain()
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

// u64 reads an unsigned number of at most 19 digits: a longer one is left to the
// strict path, which knows where uint64 ends.
func (c *cursor) u64() uint64 {
	i, v := c.i, uint64(0)
	for i < len(c.b) {
		d := c.b[i] - '0'
		if d > 9 {
			break
		}

		v = v*10 + uint64(d)
		i++
	}

	n := i - c.i
	if n == 0 || n > 19 || n > 1 && c.b[c.i] == '0' {
		c.bad = true
	}

	c.i = i
	return v
}

func (c *cursor) u32() uint32 {
	v := c.u64()
	if v > 1<<32-1 {
		c.bad = true
	}

	return uint32(v)
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
