package record

import "math/bits"

// memory holds how lines began and ended, as text and as the fields it says: the lines
// of a stream repeat all but their numbers, and to compare is quicker than to read. What
// is remembered was read from the very same bytes, so it changes nothing that Parse
// yields. Hostile lines cost a copy each, and no memory.
type memory struct {
	opening lastHead
	tails   *[maxTails]lastTail
	again   *lastTail // the one of the line before: they come in runs
}

// Ends of lines that are remembered, by a Parser and by an Encoder: those of the
// operations and groups of a step that take turns.
const (
	tailBits = 5
	maxTails = 1 << tailBits
	// maxTail bounds the bytes that are kept of one: a path is seen once.
	maxTail = 256
)

// tailAt returns which of maxTails has a mix of an end's bytes.
func tailAt(mixed uint64) uint64 { return mixed * 0x9e3779b97f4a7c15 >> (64 - tailBits) }

// lastHead is a line up to the number of start.
type lastHead struct {
	text []byte
	kind Kind
	name string
	step int64
}

// lastTail is a line's end, from behind the number in the ring.
type lastTail struct {
	text []byte
	of   Record // with the fields that the text says
}

// head sets what stands before the number of start when it is what stood there last. It
// returns that number's index, 0 when it is something else.
func (m *memory) head(b []byte, r *Record) int {
	h := &m.opening
	n := len(h.text)
	if n == 0 || n > len(b) || string(b[:n]) != string(h.text) {
		return 0
	}
	r.Kind, r.Name, r.Step = h.kind, h.name, h.step
	return n
}

func (m *memory) keepHead(b []byte, r *Record) {
	if len(b) <= maxTail {
		m.opening = lastHead{append(m.opening.text[:0], b...), r.Kind, r.Name, r.Step}
	}
}

// tail sets what stands from i on, when it is known.
func (m *memory) tail(b []byte, i int, r *Record) bool {
	b = b[i:]
	if m.tails == nil || len(b) == 0 {
		return false
	}
	t := m.again
	if string(t.text) != string(b) {
		if t = m.place(b); string(t.text) != string(b) {
			return false
		}
		m.again = t
	}
	o := &t.of
	r.Thread, r.Op, r.OpRaw, r.Group, r.Peer, r.Count, r.Dtype = o.Thread, o.Op, o.OpRaw, o.Group, o.Peer, o.Count, o.Dtype
	r.Bytes, r.Tokens, r.Path, r.Open = o.Bytes, o.Tokens, o.Path, o.Open
	return true
}

func (m *memory) keepTail(b []byte, r *Record) {
	if len(b) > maxTail {
		return
	}
	if m.tails == nil {
		m.tails = new([maxTails]lastTail)
	}
	t := m.place(b)
	t.text, t.of, m.again = append(t.text[:0], b...), *r, t
}

// place returns where an end is kept.
func (m *memory) place(b []byte) *lastTail {
	return &m.tails[tailAt(mix(b))]
}

// mix makes a number of all bytes of s: ends, and groups, often differ in one alone.
func mix[T string | []byte](s T) uint64 {
	h := uint64(len(s))
	i := 0
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		h = bits.RotateLeft64(h, 5) ^ (uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56)
	}
	for ; i < len(s); i++ {
		h = bits.RotateLeft64(h, 5) ^ uint64(s[i])
	}
	return h
}
