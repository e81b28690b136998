package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// recent keeps the raw values of the last analysed steps: what evidence quotes. Each
// metric keeps the last steps in which it was recorded, so what was measured stays
// until it is measured otherwise.
type recent struct {
	n        int
	steps    [frame.MetricCount]int       // steps in which each metric was recorded
	cells    [frame.MetricCount][]float32 // window × n, by step; nil = never recorded
	adjusted [2][]float32                 // of compute and own: log seconds without what work explains
	works    [2]int                       // steps in each of them
	buf      []float32
}

func newRecent(n int) *recent { return &recent{n: n} }

func (h *recent) add(c *frame.Column) {
	for m, v := range c.V {
		if v != nil {
			h.cells[m] = h.put(h.cells[m], h.steps[m], v)
			h.steps[m]++
		}
	}
}

// put keeps v as step k of a ring, and returns the ring.
func (h *recent) put(ring []float32, k int, v []float32) []float32 {
	if ring == nil {
		ring = make([]float32, threshold.Window*h.n)
		for i := range ring {
			ring[i] = robust.NaN
		}
	}

	copy(ring[k%threshold.Window*h.n:][:h.n], v)
	return ring
}

// adjust keeps the logarithms of a signal's times in the step at hand, without what
// tokens and the replica's other stages say of its work. The two signals may go side
// by side.
func (h *recent) adjust(s signal, logs []float32) {
	h.adjusted[s] = h.put(h.adjusted[s], h.works[s], logs)
	h.works[s]++
}

// work is the median time of compute or own of one rank over the last k steps, as
// its work would be without what work explains: seconds, NaN when none.
func (h *recent) work(s signal, r, k int) float64 {
	if h.adjusted[s] == nil {
		return math.NaN()
	}

	h.buf = h.buf[:0]
	for i := max(0, h.works[s]-min(k, threshold.Window)); i < h.works[s]; i++ {
		if x := h.adjusted[s][(i%threshold.Window)*h.n+r]; x == x {
			h.buf = append(h.buf, x)
		}
	}

	return math.Exp(float64(robust.Median(h.buf)))
}

// median is the median of one rank over the last k steps, NaN when none.
func (h *recent) median(m frame.Metric, r, k int) float64 {
	if h.cells[m] == nil {
		return float64(robust.NaN)
	}

	h.buf = h.buf[:0]
	for i := max(0, h.steps[m]-min(k, threshold.Window)); i < h.steps[m]; i++ {
		if x := h.cells[m][(i%threshold.Window)*h.n+r]; x == x {
			h.buf = append(h.buf, x)
		}
	}

	return float64(robust.Median(h.buf))
}

// over is the median over ranks of their medians, without those to skip.
func (h *recent) over(m frame.Metric, rows []int32, k int, skip func(int) bool) float64 {
	var v []float64
	for _, r := range rows {
		if skip != nil && skip(int(r)) {
			continue
		}

		if x := h.median(m, int(r), k); x == x {
			v = append(v, x)
		}
	}

	return robust.Median64(v)
}
