package recorder

import (
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// retry is how long a thread that got no ring waits before it asks again, ns:
// another thread may have left one by then.
const retry = 1_000_000_000

// Attr is what is known of a range when it begins. The zero value says nothing.
type Attr struct {
	Text   ID     // Communication: the op; SaveCheckpoint: the path; other kinds of your own: the word
	Group  ID     // communicator
	Value  int64  // Communication: elements; Step, FP: tokens; SaveCheckpoint: bytes
	Dtype  uint8  // record.DtypeCode
	Stream uint16 // of the device, 0 none
	peer   int32  // rank in the group plus one, 0 none
}

// Op describes a communication.
func Op(op, group ID, count int64, dtype uint8) Attr {
	return Attr{Text: op, Group: group, Value: count, Dtype: dtype}
}

// To says which rank of the group is at the other end.
func (a Attr) To(peer int) Attr {
	if peer >= 0 && peer < math.MaxInt32 {
		a.peer = int32(peer) + 1
	}

	return a
}

// Thread records for one goroutine at a time.
type Thread struct {
	r       *Recorder
	word    *atomic.Uint32 // r.word
	w       *ring.Writer
	retryAt int64
	free    *open     // that no range uses
	mark    ring.Slot // of Mark: on the stack it would be cleared each time
}

// Range is an open range. Its zero value is one that is not recorded. It is two words,
// so that one that is off is two registers; End may be called on one of its copies
// only.
type Range struct {
	t *Thread
	o *open
}

// open is what is known of an open range. Threads use theirs again.
type open struct {
	slot  ring.Slot
	level int
	next  *open
}

// Begin opens a range of kind k. End must be called on the same goroutine. While all
// is off it costs its caller a load and a branch: it is small enough to be inlined.
func (t *Thread) Begin(k record.Kind, a Attr) Range {
	if t != nil && t.word.Load() != 0 {
		return t.begin(k, a)
	}

	return Range{}
}

// Step opens the range of training step n and makes n the step of every range
// that begins in this process until it ends. tokens is its work, 0 unknown.
func (t *Thread) Step(n, tokens int64) Range {
	if t == nil {
		return Range{}
	}

	t.r.step.Store(n)
	if !t.on(record.Step) {
		return Range{}
	}

	return t.open(record.Step, Attr{Value: tokens}, n)
}

// bit returns which bit of the word says that kind k is recorded.
func bit(k record.Kind) uint32 {
	if k == record.Communication {
		return ring.CommunicationOn
	}

	return ring.LightOn
}

// on reports whether kind k is recorded now. A special word has neither bit: it says that
// there is no folder yet, or will be none.
func (t *Thread) on(k record.Kind) bool {
	word := t.word.Load()
	if word&specialBit != 0 {
		word = t.r.begin(k)
	}

	return word&bit(k) != 0
}

// Mark records a range that is over: start in ns since the Unix epoch, dur in ns.
func (t *Thread) Mark(k record.Kind, a Attr, start, dur int64) {
	// The first look is on's, without a call: P3 counts the nanosecond.
	if t == nil || t.word.Load()&bit(k) == 0 && !t.on(k) {
		return
	}

	if t.w == nil && !t.ring(t.r.Now()) {
		t.r.lose(k)
		return
	}

	s := &t.mark
	s.Name(k, a.Dtype, a.peer-1, uint16(a.Text), uint16(a.Group), a.Stream, a.Value)
	s.SetTime(start, max(dur, 0), t.r.step.Load())
	done, was := false, debug.SetPanicOnFault(true)
	defer t.leave(was, &done)
	t.w.Publish(s)
	done = true
}

// End records the range. It does nothing when the range was not begun, or
// ended before.
func (r *Range) End() {
	if r.t != nil {
		r.finish()
	}
}

// finish ends a range with the host's duration.
func (r *Range) finish() {
	r.o.slot.SetDur(r.host())
	r.end()
}

// host returns how long the range has been open.
func (r *Range) host() int64 { return max(r.t.r.Now()-r.o.slot.Start(), 0) }

// EndDevice records the range with the time it took on the device, start in ns
// since the Unix epoch and dur in ns; the host's times are kept beside it.
func (r *Range) EndDevice(start, dur int64) {
	if r.t != nil {
		r.o.slot.SetDevice(start, max(dur, 0), r.host())
		r.end()
	}
}

// EndExposed records a communication of which the program waited exposed ns.
func (r *Range) EndExposed(exposed int64) {
	if r.t != nil {
		r.o.slot.SetExposed(max(exposed, 0))
		r.finish()
	}
}

// Value sets what Attr.Value says when it is known only now.
func (r *Range) Value(v int64) {
	if r.t != nil {
		r.o.slot.SetValue(v)
	}
}

// Cancel forgets the range.
func (r *Range) Cancel() {
	if t, o := r.t, r.o; t != nil {
		*r = Range{}
		t.free, o.next = o, t.free
		if t.w != nil {
			defer t.leave(debug.SetPanicOnFault(true), new(bool))
			t.w.Free(o.level)
		}
	}
}

// begin is Begin where something is on.
func (t *Thread) begin(k record.Kind, a Attr) Range {
	if !t.on(k) {
		return Range{}
	}

	return t.open(k, a, t.r.step.Load())
}

// open begins a range.
func (t *Thread) open(k record.Kind, a Attr, step int64) Range {
	o := t.free
	if o == nil {
		o = new(open) // as often as ranges of this thread are open at once
	}

	t.free = o.next
	o.level = ring.OpenLevels
	start := t.r.Now()
	o.slot.Name(k, a.Dtype, a.peer-1, uint16(a.Text), uint16(a.Group), a.Stream, a.Value)
	o.slot.SetTime(start, 0, step)
	if t.w != nil || t.ring(start) {
		t.enter(o)
	}

	return Range{t, o}
}

// enter puts a range into the table.
func (t *Thread) enter(o *open) {
	done, was := false, debug.SetPanicOnFault(true)
	defer t.leave(was, &done)
	o.level = t.w.Begin(&o.slot)
	done = true
}

// end writes the range's end, and gives its buffer back first: what follows may fail. A fault of the
// ring's memory (its file was cut, or the disk is full) ends recording, not the trainer.
func (r *Range) end() {
	t, o := r.t, r.o
	*r = Range{}
	t.free, o.next = o, t.free
	k := o.slot.Kind()
	if k == record.Step { // unless another step has begun meanwhile
		t.r.step.CompareAndSwap(int64(o.slot.Step()), record.NoStep)
	}

	if t.r.off.Load() {
		return
	}

	if t.w == nil {
		t.r.lose(k)
		return
	}

	done, was := false, debug.SetPanicOnFault(true)
	defer t.leave(was, &done)
	t.w.End(o.level, &o.slot)
	done = true
}

// leave ends a passage that touches the ring. It is deferred: the memory may vanish when
// somebody truncates a file, and the fault becomes a panic. done says that the passage came to
// its end: recover is a part of a range's cost, and not needed then.
func (t *Thread) leave(was bool, done *bool) {
	debug.SetPanicOnFault(was)
	if *done {
		return
	}

	if err := ring.Survived(recover()); err != nil {
		t.w = nil
		t.r.fail(err)
	}
}

// ring gets the thread a ring, unless it was refused one less than a second ago.
func (t *Thread) ring(now int64) bool {
	if now < t.retryAt {
		return false
	}

	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	if t.r.process == nil || t.r.off.Load() {
		return false
	}

	w, err := t.r.process.NewWriter(0)
	if err != nil {
		t.retryAt = now + retry
		return false
	}

	t.w = w
	return true
}

// Close gives the thread's ring to the next one that needs it.
func (t *Thread) Close() {
	if t == nil || t.w == nil {
		return
	}

	defer t.leave(debug.SetPanicOnFault(true), new(bool))
	t.w.Close()
	t.w = nil
}
