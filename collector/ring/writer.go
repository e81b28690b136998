package ring

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/record"
)

// lane is the writer's view of one ring. The amd64 stores know it by its fields'
// names.
type lane struct {
	slots      *byte   // mapped
	mask, head uint64  // head: the writer's own copy
	tail       uint64  // the largest tail seen
	headp      *uint64 // mapped
	tailp      *uint64 // mapped
	mark       uint32  // of the numbers in the open-range table
}

// Writer is one thread's pair of rings and its open-range table. Its methods
// are for one goroutine at a time; they never block, allocate, or call the
// system.
type Writer struct {
	lanes    [2]lane
	mem      []byte // the whole ring file, mapped for good: a late range must not fault
	depth    int    // level that Begin tries first
	fast     bool   // the processor's own stores will do
	checksum uint32
	live     atomic.Bool // a thread has it, see Process.NewWriter
}

// newWriter fills the header of a mapped, zeroed ring file.
func newWriter(mem []byte, n, light, bulk, checksum uint32) *Writer {
	le := binary.LittleEndian
	copy(mem, ringMagic)
	le.PutUint32(mem[rVersion:], version)
	le.PutUint32(mem[rHeaderSize:], ringHeader)
	le.PutUint32(mem[rChecksum:], checksum)
	le.PutUint32(mem[rNumber:], n)
	le.PutUint32(mem[rLightSlots:], light)
	le.PutUint32(mem[rBulkSlots:], bulk)
	w := &Writer{mem: mem, checksum: checksum, fast: fastStores && checksum == CRC32C}
	split := ringHeader + slotSize*int(light)
	w.lanes[Light] = lane{slots: &mem[ringHeader], mask: uint64(light - 1), headp: w.u64(rLightHead), tailp: w.u64(rLightTail)}
	w.lanes[Bulk] = lane{slots: &mem[split], mark: openMark, mask: uint64(bulk - 1), headp: w.u64(rBulkHead), tailp: w.u64(rBulkTail)}
	return w
}

// u64 and u32 return mapped fields, as Process's do.
func (w *Writer) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&w.mem[at])) }
func (w *Writer) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&w.mem[at])) }

// open hands the rings to a thread.
func (w *Writer) open(thread uint64) {
	w.depth = 0
	atomic.StoreUint64(w.u64(rThread), thread)
	atomic.StoreUint32(w.u32(rState), Live)
	w.live.Store(true)
}

// Close says that the thread has ended. The rings may then go to another one: live is
// cleared last.
func (w *Writer) Close() {
	defer survive(debug.SetPanicOnFault(true))
	atomic.StoreUint32(w.u32(rState), Closed)
	w.live.Store(false)
}

// room returns the free slots of the fuller ring, and whether both are drained.
func (w *Writer) room() (free uint64, drained bool) {
	drained, free = true, ^uint64(0)
	for i := range w.lanes {
		l := &w.lanes[i]
		l.tail = max(l.tail, atomic.LoadUint64(l.tailp))
		drained = drained && l.tail == l.head
		free = min(free, l.mask+1-min(l.head-l.tail, l.mask+1))
	}

	return free, drained
}

// Publish writes a finished range, or counts it as dropped when its ring is
// full.
func (w *Writer) Publish(s *Slot) bool {
	l := w.lane(s)
	if !l.free() {
		w.drop(s)
		return false
	}

	if w.fast {
		publishSlot(l, s, &w.mem[0])
	} else {
		w.publish(l, s)
	}

	return true
}

// lane returns the ring that a range goes to: LaneOf for the number in its slot.
func (w *Writer) lane(s *Slot) *lane {
	if s.Kind() == record.Communication {
		return &w.lanes[Bulk]
	}

	return &w.lanes[Light]
}

// free reports whether the ring has room for a slot. The tail lies in a cache line that the
// agent writes, so it is read only when the last one seen says no.
func (l *lane) free() bool {
	if l.head-l.tail <= l.mask {
		return true
	}

	// A tail never goes back, so the largest one counts. A hostile one beyond the
	// head makes the difference huge: full.
	l.tail = max(l.tail, atomic.LoadUint64(l.tailp))
	return l.head-l.tail <= l.mask
}

// publish is publishSlot for every checksum and processor.
func (w *Writer) publish(l *lane, s *Slot) {
	at := l.head & l.mask * slotSize
	s.store(unsafe.Slice(l.slots, (l.mask+1)*slotSize)[at:], uint32(l.head), stateFree, w.checksum)
	l.head++
	atomic.StoreUint64(l.headp, l.head)
	w.count(rEmitted, s)
}

// drop counts a range that found its ring full, and when the first and the last of them
// began: the loss line names that time.
func (w *Writer) drop(s *Slot) {
	if *w.u64(rDropFirst) == 0 {
		atomic.StoreUint64(w.u64(rDropFirst), uint64(s.Start()))
	}

	atomic.StoreUint64(w.u64(rDropLast), uint64(s.Start()))
	w.count(rDropped, s)
	w.count(rEmitted, s)
}

// count adds one to a per-kind counter that only this writer changes. It is a plain
// store, and so one instruction: an ordered one would cost as much as the slot.
func (w *Writer) count(at int, s *Slot) {
	*w.u64(at + 8*int(s.Kind()%kindCounters))++
}

// Begin enters a range that is now open into the table and returns its level,
// OpenLevels when the table is full.
func (w *Writer) Begin(s *Slot) int {
	level := w.depth
	if level >= OpenLevels || w.mem[rOpen+slotSize*level+7] != stateFree {
		if level = w.freeLevel(); level == OpenLevels {
			return level
		}
	}

	if w.fast {
		openSlot(&w.mem[rOpen+slotSize*level], s)
	} else {
		s.store(w.mem[rOpen+slotSize*level:], 0, stateFree, w.checksum)
		w.setState(level, stateOpen)
	}

	w.depth = level + 1
	return level
}

// freeLevel returns the lowest free level, OpenLevels when there is none.
func (w *Writer) freeLevel() int {
	for level := range OpenLevels {
		if w.mem[rOpen+slotSize*level+7] == stateFree {
			return level
		}
	}

	return OpenLevels
}

// End publishes the finished range that Begin gave the level, and frees it. In
// between the table names the number that the record gets: a kill leaves the range
// open or recorded, never both.
func (w *Writer) End(level int, s *Slot) bool {
	if level >= OpenLevels {
		return w.Publish(s)
	}

	l := w.lane(s)
	if !l.free() {
		w.drop(s)
		w.Free(level)
		return false
	}

	if w.fast {
		endSlot(l, s, &w.mem[0], &w.mem[rOpen+slotSize*level])
	} else {
		atomic.StoreUint32(w.u32(rOpen+slotSize*level+8), uint32(l.head)&^openMark|l.mark)
		w.setState(level, stateClosing)
		w.publish(l, s)
		w.setState(level, stateFree)
	}

	w.depth = level
	return true
}

// Free takes a range out of the table without publishing it.
func (w *Writer) Free(level int) {
	if level < OpenLevels {
		w.setState(level, stateFree)
		w.depth = level
	}
}

// setState stores the four bytes that end with the state. They begin with kind,
// flags and dtype as Begin wrote them, which the checksum covers.
func (w *Writer) setState(level int, state uint8) {
	p := w.u32(rOpen + slotSize*level + 4)
	atomic.StoreUint32(p, atomic.LoadUint32(p)&0x00FFFFFF|uint32(state)<<24)
}
