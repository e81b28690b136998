package ring

import (
	"encoding/binary"
	"fmt"
)

// State of an open-range slot.
const (
	stateFree    uint8 = 0
	stateOpen    uint8 = 1
	stateClosing uint8 = 2
	stateKept    uint8 = 3 // Seq says whether it is open, see keptOpen
)

// Seq of a slot of stateKept: these two, or the number of the record that was last
// made in it.
const (
	keptOpen uint32 = 0xFFFFFFFF
	keptFree uint32 = 0xFFFFFFFE
)

// Open is an entry of the open-range table.
type Open struct {
	Slot
	Level   int
	Closing bool // End was under way; it would be published as Lane and Seq
	Lane    Lane
}

// Published reports whether the record of an entry that was closing is in the
// ring, given the ring's head.
func (o Open) Published(head uint64) bool {
	behind := (uint32(head) - o.Seq) &^ openMark
	return o.Closing && behind > 0 && behind < openMark/2
}

// OpenRanges reads the open-range table. Entries whose checksum is wrong, being
// written just now or scribbled on, are left out.
func (r *Reader) OpenRanges() ([]Open, error) {
	b := make([]byte, OpenLevels*slotSize)
	if err := readFull(r.fd, b, rOpen); err != nil {
		return nil, fmt.Errorf("read open ranges of ring %d: %w", r.N, err)
	}
	var out []Open
	for i := range OpenLevels {
		o := Open{Level: i}
		if r.decodeOpen(&o, b[i*slotSize:(i+1)*slotSize]) {
			out = append(out, o)
		}
	}
	return out, nil
}

// decodeOpen reads an entry; false means that it is free or not whole. The state byte
// and the sequence number are not covered by its checksum.
func (r *Reader) decodeOpen(o *Open, b []byte) bool {
	switch b[7] {
	case stateOpen, stateClosing:
		var c [slotSize]byte
		copy(c[:], b)
		c[7] = 0
		clear(c[8:12])
		if binary.LittleEndian.Uint32(c[:]) != sum(r.checksum, c[4:]) {
			return false
		}
	case stateKept:
		return r.decodeKept(o, b)
	default:
		return false
	}
	o.read(b)
	o.Lane = LaneOf(o.Kind)
	if o.Closing = o.State == stateClosing; o.Closing {
		o.Lane = Light
		if o.Seq&openMark != 0 {
			o.Lane = Bulk
		}
		o.Seq &^= openMark
	}
	return true
}

// decodeKept reads an entry of stateKept, whose checksum and times but for the start
// are those of its last record; false means that no range is open in it.
func (r *Reader) decodeKept(o *Open, b []byte) bool {
	o.read(b)
	if o.Seq == keptFree || o.Seq != keptOpen && r.made(&o.Slot) {
		return false
	}
	o.Lane, o.Dur = LaneOf(o.Kind), 0
	return true
}

// made reports whether the light ring holds the record that was made in an entry of
// stateKept. The number alone doesn't tell: a signal handler may have published a record
// of its own under it before the entry's was.
func (r *Reader) made(o *Slot) bool {
	head, err := r.Head(Light)
	if err != nil || uint64(o.Seq) >= head {
		return false
	}
	var b [slotSize]byte
	var s Slot
	if r.Copy(Light, uint64(o.Seq), b[:]) != nil || !s.Decode(b[:], uint64(o.Seq), r.checksum) {
		return true // a later lap's is there
	}
	return s.Start == o.Start && s.Kind == o.Kind
}
