package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/arrival"
)

// Picture is what a report draws: numbers and names, no rows. Draw makes one of
// a frame, whose memory it shares.
type Picture struct {
	Ranks []Rank  // in the order they are drawn
	Steps []int64 // step numbers, in time order; a step that was repeated comes again
	// Metrics are durations in seconds, by their names in verdict.Evidence.Metric: of each
	// step, by Rank.Row; NaN where a rank has none, nil where nobody has.
	Metrics map[string][][]float32
	// Peers returns, for a step (an index), the sets of ranks (indexes) that do the
	// same work: only they are compared.
	Peers func(step int) [][]int
	Nodes int // nodes of the job
	// Unmeasured are sentences on what was not recorded.
	Unmeasured []string
	// Timeline is one step of a few ranks, range by range; nil where nobody asked for it.
	Timeline *arrival.View
}

// empty reports whether there is nothing to draw.
func (p *Picture) empty() bool { return len(p.Ranks) == 0 || len(p.Steps) == 0 || len(p.Metrics) == 0 }

// Rank is one row of the picture.
type Rank struct {
	Rank  int
	Row   int // of Metrics
	Node  string
	Stage int // pipeline stage; -1 unknown
	// Replica is the data-parallel index, -1 unknown.
	Replica int
	Role    int // number of the set of ranks that it is compared with
}

// layer is a rank × step matrix that can be looked at, row by row.
type layer struct {
	Name  string `json:"name"`  // a word on a button
	Title string `json:"title"` // one sentence
	// Ratio says that 1 is "equal to peers" (coloured both ways); else values are
	// shares of the step, 0…1.
	Ratio  bool        `json:"ratio"`
	values [][]float32 // by rank, in the order they are drawn

	// What encode makes of the values: one byte a cell, 0 is "not measured", k is
	// Levels[k]; deflate (raw) and base64.
	Levels []float64 `json:"levels"` // 256 values; of a ratio its natural logarithm
	Data   string    `json:"data"`
}

// cell returns the value of rank number i in a step (an index).
func (p *Picture) cell(columns [][]float32, i, step int) float32 {
	if columns[step] == nil {
		return nan
	}

	return columns[step][p.Ranks[i].Row]
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

// times returns the job's step time, step by step: the median over the ranks, in
// seconds; NaN where it is unknown.
func (p *Picture) times() []float64 {
	out := make([]float64, len(p.Steps))
	columns := p.Metrics[stepMetric]
	var seen []float64
	for s := range out {
		seen = seen[:0]
		if columns != nil {
			for _, v := range columns[s] {
				if v > 0 {
					seen = append(seen, float64(v))
				}
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

// relative returns each value of a metric against the center of its peers in the
// same step: 1 is equal. A rank without a peer is compared with its own median
// over time.
func (p *Picture) relative(columns [][]float32) [][]float32 {
	out := make([][]float32, len(p.Ranks))
	for i := range out {
		out[i] = slices.Repeat([]float32{nan}, len(p.Steps))
	}

	reference := p.references(columns)
	for s := range p.Steps {
		for _, set := range p.Peers(s) {
			r := reference(set, s)
			for _, i := range set {
				out[i][s] = ratio(p.cell(columns, i, s), r)
			}
		}
	}

	return out
}

// relativeRow is relative for one rank.
func (p *Picture) relativeRow(columns [][]float32, rank int) []float32 {
	out := make([]float32, len(p.Steps))
	reference := p.references(columns)
	for s := range out {
		out[s] = nan
		for _, set := range p.Peers(s) {
			if slices.Contains(set, rank) {
				out[s] = ratio(p.cell(columns, rank, s), reference(set, s))
			}
		}
	}

	return out
}

// references returns what finds the value that the ranks of a set are compared with in a
// step: the center of them all, for a rank without a peer its median over time.
func (p *Picture) references(columns [][]float32) func(set []int, step int) float64 {
	own := map[int]float64{} // of ranks without a peer: one pass over all steps each
	var seen []float64
	see := func(rank, step int) {
		if v := p.cell(columns, rank, step); v > 0 {
			seen = append(seen, float64(v))
		}
	}

	return func(set []int, step int) float64 {
		seen = seen[:0]
		if len(set) != 1 {
			for _, i := range set {
				see(i, step)
			}

			return center(seen)
		}

		x, ok := own[set[0]]
		if !ok {
			for s := range columns {
				see(set[0], s)
			}

			x = median(seen)
			own[set[0]] = x
		}

		return x
	}
}

var nan = float32(math.NaN())

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
		return nan
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
func order(a, b Rank) int {
	return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}
