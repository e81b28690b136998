package ring

import (
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Flags of a slot.
const (
	FlagOpen    uint8 = 1 // the range never ended
	FlagDevice  uint8 = 2 // Start and Dur are the device's
	FlagHost    uint8 = 4 // HostStart and HostDur hold the host's times
	FlagExposed uint8 = 8 // HostStart holds the exposed time
)

// NoStep is the Step of a slot whose writer knew of no step.
const NoStep uint32 = 0xFFFFFFFF

// Slot is one range as the ring holds it: its 64 bytes, FORMAT.md section 2.2. Strings
// are ids. What the Writer fills in is missing before: the checksum, the state and the
// low half of word 1, which is Seq. A range is a slot from its begin on, because words
// that are put together of smaller fields when they are needed cost as much as the
// publishing.
type Slot [slotSize / 8]uint64

// Name says what a range is: peer is -1 for none. All else that is not its time is
// cleared. With SetTime that is every word. There are two of them so that each is
// inlined.
func (s *Slot) Name(k record.Kind, dtype uint8, peer int32, text, group, stream uint16, value int64) {
	s[0] = uint64(k)<<32 | uint64(dtype)<<48
	s[1] = uint64(uint32(peer)) << 32
	s[4] = 0
	s[5] = uint64(text) << 48
	s[6] = uint64(group)<<32 | uint64(stream)<<48
	s[7] = uint64(value)
}

// SetTime says when a named range began, how long it took, and in which step; a step
// that doesn't fit is none.
func (s *Slot) SetTime(start, dur, step int64) {
	s[2] = uint64(start)
	s[3] = uint64(dur)
	s[6] |= min(uint64(step), uint64(NoStep))
}

// SetDur says how long the range took.
func (s *Slot) SetDur(dur int64) { s[3] = uint64(dur) }

// SetValue takes the place of the value that Name was told.
func (s *Slot) SetValue(v int64) { s[7] = uint64(v) }

// SetDevice says which time the device took; what SetTime was told, and hostDur, are the
// host's.
func (s *Slot) SetDevice(start, dur, hostDur int64) {
	s[0] |= uint64(FlagDevice|FlagHost) << 40
	s[4], s[2], s[3] = s[2], uint64(start), uint64(dur)
	s[5] |= uint64(min(max(hostDur, 0), 1<<48-1))
}

// SetExposed says how long the program waited.
func (s *Slot) SetExposed(ns int64) {
	s[0] |= uint64(FlagExposed) << 40
	s[4] = uint64(ns)
}

// Kind returns the kind's number, which may be one that this version does not know.
func (s *Slot) Kind() record.Kind { return record.Kind(s[0] >> 32) }

// Flags returns which of the words mean something else.
func (s *Slot) Flags() uint8 { return uint8(s[0] >> 40) }

// Dtype returns the element type, see record.DtypeName.
func (s *Slot) Dtype() uint8 { return uint8(s[0] >> 48) }

// Seq returns the slot's number in its ring.
func (s *Slot) Seq() uint32 { return uint32(s[1]) }

// Peer returns the rank in the group at the other end, -1 none.
func (s *Slot) Peer() int32 { return int32(s[1] >> 32) }

// Start returns when the range began, ns since the Unix epoch.
func (s *Slot) Start() int64 { return int64(s[2]) }

// Dur returns how long it took, ns.
func (s *Slot) Dur() int64 { return int64(s[3]) }

// HostStart returns when it began on the host, or how long the program waited (FlagExposed).
func (s *Slot) HostStart() int64 { return int64(s[4]) }

// HostDur returns how long it took on the host, ns.
func (s *Slot) HostDur() int64 { return int64(s[5] & (1<<48 - 1)) }

// Text returns the id of the operation, path or word.
func (s *Slot) Text() uint16 { return uint16(s[5] >> 48) }

// Step returns the training step, NoStep for none.
func (s *Slot) Step() uint32 { return uint32(s[6]) }

// Group returns the id of the communicator.
func (s *Slot) Group() uint16 { return uint16(s[6] >> 32) }

// Stream returns the device's stream.
func (s *Slot) Stream() uint16 { return uint16(s[6] >> 48) }

// Value returns the elements, tokens or bytes.
func (s *Slot) Value() int64 { return int64(s[7]) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the checksum of kind over b.
func sum(kind uint32, b []byte) uint32 {
	switch kind {
	case CRC32:
		return crc32.ChecksumIEEE(b)
	case Adler32:
		return adler32.Checksum(b)
	}

	return crc32.Checksum(b, castagnoli)
}

// store writes the slot with seq and state into b, the checksum last.
func (s *Slot) store(b []byte, seq uint32, state uint8, kind uint32) {
	b = b[:slotSize]
	le := binary.LittleEndian
	for i, v := range s[1:] {
		le.PutUint64(b[8*i+8:], v)
	}

	le.PutUint32(b[8:], seq)
	le.PutUint32(b[4:], uint32(s[0]>>32))
	sum := sum(kind, b[4:])
	b[7] = state // which the checksum does not cover
	le.PutUint32(b, sum)
}

// read takes the words out of b, which has slotSize bytes.
func (s *Slot) read(b []byte) {
	b = b[:slotSize]
	le := binary.LittleEndian
	s[0], s[1], s[2], s[3] = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	s[4], s[5], s[6], s[7] = le.Uint64(b[32:]), le.Uint64(b[40:]), le.Uint64(b[48:]), le.Uint64(b[56:])
}
