package record

import (
	"bytes"
	"encoding/json"
	"math"
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

// word reads a string value whose opening quote is at i, with its number, and returns the
// index after its closing quote, 0 for not sure. last is the number of the key's last word, which
// mostly comes again: to compare it is a third of looking one up. Only plain words are numbered
// here, so one that is known needs no look at its bytes.
func (p *Parser) word(b []byte, i int, s *string, w, last *Word) (end int) {
	if i >= len(b) || b[i] != '"' {
		return 0
	}

	i++
	again := p.Words.Text(*last)
	if end = i + len(again); end < len(b) && b[end] == '"' && string(b[i:end]) == again {
		*s, *w = again, *last
		return end + 1
	}

	n := bytes.IndexByte(b[i:], '"')
	if n < 0 {
		return 0
	}

	text := b[i : i+n]
	end = i + n + 1
	known := false
	if *w, known = p.Words.index[string(text)]; known {
		*s, *last = p.Words.Text(*w), *w
		return end
	}

	if !unescaped(text) {
		p.Numbered = false
		*s, end = quoted(b, i-1)
		return end
	}

	if *s = string(text); n > longestWord {
		p.Numbered = false
	} else if n > 0 {
		*w = p.Words.add(*s)
	}

	return end
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

	end := p.word(b, 8, &r.Name, &p.Numbers.Name, &p.Words.last.Name)
	if r.Kind = KindOf(r.Name); r.Kind != Other { // a known kind may be written with escapes
		r.Name = ""
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
	r, w, last := &p.Record, &p.Numbers, &p.Words.last
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
			i = p.word(b, i+6, &r.Op, &w.Op, &last.Op)
		case `,"op_r`:
			i = p.word(b, past(b, i+6, `aw":`), &r.OpRaw, &w.OpRaw, &last.OpRaw)
		case `,"grou`:
			i = p.word(b, past(b, i+6, `p":`), &r.Group, &w.Group, &last.Group)
		case `,"peer`:
			var peer int64
			if peer, i = signed(b, past(b, i+6, `":`)); int64(int32(peer)) != peer {
				return false
			}

			r.Peer = int32(peer)
		case `,"coun`:
			r.Count, i = signed(b, past(b, i+6, `t":`))
		case `,"dtyp`:
			i = p.word(b, past(b, i+6, `e":`), &r.Dtype, &w.Dtype, &last.Dtype)
		case `,"byte`:
			r.Bytes, i = signed(b, past(b, i+6, `s":`))
		case `,"toke`:
			r.Tokens, i = signed(b, past(b, i+6, `ns":`))
		case `,"path`:
			i = p.word(b, past(b, i+6, `":`), &r.Path, &w.Path, &last.Path)
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
