package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// empty reports whether there is nothing to draw.
func (p *picture) empty() bool { return !slices.ContainsFunc(Drawn, p.Has) }

// layer is a rank × step matrix that can be looked at, row by row.
type layer struct {
	Name  string `json:"name"`  // a word on a button
	Title string `json:"title"` // one sentence
	// Ratio says that 1 is "equal to peers" (coloured both ways); else values are
	// shares of the step, 0…1.
	Ratio  bool        `json:"ratio"`
	values [][]float32 // by row of the frame

	// What encode makes of the values: one byte a cell, 0 is "not measured", k is
	// Levels[k]; deflate (raw) and base64.
	Levels []float64 `json:"levels"` // 256 values; of a ratio its natural logarithm
	Data   string    `json:"data"`
}

// rowOf returns the place at which a rank is drawn, or -1.
func (p *picture) rowOf(number int) int {
	return slices.IndexFunc(p.drawn, func(r rank) bool { return r.number == number })
}

// stepIndex returns the index of the first step that is at least n, that behind the last
// when there is none.
func (p *picture) stepIndex(n int64) int {
	for i, c := range p.Columns {
		if c.Step >= n {
			return i
		}
	}

	return len(p.Columns)
}

// times returns the job's step time, step by step: the median over the ranks, in
// seconds; NaN where it is unknown.
func (p *picture) times() []float64 {
	out := make([]float64, len(p.Columns))
	var seen []float64
	for s, c := range p.Columns {
		seen = seen[:0]
		for _, v := range c.V[frame.Step] {
			if v > 0 {
				seen = append(seen, float64(v))
			}
		}

		out[s] = median(seen)
	}

	return out
}

// total returns the sum of step times, where an unknown one takes the median: its step took time,
// too, though nobody recorded how much.
func total(times []float64) float64 {
	seen := known(times)
	if len(seen) == 0 {
		return 0
	}

	sum := 0.0
	for _, t := range seen {
		sum += t
	}

	return sum + float64(len(times)-len(seen))*median(seen)
}

// known returns the values that are not NaN.
func known(x []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(x), math.IsNaN)
}

// relative returns each value of a metric of some ranks against the center of its peers in the
// same step: 1 is equal. A rank without a peer is compared with its own median
// over time.
func (p *picture) relative(m frame.Metric, of ...rank) [][]float32 {
	out := make([][]float32, len(p.Ranks)) // nil of the others
	for _, r := range of {
		out[r.row] = slices.Repeat([]float32{frame.NaN}, len(p.Columns))
	}

	reference := p.references(m)
	for s, c := range p.Columns {
		for k := range c.Layout.Roles {
			peers := c.Layout.Roles[k].Rows
			if !slices.ContainsFunc(peers, func(row int32) bool { return out[row] != nil }) {
				continue
			}

			usual := reference(peers, s)
			for _, row := range peers {
				if out[row] != nil {
					out[row][s] = ratio(p.At(m, int(row), s), usual)
				}
			}
		}
	}

	return out
}

// references returns what finds the value that the rows of a role are compared with in a
// step: the center of them all, for a rank without a peer its median over time.
func (p *picture) references(m frame.Metric) func(peers []int32, step int) float64 {
	own := map[int32]float64{} // of ranks without a peer: one pass over all steps each
	var seen []float64
	see := func(row int32, step int) {
		if v := p.At(m, int(row), step); v > 0 {
			seen = append(seen, float64(v))
		}
	}

	return func(peers []int32, step int) float64 {
		seen = seen[:0]
		if len(peers) != 1 {
			for _, row := range peers {
				see(row, step)
			}

			return center(seen)
		}

		x, ok := own[peers[0]]
		if !ok {
			for s := range p.Columns {
				see(peers[0], s)
			}

			x = median(seen)
			own[peers[0]] = x
		}

		return x
	}
}

// center is the median, but the lower one of two and the minimum of three values:
// with so few peers the median would hold the culprit itself.
func center(x []float64) float64 {
	switch {
	case len(x) == 0:
		return math.NaN()
	case len(x) <= 3:
		return slices.Min(x)
	}

	return median(x)
}

// ratio is a value against what it is compared with, NaN where either was not measured.
func ratio(v float32, reference float64) float32 {
	if !(v > 0) || !(reference > 0) {
		return frame.NaN
	}

	return float32(float64(v) / reference)
}

// median sorts x. It returns NaN for none.
func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile sorts x and returns its q-quantile, interpolated between the two values next to
// it (type 7 of Hyndman and Fan, 1996); NaN for none.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}

	slices.Sort(x)
	at := q * float64(len(x)-1)
	low := int(at)
	if at == float64(low) {
		return x[low]
	}

	return x[low] + (at-float64(low))*(x[low+1]-x[low])
}

// order sorts ranks as they are drawn, by stage, replica and rank: ranks that do the same work lie
// side by side, so that one that differs is a line of its own.
func order(a, b rank) int {
	return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.replica, b.replica), cmp.Compare(a.number, b.number))
}
