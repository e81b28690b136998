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

// Slot is one range as the ring holds it, FORMAT.md section 2.2. Strings are ids.
type Slot struct {
	Kind      record.Kind
	Flags     uint8
	Dtype     uint8 // record.DtypeName
	State     uint8 // open-range slots only; elsewhere it means nothing
	Seq       uint32
	Peer      int32
	Start     int64 // ns since the Unix epoch
	Dur       int64 // ns
	HostStart int64 // ns since the Unix epoch, or exposed ns (FlagExposed)
	HostDur   int64 // ns, 48 bits
	Text      uint16
	Step      uint32
	Group     uint16
	Stream    uint16
	Value     int64
}

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

// Words returns the slot as a Writer takes it, without Seq and State, which are the
// Writer's.
func (s *Slot) Words() *Words {
	return &Words{
		uint64(s.Kind)<<32 | uint64(s.Flags)<<40 | uint64(s.Dtype)<<48,
		uint64(uint32(s.Peer)) << 32,
		uint64(s.Start),
		uint64(s.Dur),
		uint64(s.HostStart),
		uint64(min(max(s.HostDur, 0), 1<<48-1)) | uint64(s.Text)<<48,
		uint64(s.Step) | uint64(s.Group)<<32 | uint64(s.Stream)<<48,
		uint64(s.Value),
	}
}

// read fills the slot from b, which has slotSize bytes.
func (s *Slot) read(b []byte) {
	b = b[:slotSize]
	le := binary.LittleEndian
	s.Kind, s.Flags, s.Dtype, s.State = record.Kind(b[4]), b[5], b[6], b[7]
	s.Seq = le.Uint32(b[8:])
	s.Peer = int32(le.Uint32(b[12:]))
	s.Start = int64(le.Uint64(b[16:]))
	s.Dur = int64(le.Uint64(b[24:]))
	s.HostStart = int64(le.Uint64(b[32:]))
	w := le.Uint64(b[40:])
	s.HostDur, s.Text = int64(w&(1<<48-1)), uint16(w>>48)
	w = le.Uint64(b[48:])
	s.Step, s.Group, s.Stream = uint32(w), uint16(w>>32), uint16(w>>48)
	s.Value = int64(le.Uint64(b[56:]))
}

// Decode reads the published slot with number seq out of its 64 bytes. False
// means that the bytes are not (yet) that slot: the checksum is wrong, or they
// are what an earlier lap left.
func (s *Slot) Decode(b []byte, seq uint64, checksum uint32) bool {
	b = b[:slotSize]
	if binary.LittleEndian.Uint32(b[8:]) != uint32(seq) ||
		binary.LittleEndian.Uint32(b) != sum(checksum, b[4:]) {
		return false
	}

	s.read(b)
	return true
}
