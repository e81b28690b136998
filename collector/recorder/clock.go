package recorder

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// calibrate is the least time that tells a tick's length: a reading is good to some
	// 50 ns, so this gives 5 ppm.
	calibrate = 10 * time.Millisecond
	// follow is how long a scale is believed without a look at the kernel's clock: that
	// comes every look.
	follow = 3 * look
	// anchor is the age from which on the scale follows the kernel's own corrections.
	anchor = 2 * time.Second
)

// clock tells ns since the Unix epoch as it was at the start, and the monotonic clock
// from there: steps of the wall clock move nothing later. Where the processor's
// counter runs at one rate and the kernel keeps its own time by it, now reads the
// counter, by the rule of collector/native/src/clock.c; else, and until a tick's length
// is known, the vDSO clock.
type clock struct {
	base  time.Time // its monotonic reading is the clock's zero
	wall  int64     // base, ns since the Unix epoch
	scale atomic.Pointer[scale]
	first scale // the pair that ticks are measured from; of whoever calls adjust
}

// scale makes times of ticks: from tsc0 on, for span ticks.
type scale struct {
	tsc0, mult, span uint64 // mult: 2^32 ns a tick
	ns0              int64
}

// at returns the time d ticks after tsc0. The product has 128 bits, of which the lower 32 are
// fractions of a ns.
func (s *scale) at(d uint64) int64 {
	hi, lo := bits.Mul64(d, s.mult)
	return s.ns0 + int64(hi<<32|lo>>32)
}

// newClock returns a clock that reads the vDSO's until start and adjust give it a scale.
func newClock() clock {
	base := time.Now()
	return clock{base: base, wall: base.UnixNano()}
}

// now may be called from any goroutine. One that comes after another on the same
// goroutine is not before it, but for what two scales differ in, which is some ns.
func (c *clock) now() int64 {
	t := ticks() // before the scale: a scale is never newer than the ticks it is used for
	if s := c.scale.Load(); s != nil {
		if d := t - s.tsc0; d < s.span {
			return s.at(d)
		}
	}

	return c.slow(t)
}

// slow is the vDSO clock, but never before what the scale has said.
func (c *clock) slow(t uint64) int64 {
	ns := c.kernel()
	s := c.scale.Load()
	switch {
	case s == nil:
		return ns
	case t < s.tsc0: // the scale was made after t was read
		return max(ns, s.ns0)
	}

	return max(ns, s.at(min(t-s.tsc0, s.span)))
}

// kernel reads the vDSO's monotonic clock, on the recorder's zero.
func (c *clock) kernel() int64 { return c.wall + int64(time.Since(c.base)) }

// start takes the first pair of readings, where the counter can be trusted.
func (c *clock) start(want string) {
	if want == "tsc" || want == "" && invariant() {
		c.first.tsc0, c.first.ns0 = c.pair()
	}
}

// adjust makes the scale follow the kernel's clock. It is called every look, by one
// goroutine at a time.
func (c *clock) adjust() {
	if c.first.tsc0 == 0 {
		return
	}

	tsc, ns := c.pair()
	since := ns - c.first.ns0
	if since < int64(calibrate) || tsc <= c.first.tsc0 || uint64(since)>>32 >= tsc-c.first.tsc0 {
		return
	}

	mult, _ := bits.Div64(uint64(since)>>32, uint64(since)<<32, tsc-c.first.tsc0)
	if mult == 0 {
		return
	}

	next := &scale{tsc0: tsc, ns0: ns, mult: mult}
	next.span, _ = bits.Div64(0, uint64(follow)<<32, mult)
	if s := c.scale.Load(); s != nil && tsc > s.tsc0 {
		// Where the last scale was too fast, time stands still.
		if floor := s.at(min(tsc-s.tsc0, s.span)); floor > ns && floor-ns < int64(follow) {
			next.ns0 = floor
		}
	}

	c.scale.Store(next)
	if since > int64(anchor) {
		c.first.tsc0, c.first.ns0 = tsc, ns
	}
}

// pair reads both clocks as close together as three tries allow: a try that is interrupted
// takes longer than the others.
func (c *clock) pair() (tsc uint64, ns int64) {
	best := ^uint64(0)
	for range 3 {
		a := ticks()
		now := c.kernel()
		b := ticks()
		if b-a < best {
			best, tsc, ns = b-a, a+(b-a)/2, now
		}
	}

	return tsc, ns
}
