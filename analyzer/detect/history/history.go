// Package history keeps the last analysed steps of a job: what evidence quotes, and what a
// step is replayed from.
//
// Invariant: it is bounded by a window of steps. Caveat: each metric keeps the last steps
// in which it was recorded, which may be older than the last steps.
package history

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Signal is what a rank is judged by.
type Signal int

// The signals; the first ofWork are of a rank's work.
const (
	Compute Signal = iota // forward (and backward where recorded and free of waits, see residual.Backward)
	Own                   // step - exposed communication - data loading - saving
	Loading               // data loader, as a share of the step
	Signals
	ofWork = Loading
)

// Window is the last analysed steps: as wholes, by the number of the step modulo the
// window, and the values of each metric. Each metric keeps the last steps in which it was
// recorded, so what was measured stays until it is measured otherwise.
type Window struct {
	Count  int                       // analysed steps
	Times  [threshold.Window]float32 // seconds
	Spans  [threshold.Window]float64 // the same with the steps that were left out before it
	Steps  [threshold.Window]int32   // how many steps that is
	Passes [threshold.Window]int32   // forward passes of a rank
	// Place is how many steps each signal's test had seen after it.
	Place [Signals][threshold.Window]int32
	// Pause and Paused are the seconds and the number of the steps that were left out
	// since.
	Pause  float64
	Paused int

	n        int
	at       [frame.MetricCount][threshold.Window]int32 // recorded after each step; 0 = the metric is not in it
	recorded [frame.MetricCount]int                     // steps in which each metric was recorded
	cells    [frame.MetricCount][]float32               // window × n, by recorded step; nil = never
	adjusted [ofWork][]float32                          // log seconds without what work explains
	works    [ofWork]int                                // steps in each of them
	buf      []float32
}

// New returns a history of n ranks.
func New(n int) *Window { return &Window{n: n} }

// LeaveOut counts a step that is not analysed.
func (h *Window) LeaveOut(t float64) { h.Pause, h.Paused = h.Pause+t, h.Paused+1 }

// Add begins an analysed step of t seconds and keeps its values.
func (h *Window) Add(c *frame.Column, t float64) {
	slot := h.Count % threshold.Window
	h.Times[slot], h.Spans[slot], h.Steps[slot], h.Passes[slot] = float32(t), h.Pause+t, int32(h.Paused)+1, int32(c.Passes)
	h.Pause, h.Paused = 0, 0
	for s := range h.Place {
		h.Place[s][slot] = 0
	}

	for m, v := range c.V {
		h.at[m][slot] = 0
		if v != nil {
			h.cells[m] = h.put(h.cells[m], h.recorded[m], v)
			h.recorded[m]++
			h.at[m][slot] = int32(h.recorded[m])
		}
	}

	h.Count++
}

// At are the values of a metric in the i-th analysed step by row, nil when
// nobody recorded it then.
func (h *Window) At(m frame.Metric, i int) []float32 {
	k := int(h.at[m][i%threshold.Window])
	if k == 0 || h.cells[m] == nil {
		return nil
	}

	return h.cells[m][(k-1)%threshold.Window*h.n:][:h.n]
}

// Has reports whether a metric was ever recorded.
func (h *Window) Has(m frame.Metric) bool { return h.cells[m] != nil }

// Latest are the values of a metric by row in the last k steps in which it was recorded,
// oldest first.
func (h *Window) Latest(m frame.Metric, k int) [][]float32 {
	var out [][]float32
	for i := max(0, h.recorded[m]-min(k, threshold.Window)); i < h.recorded[m]; i++ {
		out = append(out, h.cells[m][i%threshold.Window*h.n:][:h.n])
	}

	return out
}

// put keeps v as step k of a ring, and returns the ring.
func (h *Window) put(ring []float32, k int, v []float32) []float32 {
	if ring == nil {
		ring = robust.Unknown(threshold.Window * h.n)
	}

	copy(ring[k%threshold.Window*h.n:][:h.n], v)
	return ring
}

// Adjust keeps the logarithms of a signal's times in the step at hand, without what
// tokens and the replica's other stages say of its work. The two signals may go side
// by side.
func (h *Window) Adjust(s Signal, logs []float32) {
	h.adjusted[s] = h.put(h.adjusted[s], h.works[s], logs)
	h.works[s]++
}

// Work is the median time of compute or own of one rank over the last k steps, as
// its work would be without what work explains: seconds, NaN when none.
func (h *Window) Work(s Signal, r, k int) float64 {
	return math.Exp(h.middle(h.adjusted[s], h.works[s], r, k))
}

// Median is the median of one rank over the last k steps, NaN when none.
func (h *Window) Median(m frame.Metric, r, k int) float64 {
	return h.middle(h.cells[m], h.recorded[m], r, k)
}

// middle is the median of row r in the last k of so many steps of a ring.
func (h *Window) middle(ring []float32, steps, r, k int) float64 {
	if ring == nil {
		return math.NaN()
	}

	h.buf = h.buf[:0]
	for i := max(0, steps-min(k, threshold.Window)); i < steps; i++ {
		if x := ring[i%threshold.Window*h.n+r]; x == x {
			h.buf = append(h.buf, x)
		}
	}

	return float64(robust.Median(h.buf))
}

// SampleRows bounds the peers whose medians tell what is usual.
const SampleRows = 129

// Sample returns at most SampleRows of the rows, evenly.
func Sample(rows []int32) []int32 {
	if len(rows) <= SampleRows {
		return rows
	}

	out := make([]int32, 0, SampleRows)
	for i := range SampleRows {
		out = append(out, rows[i*len(rows)/SampleRows])
	}

	return out
}

// Over is the median over ranks of their medians, without those to skip.
func (h *Window) Over(m frame.Metric, rows []int32, k int, skip func(int) bool) float64 {
	return robust.MedianOf(rows, func(r int) float64 {
		if skip != nil && skip(r) {
			return math.NaN()
		}

		return h.Median(m, r, k)
	})
}
