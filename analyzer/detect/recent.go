package detect

import "github.com/laggard-dev/laggard/analyzer/frame"

// recent keeps the raw values of the last analysed steps: what evidence quotes.
type recent struct {
	n, count int
	cells    [frame.MetricCount][]float32 // window × n, by step; nil = never recorded
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
