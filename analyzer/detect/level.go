package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// levels follows what is common: each stage's time, how much replicas differ from
// step to step, and the level of the whole job.
type levels struct {
	stages []int // stage of each role
	n      int

	sum    [2][]float64 // per role: mean log level of compute and own
	sumN   [2][]float64
	common [2]float64   // median over roles in the step at hand
	now    [2][]float32 // level of each role in the step at hand

	spreadN [2]float64
	bulk    [2]float64   // robust spread of replicas' work from one step to the next
	before  [2][]float32 // work of each replica when it was last looked at
	repl    [2][]float32 // scratch of the two, which may go side by side
	vals    [2][]float32
	buf     []float32

	blocks  [blockKinds][]float32 // medians of eight steps, newest last
	labels  []int64               // first step of each block
	pending [blockKinds][]float32
	first   int64
}

// Kinds of block series.
const (
	blockStep    = iota // log step time
	blockCompute        // log compute common to all roles
	blockOwn            // log own time common to all roles
	blockLoad           // data loading as a share of a usual step
	blockLink           // log transfer, median over groups
	blockWait           // seconds a rank is blocked in communication, median
	blockKinds
)

// maxLevelBlocks bounds the history: 4,096 steps.
const maxLevelBlocks = 512

func newLevels(l *frame.Layout) *levels {
	v := &levels{n: len(l.Roles)}
	for _, r := range l.Roles {
		v.stages = append(v.stages, r.Stage)
	}

	for k := range 2 {
		v.now[k] = make([]float32, v.n)
		v.sum[k], v.sumN[k] = make([]float64, v.n), make([]float64, v.n)
		v.before[k] = make([]float32, len(l.Replicas))
		for q := range v.before[k] {
			v.before[k][q] = robust.NaN
		}
	}

	return v
}

// logs takes the absolute logs of a signal, and the median of each role. Self
// time may hide waits that nobody recorded, and of a few ranks one that is slow moves
// the median: both only add, so the fastest rank of the role tells its work.
func (v *levels) logs(e *Engine, s signal, x, middle []float32) {
	k := int(s)
	v.vals[k] = v.vals[k][:0]
	for g := range e.layout.Roles {
		m := middle[g]
		if s == own || len(e.layout.Roles[g].Rows) < threshold.PoolSize {
			m = robust.NaN
			for _, r := range e.layout.Roles[g].Rows {
				if y := x[r]; y == y && !(m <= y) {
					m = y
				}
			}
		}

		v.now[k][g] = m
		if m != m {
			continue
		}

		v.sumN[k][g]++
		v.sum[k][g] += (float64(m) - v.sum[k][g]) / min(v.sumN[k][g], 1000)
		v.vals[k] = append(v.vals[k], m)
	}

	v.common[k] = float64(robust.Median(v.vals[k]))
}

// spread measures how much replicas differ from step to step. x is relative to
// peers. Spikes of single ranks don't count: a median and a MAD carry them.
func (v *levels) spread(e *Engine, s signal, x []float32) {
	k := int(s)
	if len(e.layout.Replicas) < 2 || e.analysed > threshold.Window && e.analysed%threshold.SharedProbe != 0 {
		return
	}

	v.vals[k] = v.vals[k][:0]
	for q, rows := range e.layout.Replicas {
		v.repl[k] = v.repl[k][:0]
		for _, r := range rows {
			if y := x[r]; y == y {
				v.repl[k] = append(v.repl[k], y)
			}
		}

		m := robust.Median(v.repl[k])
		if m != m {
			continue
		}

		if d := (m - v.before[k][q]) / math.Sqrt2; d == d {
			v.vals[k] = append(v.vals[k], d)
		}

		v.before[k][q] = m
	}

	if len(v.vals[k]) < 2 {
		return
	}

	v.spreadN[k] = min(v.spreadN[k]+1, threshold.Memory)
	v.bulk[k] += (float64(robust.MAD(v.vals[k])) - v.bulk[k]) / v.spreadN[k]
}

