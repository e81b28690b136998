package recorder

import (
	"math"
	"runtime/debug"
	"sync/atomic"

	"laggard/collector/ring"
	"laggard/schemas/record"
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
	free    *open // that no range uses
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

// on reports whether kind k is recorded now.
func (t *Thread) on(k record.Kind) bool {
	w := t.word.Load()
	if w&specialBit != 0 {
		w = t.r.begin(k)
	}
	if k == record.Communication {
		return w&ring.CommunicationOn != 0
	}
	return w&ring.LightOn != 0
}

// Mark records a range that is over: start in ns since the Unix epoch, dur in ns.
func (t *Thread) Mark(k record.Kind, a Attr, start, dur int64) {
	if t != nil && t.on(k) {
		t.emit(k, a, start, dur)
	}
}

// End records the range. It does nothing when the range was not begun, or
// ended before.
func (r *Range) End() {
	if r.t != nil {
		r.finish()
	}
}

func (r *Range) finish() {
	s := &r.o.slot
	s.Dur = max(r.t.r.Now()-s.Start, 0)
	r.end()
}

// EndDevice records the range with the time it took on the device, start in ns
// since the Unix epoch and dur in ns; the host's times are kept beside it.
func (r *Range) EndDevice(start, dur int64) {
	if r.t == nil {
		return
	}
	s := &r.o.slot
	s.HostStart, s.HostDur = s.Start, max(r.t.r.Now()-s.Start, 0)
	s.Start, s.Dur = start, max(dur, 0)
	s.Flags = ring.FlagDevice | ring.FlagHost
	r.end()
}

// EndExposed records a communication of which the program waited exposed ns.
func (r *Range) EndExposed(exposed int64) {
	if r.t != nil {
		r.o.slot.HostStart, r.o.slot.Flags = max(exposed, 0), ring.FlagExposed
		r.End()
	}
}

// Value sets what Attr.Value says when it is known only now.
func (r *Range) Value(v int64) {
	if r.t != nil {
		r.o.slot.Value = v
	}
}

// Cancel forgets the range.
func (r *Range) Cancel() {
	if t, o := r.t, r.o; t != nil {
		*r = Range{}
		t.free, o.next = o, t.free
		if t.w != nil {
			defer t.leave(debug.SetPanicOnFault(true))
			t.w.Free(o.level)
		}
	}
}

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
	fill(&o.slot, k, &a, t.r.Now(), step)
	if t.w != nil || t.ring(o.slot.Start) {
		t.enter(o)
	}
	return Range{t, o}
}

// enter puts a range into the table. The memory may vanish when somebody truncates a
// file: a fault becomes a panic that leave recovers.
func (t *Thread) enter(o *open) {
	defer t.leave(debug.SetPanicOnFault(true))
	o.level = t.w.Begin(&o.slot)
}

func (r *Range) end() {
	t, o := r.t, r.o
	*r = Range{}
	t.free, o.next = o, t.free
	if o.slot.Kind == record.Step {
		t.r.step.CompareAndSwap(int64(o.slot.Step), record.NoStep)
	}
	if t.r.off.Load() {
		return
	}
	if t.w == nil {
		t.r.lose(o.slot.Kind)
		return
	}
	defer t.leave(debug.SetPanicOnFault(true))
	t.w.End(o.level, &o.slot)
}

func (t *Thread) emit(k record.Kind, a Attr, start, dur int64) {
	if t.w == nil && !t.ring(t.r.Now()) {
		t.r.lose(k)
		return
	}
	var s ring.Slot
	fill(&s, k, &a, start, t.r.step.Load())
	s.Dur = max(dur, 0)
	defer t.leave(debug.SetPanicOnFault(true))
	t.w.Publish(&s)
}

// leave ends a passage that touches the ring. It is deferred.
func (t *Thread) leave(was bool) {
	debug.SetPanicOnFault(was)
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
	defer t.leave(debug.SetPanicOnFault(true))
	t.w.Close()
	t.w = nil
}

// fill sets every field of s, Dur to 0. One by one: a literal is made elsewhere and
// copied in pieces larger than those it was made of, which a processor waits for.
func fill(s *ring.Slot, k record.Kind, a *Attr, start, step int64) {
	s.Kind, s.Flags, s.Dtype, s.State = k, 0, a.Dtype, 0
	s.Seq, s.Peer = 0, a.peer-1
	s.Start, s.Dur, s.HostStart, s.HostDur = start, 0, 0, 0
	s.Text, s.Group, s.Stream = uint16(a.Text), uint16(a.Group), a.Stream
	s.Value = a.Value
	s.Step = ring.NoStep
	if step >= 0 && step < int64(ring.NoStep) {
		s.Step = uint32(step)
	}
}
