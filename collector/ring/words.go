package ring

import (
	"encoding/binary"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Words is a range as its writer has it: the 64 bytes of a slot, FORMAT.md section
// 2.2, without what Writer fills in: the checksum, the state and the low half of word
// 1, which is seq. A range is words from its begin on, because words that are put
// together of smaller fields when they are needed cost as much as the slot.
type Words [slotSize / 8]uint64

// Name says what a range is: peer is -1 for none. All else that is not its time is
// cleared. With SetTime that is every word. There are two of them so that each is
// inlined.
func (w *Words) Name(k record.Kind, dtype uint8, peer int32, text, group, stream uint16, value int64) {
	w[0] = uint64(k)<<32 | uint64(dtype)<<48
	w[1] = uint64(uint32(peer)) << 32
	w[4] = 0
	w[5] = uint64(text) << 48
	w[6] = uint64(group)<<32 | uint64(stream)<<48
	w[7] = uint64(value)
}

// SetTime says when a named range began, how long it took, and in which step; a step
// that doesn't fit is none.
func (w *Words) SetTime(start, dur, step int64) {
	w[2] = uint64(start)
	w[3] = uint64(dur)
	w[6] |= min(uint64(step), uint64(NoStep))
}

// Kind, Start and Step return what Name and SetTime were told, Step NoStep for none.
func (w *Words) Kind() record.Kind { return record.Kind(w[0] >> 32) }
func (w *Words) Start() int64      { return int64(w[2]) }
func (w *Words) Step() uint32      { return uint32(w[6]) }

// SetDur says how long the range took.
func (w *Words) SetDur(dur int64) { w[3] = uint64(dur) }

// SetValue takes the place of the value that Name was told.
func (w *Words) SetValue(v int64) { w[7] = uint64(v) }

// SetDevice says which time the device took; what SetTime was told, and hostDur, are the
// host's.
func (w *Words) SetDevice(start, dur, hostDur int64) {
	w[0] |= uint64(FlagDevice|FlagHost) << 40
	w[4], w[2], w[3] = w[2], uint64(start), uint64(dur)
	w[5] |= uint64(min(max(hostDur, 0), 1<<48-1))
}

// SetExposed says how long the program waited.
func (w *Words) SetExposed(ns int64) {
	w[0] |= uint64(FlagExposed) << 40
	w[4] = uint64(ns)
}

// store writes the words with seq and state into b, a slot, the checksum last.
func (w *Words) store(b []byte, seq uint32, state uint8, kind uint32) {
	b = b[:slotSize]
	le := binary.LittleEndian
	for i, v := range w[1:] {
		le.PutUint64(b[8*i+8:], v)
	}

	le.PutUint32(b[8:], seq)
	le.PutUint32(b[4:], uint32(w[0]>>32))
	sum := sum(kind, b[4:])
	b[7] = state // which the checksum does not cover
	le.PutUint32(b, sum)
}
