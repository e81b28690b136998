// Package level follows what is common to all ranks of a job: its level against its own
// past, each stage's usual time, how much replicas differ, and loading that is slow on
// changing ranks. None of it is any rank's fault.
//
// Invariant: it is bounded by 4,096 steps, in blocks. Caveat: a job that was slow from its
// first step on has no past to be compared with.
package level

import (
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Job follows what is common: each stage's time, how much replicas differ from
// step to step, and the level of the whole job.
type Job struct {
	l *frame.Layout

	Sum    [2][]float64 // per role: mean log level of compute and own
	Usual  [2][]float64 // per role: mean of the middle of its ranks
	sumN   [2][]float64
	common [2]float64   // median over roles in the step at hand
	Now    [2][]float32 // level of each role in the step at hand

	SpreadN [2]float64
	Bulk    [2]float64   // robust spread of replicas' work from one step to the next
	before  [2][]float32 // work of each replica when it was last looked at
	repl    [2][]float32 // scratch of the two, which may go side by side
	vals    [2][]float32
	buf     []float32

	blocks  [kinds][]float32 // medians of eight steps, newest last
	labels  []int64          // first step of each block
	pending [kinds][]float32
	first   int64
}

// Kinds of block series.
const (
	Step    = iota // log step time
	Compute        // log compute common to all roles
	Own            // log own time common to all roles
	Load           // data loading as a share of a usual step
	Link           // log transfer, median over groups
	Passes         // log forward passes of a rank, its micro-batches
	waiting        // seconds a rank is blocked in communication, median
	kinds
)

// maxBlocks bounds the history: 4,096 steps.
const maxBlocks = 512

// New returns the level of a job with that layout.
func New(l *frame.Layout) *Job {
	v, n := &Job{l: l}, len(l.Roles)
	for k := range 2 {
		v.Now[k] = make([]float32, n)
		v.Sum[k], v.Usual[k], v.sumN[k] = make([]float64, n), make([]float64, n), make([]float64, n)
		v.before[k] = robust.Unknown(len(l.Replicas))
	}

	return v
}

// Move forgets what is usual in a role: its ranks run on another node.
func (v *Job) Move(g int) {
	for k := range v.sumN {
		v.sumN[k][g] = 0
	}
}

// Logs takes the absolute logs of the k-th signal, the median of each role, and the rows that stand for
// it. Self time may hide waits that nobody recorded, and of a few ranks one that is slow moves
// the median: both only add, so the fastest of those rows tells its work.
func (v *Job) Logs(k int, x, middle []float32, rows [][]int32, fastest bool) {
	v.vals[k] = v.vals[k][:0]
	for g := range v.l.Roles {
		m := middle[g]
		if fastest || len(v.l.Roles[g].Rows) < threshold.PoolSize {
			m = robust.NaN
			for _, r := range rows[g] {
				if y := x[r]; y == y && !(m <= y) {
					m = y
				}
			}
		}

		v.Now[k][g] = m
		if m != m {
			continue
		}

		v.sumN[k][g]++
		part := 1 / min(v.sumN[k][g], levelMemory)
		v.Sum[k][g] += (float64(m) - v.Sum[k][g]) * part
		v.Usual[k][g] += (float64(middle[g]) - v.Usual[k][g]) * part
		v.vals[k] = append(v.vals[k], m)
	}

	v.common[k] = float64(robust.Median(v.vals[k]))
}

// Spread measures how much replicas differ from step to step in the k-th signal. x is
// relative to peers; step counts the analysed ones. Spikes of single ranks don't count: a median and a MAD carry them.
func (v *Job) Spread(k int, x []float32, step int) {
	if len(v.l.Replicas) < 2 || step > threshold.Window && step%threshold.SharedProbe != 0 {
		return
	}

	v.vals[k] = v.vals[k][:0]
	for q, rows := range v.l.Replicas {
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

	v.SpreadN[k] = min(v.SpreadN[k]+1, threshold.Memory)
	v.Bulk[k] += (float64(robust.MAD(v.vals[k])) - v.Bulk[k]) / v.SpreadN[k]
}

// Observe adds the step, of t seconds where usual ones take usual, to the block series;
// link is its log transfer.
func (v *Job) Observe(c *frame.Column, t, usual float64, link float32) {
	if len(v.pending[Step]) == 0 {
		v.first = c.Step
	}

	val := [kinds]float32{}
	for k := range val {
		val[k] = robust.NaN
	}

	if c.Passes > 0 {
		val[Passes] = float32(math.Log(float64(c.Passes)))
	}

	if t > 0 {
		val[Step] = float32(math.Log(t))
	}

	if c.V[frame.FP] != nil {
		val[Compute] = float32(v.common[0])
	}

	if c.V[frame.Self] != nil {
		val[Own] = float32(v.common[1])
	}

	if d := c.V[frame.DataLoader]; d != nil && usual > 0 {
		val[Load], v.buf = robust.SampleMedian(d, v.buf)
		val[Load] /= float32(usual)
	}

	if w := c.V[frame.Exposed]; w != nil {
		val[waiting], v.buf = robust.SampleMedian(w, v.buf)
	}

	val[Link] = link
	for k := range kinds {
		v.pending[k] = append(v.pending[k], val[k])
	}

	if len(v.pending[Step]) < threshold.BlockSteps {
		return
	}

	for k := range kinds {
		v.buf = robust.Compact(v.buf[:0], v.pending[k])
		v.blocks[k] = robust.Newest(append(v.blocks[k], robust.Median(v.buf)), maxBlocks)
		v.pending[k] = v.pending[k][:0]
	}

	v.labels = robust.Newest(append(v.labels, v.first), maxBlocks)
}

// Loading looks for data loading that is slow on changing ranks.
type Loading struct {
	n     float64
	Slow  float64 // share of steps in which some rank loads slowly
	Cost  float64 // share of a step that costs
	Top   map[int32]float64
	total float64
	buf   []float32
}

// NewLoading returns a job whose loading is not known yet.
func NewLoading() *Loading { return &Loading{Top: map[int32]float64{}} }

// Observe takes a step of t seconds; node is that of each rank, known what is known of
// how it loads.
func (s *Loading) Observe(c *frame.Column, t float64, node []int32, known interface{ Healthy(row int) bool }) {
	v := c.V[frame.DataLoader]
	if v == nil || t <= 0 {
		return
	}

	var mid float32
	mid, s.buf = robust.SampleMedian(v, s.buf)
	worst, at := float32(0), int32(-1)
	for r, x := range v {
		if x == x && x-mid > worst && known.Healthy(r) {
			worst, at = x-mid, node[r]
		}
	}

	const keep = 1 - 1.0/threshold.Memory
	s.n = s.n*keep + 1
	share := float64(worst) / t
	s.Cost += (share - s.Cost) / s.n
	hit := 0.0
	if share >= LoadShare && at >= 0 {
		hit = 1
		s.Top[at]++
		s.total++
	}

	s.Slow += (hit - s.Slow) / s.n
	if s.total > 4*threshold.Memory { // forget slowly, and what is hardly seen at all
		s.total = 0
		for k := range s.Top {
			if s.Top[k] /= 2; s.Top[k] < 0.5 {
				delete(s.Top, k)
			}

			s.total += s.Top[k]
		}
	}
}

// Rotates reports whether slow loading wanders over nodes.
func (s *Loading) Rotates() bool {
	if s.n < threshold.Window || s.Slow < storageSteps || s.Cost < LeastImpact {
		return false
	}

	most := 0.0
	for _, k := range s.Top {
		most = max(most, k)
	}

	return len(s.Top) >= 3 && most < storageTop*s.total
}

// Check reports series of a restored level that are not as long as their labels.
func (v *Job) Check() error {
	for _, b := range v.blocks {
		if len(b) != len(v.labels) {
			return fmt.Errorf("%d blocks, want %d", len(b), len(v.labels))
		}
	}

	return nil
}

// ByStage is the usual time of each stage in seconds; nil when one is unknown.
func (v *Job) ByStage(s, stages int) []float64 {
	out := make([]float64, 0, stages)
	for st := range stages {
		var x []float64
		for g := range v.l.Roles {
			if v.l.Roles[g].Stage == st && v.sumN[s][g] >= threshold.MinBold {
				x = append(x, v.Sum[s][g])
			}
		}

		if len(x) == 0 {
			return nil
		}

		out = append(out, math.Exp(robust.Median64(x)))
	}

	return out
}
