package record

import (
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// The general path reads a record with its keys in any order, white space,
// escapes, text beyond ASCII, unknown and repeated keys. It is a whole JSON reader
// that answers "not sure" (0, false) to everything it would have to reject, and
// to the few things it does not do: null, escapes in keys, integers of 20 digits,
// text that is not UTF-8, nesting beyond maxNesting.

const maxNesting = 16

// general reads the record in b into p.Record. False means not sure; p.Record
// is then undefined.
func (p *Parser) general(b []byte) bool {
	p.reset()
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	i++
	for {
		i = space(b, i)
		end := text(b, i)
		if end == 0 {
			return false
		}
		key := b[i+1 : end]
		i = space(b, end+1)
		if i >= len(b) || b[i] != ':' {
			return false
		}
		i = space(b, i+1)
		if i = p.field(b, i, key); i == 0 {
			return false
		}
		i = space(b, i)
		if i >= len(b) {
			return false
		}
		if b[i] == '}' {
			return space(b, i+1) == len(b)
		}
		if b[i] != ',' {
			return false
		}
		i++
	}
}

// field reads the value at i of one key and returns the index after it.
func (p *Parser) field(b []byte, i int, key []byte) int {
	r := &p.Record
	switch string(key) {
	case "step":
		return integer(b, i, &r.Step)
	case "start":
		return integer(b, i, &r.Start)
	case "dur":
		return integer(b, i, &r.Dur)
	case "host_start":
		return integer(b, i, &r.HostStart)
	case "host_dur":
		return integer(b, i, &r.HostDur)
	case "exposed":
		return integer(b, i, &r.Exposed)
	case "count":
		return integer(b, i, &r.Count)
	case "bytes":
		return integer(b, i, &r.Bytes)
	case "tokens":
		return integer(b, i, &r.Tokens)
	case "op":
		return p.str(b, i, &r.Op)
	case "op_raw":
		return p.str(b, i, &r.OpRaw)
	case "group":
		return p.str(b, i, &r.Group)
	case "dtype":
		return p.str(b, i, &r.Dtype)
	case "path":
		return p.str(b, i, &r.Path)
	case "kind", "side", "ring", "seq", "thread", "peer", "open":
		return p.odd(b, i, key)
	}
	return skip(b, i, 0)
}

// odd is field for the keys whose type is neither int64 nor string.
func (p *Parser) odd(b []byte, i int, key []byte) int {
	r := &p.Record
	var u uint64
	var n int64
	var s string
	switch string(key) {
	case "kind":
		if i = p.str(b, i, &s); i == 0 {
			return 0
		}
		if r.Kind, r.Name = KindOf(s), ""; r.Kind == Other {
			r.Name = s
		}
	case "side":
		if i = p.str(b, i, &s); s != "host" && s != "device" {
			return 0
		}
		if r.Side = Host; s == "device" {
			r.Side = Device
		}
	case "ring":
		if u, i = digits(b, i); u > math.MaxUint32 {
			return 0
		}
		r.Ring = uint32(u)
	case "seq":
		r.Seq, i = digits(b, i)
	case "thread":
		r.Thread, i = digits(b, i)
	case "peer":
		if i = integer(b, i, &n); int64(int32(n)) != n {
			return 0
		}
		r.Peer = int32(n)
	case "open":
		if r.Open = has(b, i, "true"); r.Open {
			return i + 4
		}
		if !has(b, i, "false") {
			return 0
		}
		return i + 5
	}
	return i
}

// integer reads an int64 into dst; what follows it is the caller's to judge.
func integer(b []byte, i int, dst *int64) int {
	v, end := signed(b, i)
	*dst = v
	return end
}

// str reads a string value into dst.
func (p *Parser) str(b []byte, i int, dst *string) int {
	if end := text(b, i); end != 0 {
		*dst = p.strings.get(b[i+1 : end])
		return end + 1
	}
	end := p.unescape(b, i)
	if end != 0 {
		*dst = p.strings.get(p.scratch)
	}
	return end
}

// unescape reads the string value at i into p.scratch.
func (p *Parser) unescape(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return 0
	}
	p.scratch = p.scratch[:0]
	for i++; i < len(b); {
		c := b[i]
		switch {
		case c == '"':
			return i + 1
		case c < 0x20:
			return 0
		case c == '\\':
			if i = p.escape(b, i+1); i == 0 {
				return 0
			}
		case c < utf8.RuneSelf:
			p.scratch = append(p.scratch, c)
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return 0
			}
			p.scratch = append(p.scratch, b[i:i+n]...)
			i += n
		}
	}
	return 0
}

// escape reads what follows a backslash, at i, and appends its meaning.
func (p *Parser) escape(b []byte, i int) int {
	if i >= len(b) {
		return 0
	}
	c := b[i]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := hex4(b, i+1)
		i += 5
		if r < 0 {
			return 0
		}
		if utf16.IsSurrogate(r) {
			if !has(b, i, `\u`) {
				return 0
			}
			if r = utf16.DecodeRune(r, hex4(b, i+2)); r == utf8.RuneError {
				return 0
			}
			i += 6
		}
		p.scratch = utf8.AppendRune(p.scratch, r)
		return i
	default:
		return 0
	}
	p.scratch = append(p.scratch, c)
	return i + 1
}

// hex4 returns the value of four hex digits at i, -1 when they are none.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var v rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

// space returns the index of the first byte from i on that is no JSON white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index after the JSON value at i.
func skip(b []byte, i, depth int) int {
	if i >= len(b) || depth > maxNesting {
		return 0
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{' || c == '[':
		return skipGroup(b, i, depth)
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(b, i)
	case has(b, i, "true"), has(b, i, "null"):
		return i + 4
	case has(b, i, "false"):
		return i + 5
	}
	return 0
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < 0x20:
			return 0
		case c == '\\':
			if i++; i >= len(b) {
				return 0
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if hex4(b, i+1) < 0 {
					return 0
				}
				i += 4
			default:
				return 0
			}
		}
	}
	return 0
}

// skipGroup skips the object or array that opens at i.
func skipGroup(b []byte, i, depth int) int {
	object := b[i] == '{'
	end := byte(']')
	if object {
		end = '}'
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == end {
		return i + 1
	}
	for {
		i = space(b, i)
		if object {
			if i >= len(b) || b[i] != '"' {
				return 0
			}
			if i = skipString(b, i); i == 0 {
				return 0
			}
			if i = space(b, i); i >= len(b) || b[i] != ':' {
				return 0
			}
			i = space(b, i+1)
		}
		if i = skip(b, i, depth+1); i == 0 {
			return 0
		}
		i = space(b, i)
		if i >= len(b) {
			return 0
		}
		if b[i] == end {
			return i + 1
		}
		if b[i] != ',' {
			return 0
		}
		i++
	}
}

// skipNumber skips -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)? at i.
func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	first := i
	if i = run(b, i); i == first || b[first] == '0' && i > first+1 {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		if i++; run(b, i) == i {
			return 0
		}
		i = run(b, i)
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if run(b, i) == i {
			return 0
		}
		i = run(b, i)
	}
	return i
}

// run returns the index after the decimal digits at i.
func run(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}
