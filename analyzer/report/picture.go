package report

import (
	"cmp"
	"math"
	"slices"
)

// Picture is what a report draws: numbers and names, no rows. Draw makes one of
// a frame.
//
// Invariant: every Layer has len(Ranks)*len(Steps) values, row by row in the
// order of Ranks; NaN is "not measured".
type Picture struct {
	Ranks []Rank    // in the order they are drawn
	Steps []int64   // step numbers, in time order; a step that was repeated comes again
	Times []float64 // per step: the job's step time in seconds (median over ranks); NaN unknown
	// Layers are the matrices that can be looked at, the first one first.
	Layers []Layer
	// Metrics are absolute durations, for evidence charts.
	Metrics []Metric
	Nodes   int // nodes of the job
	// Unmeasured are sentences on what was not recorded.
	Unmeasured []string
}

// Rank is one row of the picture.
type Rank struct {
	Rank  int
	Node  string
	Stage int // pipeline stage; -1 unknown
	// Replica is the data-parallel index, -1 unknown.
	Replica int
	Role    int // number of the set of ranks that it is compared with
}

// Layer is a rank × step matrix.
type Layer struct {
	Name  string // "work", "waiting": a key in the page
	Title string // "Own work against peers of the same role"
	// Ratio says that 1 is "equal to peers" (coloured both ways); else values are
	// shares of the step, 0…1.
	Ratio  bool
	Values []float32
}

// Metric is a duration per rank and step.
type Metric struct {
	Name string // as in verdict.Evidence.Metric
	// Rows are seconds per step, one list a rank in the order of Ranks; nil where
	// the rank has none, NaN where a step has none.
	Rows [][]float32
}

// row returns the values of rank number i (in drawing order).
func (p *Picture) row(values []float32, i int) []float32 {
	n := len(p.Steps)
	return values[i*n : (i+1)*n]
}

// metric returns the rows of a metric, nil when it is not in the picture.
func (p *Picture) metric(name string) [][]float32 {
	for _, m := range p.Metrics {
		if m.Name == name {
			return m.Rows
		}
	}
	return nil
}

// rowOf returns the row that shows a rank, or -1.
func (p *Picture) rowOf(rank int) int {
	return slices.IndexFunc(p.Ranks, func(r Rank) bool { return r.Rank == rank })
}

// stepIndex returns the index of the first step that is at least n, len(Steps)
// when there is none.
func (p *Picture) stepIndex(n int64) int {
	for i, s := range p.Steps {
		if s >= n {
			return i
		}
	}
	return len(p.Steps)
}

// seconds returns the job's time over the steps of the picture, where an unknown
// step takes the median.
func (p *Picture) seconds() float64 {
	var known []float64
	for _, t := range p.Times {
		if !math.IsNaN(t) && t >= 0 {
			known = append(known, t)
		}
	}
	if len(known) == 0 {
		return 0
	}
	sum := 0.0
	for _, t := range known {
		sum += t
	}
	return sum + float64(len(p.Times)-len(known))*median(known)
}

// relative returns each value of a metric against the center of its peers in the
// same step: 1 is equal. peers returns, for a step, the sets of ranks (drawing
// order) that do the same work. A rank without a peer is compared with its own
// median over time.
func (p *Picture) relative(rows [][]float32, peers func(step int) [][]int) []float32 {
	n := len(p.Steps)
	out := make([]float32, len(p.Ranks)*n)
	for i := range out {
		out[i] = nan
	}
	own := map[int]float64{}
	var seen []float64
	for s := range n {
		for _, set := range peers(s) {
			seen = seen[:0]
			for _, i := range set {
				if v := cell(rows, i, s); v > 0 {
					seen = append(seen, float64(v))
				}
			}
			reference := center(seen)
			if len(set) == 1 {
				if _, ok := own[set[0]]; !ok {
					own[set[0]] = median(positive(rows[set[0]]))
				}
				reference = own[set[0]]
			}
			for _, i := range set {
				out[i*n+s] = ratio(cell(rows, i, s), reference)
			}
		}
	}
	return out
}

var nan = float32(math.NaN())

func cell(rows [][]float32, i, step int) float32 {
	if rows[i] == nil {
		return nan
	}
	return rows[i][step]
}

func positive(values []float32) []float64 {
	var out []float64
	for _, v := range values {
		if v > 0 {
			out = append(out, float64(v))
		}
	}
	return out
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

func ratio(v float32, reference float64) float32 {
	if !(v > 0) || !(reference > 0) {
		return nan
	}
	return float32(float64(v) / reference)
}

// share is part/whole, NaN where either was not measured.
func share(part, whole float32) float32 {
	if !(whole > 0) || !(part >= 0) {
		return nan
	}
	return part / whole
}

// median reorders x. It returns NaN for none.
func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile reorders x and returns its q-quantile, interpolated; NaN for none.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	slices.Sort(x)
	at := q * float64(len(x)-1)
	low := int(at)
	if low+1 >= len(x) {
		return x[len(x)-1]
	}
	return x[low] + (at-float64(low))*(x[low+1]-x[low])
}

// order sorts ranks as they are drawn: by stage, replica, node, rank.
func order(a, b Rank) int {
	return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}
