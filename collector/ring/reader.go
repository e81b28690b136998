package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counters is what a ring file's header says, as far as it can be believed.
type Counters struct {
	Thread  uint64
	Head    [2]uint64 // per Lane
	Tail    [2]uint64
	Dropped [kindCounters]uint64
	Emitted [kindCounters]uint64
	First   int64 // start of the first and the last dropped range, 0 none
	Last    int64
}

// Reader is the reading half of a ring file.
type Reader struct {
	N        uint32 // the file is ring-<N>
	Slots    [2]uint32
	checksum uint32
	file     *os.File
	header   []byte             // mapped, for the stores of SetTail only
	buf      [2][rCounters]byte // two copies of the header, see settled; reused by each call
}

// OpenReader opens file ring-<n>. The error wraps ErrNotRing when there is
// something else there.
func (f *Folder) OpenReader(n uint32) (_ *Reader, err error) {
	name := "ring-" + strconv.FormatUint(uint64(n), 10)
	file, size, uid, err := openFile(f.dir, name)
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", name, f.name, err)
	}

	r := &Reader{N: n, file: file}
	if uid != f.Owner {
		err = fmt.Errorf("it belongs to uid %d: %w", uid, ErrNotRing)
	} else if err = r.parse(size); err == nil {
		r.header, err = unix.Mmap(int(file.Fd()), 0, rCounters, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}

	if err != nil {
		r.Close()
		return nil, fmt.Errorf("open %s of %s: %w", name, f.name, err)
	}

	return r, nil
}

// parse checks a ring's header. The file is another process's: sizes are held against that of the file
// and against budget before anything is read by them.
func (r *Reader) parse(size int64) error {
	h := r.buf[0][:]
	if err := readFull(r.file, h, 0); err != nil {
		return err
	}

	le := binary.LittleEndian
	r.checksum = le.Uint32(h[rChecksum:])
	r.Slots = [2]uint32{le.Uint32(h[rLightSlots:]), le.Uint32(h[rBulkSlots:])}
	switch {
	case string(h[:8]) != ringMagic || le.Uint32(h[rVersion:]) != version:
		return fmt.Errorf("another magic or version: %w", ErrNotRing)
	case r.checksum != CRC32C && r.checksum != CRC32 && r.checksum != Adler32:
		return fmt.Errorf("unknown checksum kind %d: %w", r.checksum, ErrNotRing)
	case le.Uint32(h[rHeaderSize:]) != ringHeader || le.Uint32(h[rNumber:]) != r.N:
		return fmt.Errorf("another header size or number: %w", ErrNotRing)
	case !validSize(r.Slots[Light]) || !validSize(r.Slots[Bulk]) || fileSize(r.Slots[Light], r.Slots[Bulk]) > min(size, budget):
		return fmt.Errorf("%d and %d slots in %d bytes: %w", r.Slots[Light], r.Slots[Bulk], size, ErrNotRing)
	}

	return nil
}

// validSize reports whether n is a power of two within budget.
func validSize(n uint32) bool { return n > 0 && n&(n-1) == 0 && n <= budget/slotSize }

// Counters reads the header. Heads and counters are at most what they are at
// the return.
func (r *Reader) Counters() (Counters, error) {
	a, b := r.buf[0][:], r.buf[1][:]
	if err := errors.Join(readFull(r.file, a, 0), readFull(r.file, b, 0)); err != nil {
		return Counters{}, fmt.Errorf("read header of ring %d: %w", r.N, err)
	}

	le := binary.LittleEndian
	c := Counters{
		// The thread is read after the heads: while slots are undrained the ring
		// is not handed on without saying so.
		Thread: le.Uint64(b[rThread:]),
		Head:   [2]uint64{settled(a, b, rLightHead), settled(a, b, rBulkHead)},
		Tail:   [2]uint64{settled(a, b, rLightTail), settled(a, b, rBulkTail)},
		First:  int64(le.Uint64(b[rDropFirst:])), Last: int64(le.Uint64(b[rDropLast:])),
	}
	for k := range kindCounters {
		c.Dropped[k] = settled(a, b, rDropped+8*k)
		c.Emitted[k] = settled(a, b, rEmitted+8*k)
	}

	return c, nil
}

// Copy copies the slots from number from on into b, whose length is a multiple
// of the slot size and at most the lane's. Decode looks at them.
func (r *Reader) Copy(l Lane, from uint64, b []byte) error {
	base := int64(ringHeader)
	if l == Bulk {
		base += slotSize * int64(r.Slots[Light])
	}

	// The slots lie in one piece, or in two where they go round the ring's end.
	slots := uint64(r.Slots[l])
	first := from & (slots - 1)
	split := min(uint64(len(b)), (slots-first)*slotSize)
	err := readFull(r.file, b[:split], base+int64(first)*slotSize)
	if err == nil {
		err = readFull(r.file, b[split:], base)
	}

	if err != nil {
		return fmt.Errorf("read slots of ring %d: %w", r.N, err)
	}

	return nil
}

// Decode reads the published slot with number seq out of the first 64 bytes of b, which
// Copy filled. False means that the bytes are not (yet) that slot: the checksum is wrong,
// or they are what an earlier lap of the ring left.
func (r *Reader) Decode(s *Slot, b []byte, seq uint64) bool {
	b = b[:slotSize]
	le := binary.LittleEndian
	if le.Uint32(b[8:]) != uint32(seq) || le.Uint32(b) != sum(r.checksum, b[4:]) {
		return false
	}

	s.read(b)
	return true
}

// SetTail says that every slot before to is in a segment: one store, so that a
// recorder sees no other value on the way. The error is errFault when the file was
// truncated; the recorder's memory is gone with it.
func (r *Reader) SetTail(l Lane, to uint64) (err error) {
	at := rLightTail
	if l == Bulk {
		at = rBulkTail
	}

	defer func(was bool) {
		debug.SetPanicOnFault(was)
		if fault := Survived(recover()); fault != nil {
			err = fmt.Errorf("set tail of ring %d: %w", r.N, fault)
		}
	}(debug.SetPanicOnFault(true))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.header[at])), to)
	return nil
}

// Close closes the file.
func (r *Reader) Close() {
	if r.header != nil {
		_ = unix.Munmap(r.header)
		r.header = nil
	}

	_ = r.file.Close()
}
