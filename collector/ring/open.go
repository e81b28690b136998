package ring

import (
	"encoding/binary"
	"fmt"
)

// State of an open-range slot: FORMAT.md section 2.2. Closing is between naming the record
// that End publishes and freeing the slot, see Writer.End.
const (
	stateFree    uint8 = 0
	stateOpen    uint8 = 1
	stateClosing uint8 = 2
)

// Open is an entry of the open-range table.
type Open struct {
	Slot
	Level   int
	Closing bool // End was under way; it would be published as Lane and Seq
	Lane    Lane // of an entry that was closing
}

// Published reports whether the record of an entry that was closing is in the
// ring, given the ring's head.
func (o Open) Published(head uint64) bool {
	behind := (uint32(head) - o.Seq()) &^ openMark
	return o.Closing && behind > 0 && behind < openMark/2
}

// OpenRanges reads the open-range table. Entries whose checksum is wrong, being
// written just now or scribbled on, are left out.
func (r *Reader) OpenRanges() ([]Open, error) {
	b := make([]byte, OpenLevels*slotSize)
	if err := readFull(r.file, b, rOpen); err != nil {
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
	if b[7] != stateOpen && b[7] != stateClosing {
		return false
	}

	var c [slotSize]byte
	copy(c[:], b)
	c[7] = 0
	clear(c[8:12])
	if binary.LittleEndian.Uint32(c[:]) != sum(r.checksum, c[4:]) {
		return false
	}

	o.read(b)
	o.Slot[0] &^= uint64(^FlagOpen) << 40 // the device's times and the exposed ones come with the end
	o.Closing = b[7] == stateClosing
	if o.Seq()&openMark != 0 {
		o.Lane = Bulk
	}

	return true
}