// observe adds the step to the block series.
func (v *levels) observe(e *Engine, c *frame.Column, t float64) {
	if len(v.pending[blockStep]) == 0 {
		v.first = c.Step
	}

	val := [blockKinds]float32{robust.NaN, robust.NaN, robust.NaN, robust.NaN, robust.NaN, robust.NaN}
	if t > 0 {
		val[blockStep] = float32(math.Log(t))
	}

	if c.V[frame.FP] != nil {
		val[blockCompute] = float32(v.common[0])
	}

	if c.V[frame.Self] != nil {
		val[blockOwn] = float32(v.common[1])
	}

	if d := c.V[frame.DataLoader]; d != nil && e.stepMedian > 0 {
		val[blockLoad] = e.sampleMedian(d) / float32(e.stepMedian)
	}

	if w := c.V[frame.Exposed]; w != nil {
		val[blockWait] = e.sampleMedian(w)
	}

	val[blockLink] = e.links.Common()
	for k := range blockKinds {
		v.pending[k] = append(v.pending[k], val[k])
	}

	if len(v.pending[blockStep]) < threshold.BlockSteps {
		return
	}

	for k := range blockKinds {
		e.buf = robust.Compact(e.buf[:0], v.pending[k])
		v.blocks[k] = append(v.blocks[k], robust.Median(e.buf))
		v.pending[k] = v.pending[k][:0]
		if len(v.blocks[k]) > maxLevelBlocks {
			v.blocks[k] = v.blocks[k][1:]
		}
	}

	v.labels = append(v.labels, v.first)
	if len(v.labels) > maxLevelBlocks {
		v.labels = v.labels[1:]
	}
}

// change compares the last blocks of a series with the best stable stretch before:
// the rise of the median, and the first step of the rise. It is 0 unless each of
// the last blocks is above, beyond what blocks differ anyway.
func (v *levels) change(kind int) (rise float64, since int64) {
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

	return float64(now - ref), v.labels[at]
}

// along is the rise of the step time since the work of all roles grew: where waits
// make blocks of steps uneven, the work still tells when it began.
func (v *levels) along() (rise float64, since int64) {
	for _, kind := range [2]int{blockCompute, blockOwn} {
		work, at := v.change(kind)
		if work < math.Log1p(jobRise) {
			continue
		}

		var before, now []float64
		for i, x := range v.blocks[blockStep] {
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

// waitGrowth is how many seconds a step longer ranks are blocked now than in the
// blocks before step since.
func (v *levels) waitGrowth(since int64) (float64, bool) {
	b := v.blocks[blockWait]
	var before, now []float64
	for i, x := range b {
		switch {
		case x != x:
		case i+1 < len(v.labels) && v.labels[i+1] <= since:
			before = append(before, float64(x))
		case v.labels[i] >= since:
			now = append(now, float64(x))
		}
	}

	if len(before) < 2 || len(now) == 0 {
		return 0, false
	}

	return robust.Median64(tailOf(now, jobBlocks)) - robust.Median64(tailOf(before, 2*jobBlocks)), true
}

func tailOf(v []float64, n int) []float64 { return v[max(0, len(v)-n):] }

// storage looks for data loading that is slow on changing ranks.
type storage struct {
	n     float64
	slow  float64 // share of steps in which some rank loads slowly
	cost  float64 // share of a step that costs
	top   map[int32]float64
	total float64
}

func newStorage(int) *storage { return &storage{top: map[int32]float64{}} }

func (s *storage) observe(e *Engine, c *frame.Column, t float64) {
	v := c.V[frame.DataLoader]
	if v == nil || t <= 0 {
		return
	}

	mid := e.sampleMedian(v)
	worst, at := float32(0), int32(-1)
	for r, x := range v {
		if x == x && x-mid > worst && e.tracks[loading].Healthy(r) {
			worst, at = x-mid, e.layout.Node[r]
		}
	}

	const keep = 1 - 1.0/threshold.Memory
	s.n = s.n*keep + 1
	share := float64(worst) / t
	s.cost += (share - s.cost) / s.n
	hit := 0.0
	if share >= storageShare && at >= 0 {
		hit = 1
		s.top[at]++
		s.total++
	}

	s.slow += (hit - s.slow) / s.n
	if s.total > 4*threshold.Memory { // forget slowly, and what is hardly seen at all
		s.total = 0
		for k := range s.top {
			if s.top[k] /= 2; s.top[k] < 0.5 {
				delete(s.top, k)
			}

			s.total += s.top[k]
		}
	}
}

// rotates reports whether slow loading wanders over nodes.
func (s *storage) rotates() bool {
	if s.n < threshold.Window || s.slow < storageSteps || s.cost < findingImpact {
		return false
	}

	most := 0.0
	for _, k := range s.top {
		most = max(most, k)
	}

	return len(s.top) >= 3 && most < storageTop*s.total
}
