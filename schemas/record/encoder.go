package record

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Encoder appends records as lines, the bytes that Record.AppendLine would append. It
// keeps what the lines of a stream have in common (kind, step and the first digits of
// the start; everything behind the number in the ring) as text, so that of a line like
// one before it only the numbers are made anew. The zero value is ready. It is not safe
// for concurrent use.
type Encoder struct {
	head  head
	again *tail // of the record before: they come in runs
	tails [maxTails]tail
}

const (
	// encoderRoom is more than a line has beside its head and tail: six numbers of 20
	// digits and their keys.
	encoderRoom = 256

	lowDigits = 100_000_000               // of a start: what changes from record to record
	minStart  = 1_000_000_000_000_000_000 // the first start of 19 digits
)

// head is the text of a line up to the last eight digits of start.
type head struct {
	kind Kind
	name string
	step int64
	high int64 // start / lowDigits
	text []byte
}

// tail is the text of a line around the number in the ring.
type tail struct {
	of   Record // with the fields that the text is made of
	mid  []byte // from ,"ring" to the number in it
	text []byte // from the number on, with the '\n'
}

// fits reports whether the text is r's, too.
func (t *tail) fits(r *Record) bool {
	o := &t.of
	return o.Ring == r.Ring && o.Thread == r.Thread && o.Count == r.Count && o.Bytes == r.Bytes && o.Tokens == r.Tokens && o.Peer == r.Peer &&
		o.Open == r.Open && o.Op == r.Op && o.OpRaw == r.OpRaw && o.Group == r.Group && o.Dtype == r.Dtype && o.Path == r.Path
}

// AppendLine appends the record as one line with its '\n' and returns the extended
// buffer: see Record.AppendLine.
func (e *Encoder) AppendLine(dst []byte, r *Record) []byte {
	if r.Start < minStart || r.Dur < 0 || r.Ring == 0 || r.HostStart < 0 || r.HostDur < 0 || r.Exposed < -1 {
		return r.AppendLine(dst)
	}
	if len(r.Op)+len(r.OpRaw)+len(r.Group)+len(r.Dtype)+len(r.Path) > maxTail {
		return r.AppendLine(dst)
	}
	h, t := e.headOf(r), e.tailOf(r)
	n := len(dst)
	dst = slices.Grow(dst, len(h)+len(t.mid)+len(t.text)+encoderRoom)
	b := dst[:cap(dst)]
	n += copy(b[n:], h)
	binary.LittleEndian.PutUint64(b[n:], zeros|decimals(uint32(r.Start%lowDigits)))
	n += 8
	n = putNumber(b, n, `,"dur":`, r.Dur)
	if r.Side == Device {
		n += copy(b[n:], `,"side":"device"`)
	}
	if r.HostStart != 0 {
		n = putNumber(b, n, `,"host_start":`, r.HostStart)
	}
	if r.HostDur != 0 {
		n = putNumber(b, n, `,"host_dur":`, r.HostDur)
	}
	if r.Exposed != -1 {
		n = putNumber(b, n, `,"exposed":`, r.Exposed)
	}
	n += copy(b[n:], t.mid)
	n = putDecimal(b, n, r.Seq)
	n += copy(b[n:], t.text)
	return b[:n]
}

// headOf returns the line up to the last eight digits of start.
func (e *Encoder) headOf(r *Record) []byte {
	h, high := &e.head, r.Start/lowDigits
	if h.high != high || h.step != r.Step || h.kind != r.Kind || h.name != r.Name {
		h.kind, h.name, h.step, h.high = r.Kind, r.Name, r.Step, high
		h.text = r.appendHead(h.text[:0])
		h.text = h.text[:len(h.text)-8]
	}
	return h.text
}

// tailOf returns the line around the number in the ring.
func (e *Encoder) tailOf(r *Record) *tail {
	if e.again != nil && e.again.fits(r) {
		return e.again
	}
	key := mix(r.Group) ^ mix(r.Op)*3 ^ uint64(r.Count)*5 ^ uint64(r.Bytes)*7 ^ uint64(uint32(r.Peer))*11 ^ uint64(r.Ring)*13
	t := &e.tails[tailAt(key)]
	e.again = t
	if t.fits(r) {
		return t
	}
	t.of = *r
	t.mid = r.appendRing(t.mid[:0])
	t.text = r.appendTail(t.text[:0])
	return t
}

// zeros are eight ASCII zeros.
const zeros = ones * '0'

// decimals returns the eight decimal digits of v, which is below 10^8, the first in the
// lowest byte: halves of four digits, of two, of one, all at once.
func decimals(v uint32) uint64 {
	x := uint64(v/10000) | uint64(v%10000)<<32
	h := x * 10486 >> 20 & 0x7f_0000007f // each / 100
	x = h | (x-100*h)<<16
	h = x * 103 >> 10 & 0x0f_000f_000f_000f // each / 10
	return h | (x-10*h)<<8
}

// putNumber writes a key and a number that is not negative at b[n:] and returns the
// place behind them. There is room.
func putNumber(b []byte, n int, key string, v int64) int {
	return putDecimal(b, n+copy(b[n:], key), uint64(v))
}

// putDecimal writes v at b[n:], where there is room for 24 bytes, and returns the place
// behind it.
func putDecimal(b []byte, n int, v uint64) int {
	if v < lowDigits {
		x := decimals(uint32(v))
		leading := bits.TrailingZeros64(x|1<<56) &^ 7 // the last digit always stands
		binary.LittleEndian.PutUint64(b[n:], (zeros|x)>>leading)
		return n + 8 - leading>>3
	}
	n = putDecimal(b, n, v/lowDigits)
	binary.LittleEndian.PutUint64(b[n:], zeros|decimals(uint32(v%lowDigits)))
	return n + 8
}
