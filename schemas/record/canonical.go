package record

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
)

// The canonical path reads a line as AppendLine writes it: without white space, escapes in keys
// and nulls. A key is told by the eight bytes from its comma on, which a stream of like lines
// makes predictable; numbers are read eight digits at a time. Whatever differs is left to
// strict, at a hundredth of the speed.

// The eight bytes from the comma on, as a little-endian word.
const (
	wordStep      = uint64(',') | '"'<<8 | 's'<<16 | 't'<<24 | 'e'<<32 | 'p'<<40 | '"'<<48 | ':'<<56
	wordStart     = uint64(',') | '"'<<8 | 's'<<16 | 't'<<24 | 'a'<<32 | 'r'<<40 | 't'<<48 | '"'<<56
	wordDur       = uint64(',') | '"'<<8 | 'd'<<16 | 'u'<<24 | 'r'<<32 | '"'<<40 | ':'<<48 // 7 bytes
	wordSide      = uint64(',') | '"'<<8 | 's'<<16 | 'i'<<24 | 'd'<<32 | 'e'<<40 | '"'<<48 | ':'<<56
	wordHostStart = uint64(',') | '"'<<8 | 'h'<<16 | 'o'<<24 | 's'<<32 | 't'<<40 | '_'<<48 | 's'<<56
	wordHostDur   = uint64(',') | '"'<<8 | 'h'<<16 | 'o'<<24 | 's'<<32 | 't'<<40 | '_'<<48 | 'd'<<56
	wordExposed   = uint64(',') | '"'<<8 | 'e'<<16 | 'x'<<24 | 'p'<<32 | 'o'<<40 | 's'<<48 | 'e'<<56
	wordRing      = uint64(',') | '"'<<8 | 'r'<<16 | 'i'<<24 | 'n'<<32 | 'g'<<40 | '"'<<48 | ':'<<56
	wordSeq       = uint64(',') | '"'<<8 | 's'<<16 | 'e'<<24 | 'q'<<32 | '"'<<40 | ':'<<48 // 7 bytes
	wordThread    = uint64(',') | '"'<<8 | 't'<<16 | 'h'<<24 | 'r'<<32 | 'e'<<40 | 'a'<<48 | 'd'<<56
	wordOp        = uint64(',') | '"'<<8 | 'o'<<16 | 'p'<<24 | '"'<<32 | ':'<<40 // 6 bytes
	wordOpRaw     = uint64(',') | '"'<<8 | 'o'<<16 | 'p'<<24 | '_'<<32 | 'r'<<40 | 'a'<<48 | 'w'<<56
	wordGroup     = uint64(',') | '"'<<8 | 'g'<<16 | 'r'<<24 | 'o'<<32 | 'u'<<40 | 'p'<<48 | '"'<<56
	wordPeer      = uint64(',') | '"'<<8 | 'p'<<16 | 'e'<<24 | 'e'<<32 | 'r'<<40 | '"'<<48 | ':'<<56
	wordCount     = uint64(',') | '"'<<8 | 'c'<<16 | 'o'<<24 | 'u'<<32 | 'n'<<40 | 't'<<48 | '"'<<56
	wordDtype     = uint64(',') | '"'<<8 | 'd'<<16 | 't'<<24 | 'y'<<32 | 'p'<<40 | 'e'<<48 | '"'<<56
	wordBytes     = uint64(',') | '"'<<8 | 'b'<<16 | 'y'<<24 | 't'<<32 | 'e'<<40 | 's'<<48 | '"'<<56
	wordTokens    = uint64(',') | '"'<<8 | 't'<<16 | 'o'<<24 | 'k'<<32 | 'e'<<40 | 'n'<<48 | 's'<<56
	wordPath      = uint64(',') | '"'<<8 | 'p'<<16 | 'a'<<24 | 't'<<32 | 'h'<<40 | '"'<<48 | ':'<<56
	wordOpen      = uint64(',') | '"'<<8 | 'o'<<16 | 'p'<<24 | 'e'<<32 | 'n'<<40 | '"'<<48 | ':'<<56

	mask7 = uint64(1)<<56 - 1
	mask6 = uint64(1)<<48 - 1

	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// quoted reads a string value with escapes or text beyond ASCII, whose opening quote is
// at i, and returns the index after its closing quote, 0 for not sure.
func quoted(b []byte, i int) (s string, end int) {
	for end = i + 1; end < len(b) && b[end] != '"'; end++ {
		if b[end] == '\\' {
			end++
		}
	}

	if end >= len(b) || json.Unmarshal(b[i:end+1], &s) != nil {
		return "", 0
	}

	return s, end + 1
}

// word reads a string value whose opening quote is at i and returns the index after its
// closing quote, 0 for not sure. Only plain words are interned, so one that is known needs
// no look at its bytes.
func (p *Parser) word(b []byte, i int) (s string, end int) {
	if i >= len(b) || b[i] != '"' {
		return "", 0
	}

	i++
	n := bytes.IndexByte(b[i:], '"')
	if n < 0 {
		return "", 0
	}

	text := b[i : i+n]
	if s, known := p.words[string(text)]; known {
		return s, i + n + 1
	}

	if slices.ContainsFunc(text, func(c byte) bool { return special[c] }) {
		return quoted(b, i-1)
	}

	return p.intern(text), i + n + 1
}

// kindWord reads the kind's word, whose opening quote is at index 8, into r and
// returns the index after its closing quote, 0 for not sure.
func (p *Parser) kindWord(b []byte, r *Record) int {
	r.Name = ""
	switch {
	case has(b, 9, `Communication"`):
		r.Kind = Communication
		return 23
	case has(b, 9, `Step"`):
		r.Kind = Step
		return 14
	case has(b, 9, `FP"`):
		r.Kind = FP
		return 12
	case has(b, 9, `DataLoader"`):
		r.Kind = DataLoader
		return 20
	case has(b, 9, `SaveCheckpoint"`):
		r.Kind = SaveCheckpoint
		return 24
	}

	word, end := p.word(b, 8)
	if r.Kind = KindOf(word); r.Kind == Other { // a known kind may be written with escapes
		r.Name = word
	}

	return end
}

// has reports whether s stands in b at i.
func has(b []byte, i int, s string) bool {
	return i+len(s) <= len(b) && string(b[i:i+len(s)]) == s
}

// canonical reads the record in b, which begins with {"kind":" and has no '\n'. False
// means not sure; the record is then undefined.
//
// Each key moves i behind its value. Where a value is not sure i becomes 0: no key stands there,
// and the line does not end there.
func (p *Parser) canonical(b []byte) bool {
	p.reset()
	r := &p.Record
	i := p.kindWord(b, r)
	for i < len(b) && b[i] == ',' {
		switch w := load(b, i); w {
		case wordStep:
			r.Step, i = signed(b, i+8)
		case wordStart:
			if u := nineteen(b, i+9); u != 0 && u <= math.MaxInt64 && b[i+8] == ':' {
				r.Start, i = int64(u), i+28
			} else {
				r.Start, i = signed(b, past(b, i+8, ":"))
			}
		case wordSide:
			r.Side, i = Device, past(b, i+8, `"device"`)
		case wordHostStart:
			r.HostStart, i = signed(b, past(b, i+8, `tart":`))
		case wordHostDur:
			r.HostDur, i = signed(b, past(b, i+8, `ur":`))
		case wordExposed:
			r.Exposed, i = signed(b, past(b, i+8, `d":`))
		case wordRing:
			var ring uint64
			if ring, i = digits(b, i+8); ring > math.MaxUint32 {
				return false
			}

			r.Ring = uint32(ring)
		case wordThread:
			r.Thread, i = digits(b, past(b, i+8, `":`))
		case wordOpRaw:
			r.OpRaw, i = p.word(b, past(b, i+8, `":`))
		case wordGroup:
			r.Group, i = p.word(b, past(b, i+8, ":"))
		case wordPeer:
			var peer int64
			if peer, i = signed(b, i+8); int64(int32(peer)) != peer {
				return false
			}

			r.Peer = int32(peer)
		case wordCount:
			r.Count, i = signed(b, past(b, i+8, ":"))
		case wordDtype:
			r.Dtype, i = p.word(b, past(b, i+8, ":"))
		case wordBytes:
			r.Bytes, i = signed(b, past(b, i+8, ":"))
		case wordTokens:
			r.Tokens, i = signed(b, past(b, i+8, `":`))
		case wordPath:
			r.Path, i = p.word(b, i+8)
		case wordOpen:
			r.Open, i = true, past(b, i+8, "true")
		default:
			switch {
			case w&mask7 == wordDur:
				r.Dur, i = signed(b, i+7)
			case w&mask7 == wordSeq:
				r.Seq, i = digits(b, i+7)
			case w&mask6 == wordOp:
				r.Op, i = p.word(b, i+6)
			default:
				return false
			}
		}
	}

	return i+1 == len(b) && b[i] == '}' && r.Start != missing && r.Dur != missing
}

// past returns the index behind s, where that stands in b at i, else 0.
func past(b []byte, i int, s string) int {
	if has(b, i, s) {
		return i + len(s)
	}

	return 0
}
