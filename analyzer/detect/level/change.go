package level

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
)

// Change compares the last blocks of a series with the best stable stretch before:
// the rise of the median, and the first step of the rise. It is 0 unless each of
// the last blocks is above, beyond what blocks differ anyway, and seldom one before was.
func (v *Job) Change(kind int) (rise float64, since int64) {
	b := v.blocks[kind]
	if len(b) <= 2*jobBlocks {
		return 0, 0
	}

	ref := robust.NaN
	for i := 1; i+jobBlocks <= len(b)-jobBlocks; i++ { // the first block is warm-up
		v.buf = robust.Compact(v.buf[:0], b[i:i+jobBlocks])
		if m := robust.Median(v.buf); len(v.buf) == jobBlocks && !(ref <= m) {
			ref = m
		}
	}

	v.buf = robust.Compact(v.buf[:0], b[len(b)-jobBlocks:])
	if ref != ref || len(v.buf) < jobBlocks {
		return 0, 0
	}

	now := robust.Median(v.buf)
	low := v.buf[0]
	for _, x := range v.buf {
		low = min(low, x)
	}

	v.buf = v.buf[:0]
	for i := 2; i < len(b); i++ {
		if d := b[i] - b[i-1]; d == d {
			v.buf = append(v.buf, d)
		}
	}

	half := ref + (now-ref)/2
	if low <= half || now-ref < jobSigmas*robust.Spread(v.buf) {
		return 0, 0
	}

	at := len(b) - 1
	for at > 0 && b[at-1] > half {
		at--
	}

	if at > 0 && chance(b[1:at], half, len(b)-at) > runOdds {
		return 0, 0
	}

	return float64(now - ref), v.labels[at]
}

// chance is that of run blocks in a row above half, as often as those before were, and in any of as many places.
func chance(before []float32, half float32, run int) float64 {
	above := 1.0
	for _, x := range before {
		if x > half {
			above++
		}
	}

	n := float64(len(before) + 1)
	return n * math.Pow(above/(n+1), float64(run))
}

// around are the known blocks of a series that end before step since, and those that begin with it or later.
func (v *Job) around(kind int, since int64) (before, now []float64) {
	for i, x := range v.blocks[kind] {
		switch {
		case x != x:
		case i+1 < len(v.labels) && v.labels[i+1] <= since:
			before = append(before, float64(x))
		case v.labels[i] >= since:
			now = append(now, float64(x))
		}
	}

	return before, now
}

// Since is by how much longer a series is since a step than before it, a logarithm, however little that is; NaN
// where there are not jobBlocks blocks of each, and a first one that is warm-up.
func (v *Job) Since(kind int, step int64) float64 {
	before, now := v.around(kind, step)
	if len(before) <= jobBlocks || len(now) < jobBlocks {
		return math.NaN()
	}

	return robust.Median64(now) - robust.Median64(before[1:])
}

// Along is the rise of the step time since the work of all roles grew: where waits
// make blocks of steps uneven, the work still tells when it began.
func (v *Job) Along() (rise float64, since int64) {
	for _, kind := range [2]int{Compute, Own} {
		work, at := v.Change(kind)
		if work < math.Log1p(Rise) {
			continue
		}

		var before, now []float64
		for i, x := range v.blocks[Step] {
			switch {
			case x != x || i == 0: // the first block is warm-up
			case v.labels[i] < at:
				before = append(before, float64(x))
			default:
				now = append(now, float64(x))
			}
		}

		if len(before) >= jobBlocks && len(now) >= jobBlocks {
			return robust.Median64(now) - robust.Median64(before), at
		}
	}

	return 0, 0
}

// WaitGrowth is how many seconds a step longer ranks are blocked now than in the
// blocks before step since.
func (v *Job) WaitGrowth(since int64) (float64, bool) {
	before, now := v.around(waiting, since)
	if len(before) < 2 || len(now) == 0 {
		return 0, false
	}

	return robust.Median64(robust.Newest(now, jobBlocks)) - robust.Median64(robust.Newest(before, 2*jobBlocks)), true
}
