package record

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
)

// The canonical path reads a line as AppendLine writes it: without white space, escapes in keys
// and nulls. A key is told by the six bytes from its comma on, then read to its colon, which a
// stream of like lines makes predictable. Whatever differs is left to strict, at a fiftieth of
// the speed.

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
	for i+6 < len(b) && b[i] == ',' {
		switch string(b[i : i+6]) {
		case `,"step`:
			r.Step, i = signed(b, past(b, i+6, `":`))
		case `,"star`:
			r.Start, i = signed(b, past(b, i+6, `t":`))
		case `,"dur"`:
			r.Dur, i = signed(b, past(b, i+6, `:`))
		case `,"side`:
			r.Side, i = Device, past(b, i+6, `":"device"`)
		case `,"host`:
			if at := past(b, i+6, `_start":`); at > 0 {
				r.HostStart, i = signed(b, at)
			} else {
				r.HostDur, i = signed(b, past(b, i+6, `_dur":`))
			}
		case `,"expo`:
			r.Exposed, i = signed(b, past(b, i+6, `sed":`))
		case `,"ring`:
			var ring uint64
			if ring, i = digits(b, past(b, i+6, `":`)); ring > math.MaxUint32 {
				return false
			}

			r.Ring = uint32(ring)
		case `,"seq"`:
			r.Seq, i = digits(b, past(b, i+6, `:`))
		case `,"thre`:
			r.Thread, i = digits(b, past(b, i+6, `ad":`))
		case `,"op":`:
			r.Op, i = p.word(b, i+6)
		case `,"op_r`:
			r.OpRaw, i = p.word(b, past(b, i+6, `aw":`))
		case `,"grou`:
			r.Group, i = p.word(b, past(b, i+6, `p":`))
		case `,"peer`:
			var peer int64
			if peer, i = signed(b, past(b, i+6, `":`)); int64(int32(peer)) != peer {
				return false
			}

			r.Peer = int32(peer)
		case `,"coun`:
			r.Count, i = signed(b, past(b, i+6, `t":`))
		case `,"dtyp`:
			r.Dtype, i = p.word(b, past(b, i+6, `e":`))
		case `,"byte`:
			r.Bytes, i = signed(b, past(b, i+6, `s":`))
		case `,"toke`:
			r.Tokens, i = signed(b, past(b, i+6, `ns":`))
		case `,"path`:
			r.Path, i = p.word(b, past(b, i+6, `":`))
		case `,"open`:
			r.Open, i = true, past(b, i+6, `":true`)
		default:
			return false
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
