package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// recent keeps the raw values of the last analysed steps: what evidence quotes.
type recent struct {
	n, count int
	cells    [frame.MetricCount][]float32 // window × n, by step; nil = never recorded
	adjusted [2][]float32                 // the same of compute and own: log seconds without what work explains
	buf      []float32
}

func newRecent(n int) *recent { return &recent{n: n} }

func (h *recent) add(c *frame.Column) {
	slot := h.count % window
	for m, v := range c.V {
		if v == nil && h.cells[m] == nil {
			continue
		}
		if h.cells[m] == nil {
			h.cells[m] = make([]float32, window*h.n)
			for i := range h.cells[m] {
				h.cells[m][i] = nan32
			}
		}
		dst := h.cells[m][slot*h.n : (slot+1)*h.n]
		if v == nil {
			for i := range dst {
				dst[i] = nan32
			}
			continue
		}
		copy(dst, v)
	}
	h.count++
}

// adjust keeps the logarithms of a signal's times in the step at hand, without what
// tokens and the replica's other stages say of its work. logs is nil where the
// signal was not recorded. The two signals may go side by side.
func (h *recent) adjust(s signal, logs []float32) {
	if h.adjusted[s] == nil {
		if logs == nil {
			return
		}
		h.adjusted[s] = make([]float32, window*h.n)
		for i := range h.adjusted[s] {
			h.adjusted[s][i] = nan32
		}
	}
	slot := (h.count - 1) % window
	dst := h.adjusted[s][slot*h.n : (slot+1)*h.n]
	if logs == nil {
		for i := range dst {
			dst[i] = nan32
		}
		return
	}
	copy(dst, logs)
}

// work is the median time of compute or own of one rank over the last k steps, as
// its work would be without what work explains: seconds, NaN when none.
func (h *recent) work(s signal, r, k int) float64 {
	if h.adjusted[s] == nil {
		return math.NaN()
	}
	h.buf = h.buf[:0]
	for i := max(0, h.count-min(k, window)); i < h.count; i++ {
		if x := h.adjusted[s][(i%window)*h.n+r]; x == x {
			h.buf = append(h.buf, x)
		}
	}
	return math.Exp(float64(median(h.buf)))
}

// median is the median of one rank over the last k steps, NaN when none.
func (h *recent) median(m frame.Metric, r, k int) float64 {
	if h.cells[m] == nil {
		return float64(nan32)
	}
	h.buf = h.buf[:0]
	for i := max(0, h.count-min(k, window)); i < h.count; i++ {
		if x := h.cells[m][(i%window)*h.n+r]; x == x {
			h.buf = append(h.buf, x)
		}
	}
	return float64(median(h.buf))
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
	return middle(v)
}
