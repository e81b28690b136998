package ring

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// lane is the writer's view of one ring.
type lane struct {
	slots      []byte
	mask, head uint64  // head: the writer's own copy
	tail       uint64  // the largest tail seen
	headp      *uint64 // mapped
	tailp      *uint64 // mapped
}

// Writer is one thread's pair of rings and its open-range table. Its methods
// are for one goroutine at a time; they never block, allocate, or call the
// system.
type Writer struct {
	mem      []byte
	n        uint32
	checksum uint32
	lanes    [2]lane
	depth    int // level that Begin tries first
	live     atomic.Bool
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
	w := &Writer{mem: mem, n: n, checksum: checksum}
	split := ringHeader + slotSize*int(light)
	w.lanes[Light] = lane{slots: mem[ringHeader:split], mask: uint64(light - 1), headp: w.u64(rLightHead), tailp: w.u64(rLightTail)}
	w.lanes[Bulk] = lane{slots: mem[split:], mask: uint64(bulk - 1), headp: w.u64(rBulkHead), tailp: w.u64(rBulkTail)}
	return w
}

func (w *Writer) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&w.mem[at])) }
func (w *Writer) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&w.mem[at])) }

// open hands the rings to a thread.
func (w *Writer) open(thread uint64) {
	w.depth = 0
	atomic.StoreUint64(w.u64(rThread), thread)
	atomic.StoreUint32(w.u32(rState), Live)
	w.live.Store(true)
}

// Close says that the thread has ended. The rings may then go to another one.
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
// full. s.Seq and s.State are set here.
func (w *Writer) Publish(s *Slot) bool {
	l := &w.lanes[LaneOf(s.Kind)]
	if !l.free() {
		w.drop(s)
		return false
	}
	w.publish(l, s)
	return true
}

func (l *lane) free() bool {
	if l.head-l.tail <= l.mask {
		return true
	}
	// A tail never goes back, so the largest one counts. A hostile one beyond the
	// head makes the difference huge: full.
	l.tail = max(l.tail, atomic.LoadUint64(l.tailp))
	return l.head-l.tail <= l.mask
}

func (w *Writer) publish(l *lane, s *Slot) {
	s.Seq, s.State = uint32(l.head), stateFree
	at := (l.head & l.mask) * slotSize
	s.put(l.slots[at:at+slotSize], w.checksum)
	l.head++
	release64(l.headp, l.head, &l.slots[(l.head-1+ahead)&l.mask*slotSize])
	w.count(rEmitted, s)
}

func (w *Writer) drop(s *Slot) {
	if *w.u64(rDropFirst) == 0 {
		atomic.StoreUint64(w.u64(rDropFirst), uint64(s.Start))
	}
	atomic.StoreUint64(w.u64(rDropLast), uint64(s.Start))
	w.count(rDropped, s)
	w.count(rEmitted, s)
}

// count adds one to a per-kind counter that only this writer changes. It is a plain
// store, and so one instruction: an ordered one would cost as much as the slot.
func (w *Writer) count(at int, s *Slot) {
	*w.u64(at + 8*int(s.Kind&7))++
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
	b := w.slot(level)
	s.Seq, s.State = 0, stateFree
	s.put(b, w.checksum)
	w.setState(level, stateOpen)
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

// End publishes the finished range that Begin gave the level, and frees it.
func (w *Writer) End(level int, s *Slot) bool {
	if level >= OpenLevels {
		return w.Publish(s)
	}
	l := &w.lanes[LaneOf(s.Kind)]
	free := l.free()
	if free {
		seq := uint32(l.head) &^ openMark
		if LaneOf(s.Kind) == Bulk {
			seq |= openMark
		}
		release32(w.u32(rOpen+slotSize*level+8), seq)
		w.setState(level, stateClosing)
		w.publish(l, s)
	} else {
		w.drop(s)
	}
	w.Free(level)
	return free
}

// Free takes a range out of the table without publishing it.
func (w *Writer) Free(level int) {
	if level < OpenLevels {
		w.setState(level, stateFree)
		w.depth = level
	}
}

func (w *Writer) slot(level int) []byte {
	return w.mem[rOpen+slotSize*level : rOpen+slotSize*(level+1)]
}

// setState stores the four bytes that end with the state. They begin with kind,
// flags and dtype as Begin wrote them: the checksum covers those, so End must
// not change them.
func (w *Writer) setState(level int, state uint8) {
	p := w.u32(rOpen + slotSize*level + 4)
	release32(p, *p&0x00FFFFFF|uint32(state)<<24)
}
