package report

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Bounds of a page's charts: one is about 20 KB of the page, whose matrices have 3 MiB of its 5 MB.
const (
	chartsANode = 3   // of a node, in the order of its evidence
	chartsAll   = 24  // of all nodes together
	chartPoints = 480 // a line is 558 wide on the page: about a point a pixel
)

// chart is one rank against its peers over the steps. Lists are equally long; a
// null means not measured.
type chart struct {
	Node   string     `json:"node"`
	Rank   int        `json:"rank"`
	Metric string     `json:"metric"` // in words
	Steps  []int64    `json:"steps"`  // first step of each point
	Own    []*float64 `json:"own"`    // seconds
	Peers  []*float64 `json:"peers"`  // median of the same role
	Low    []*float64 `json:"low"`    // 10 % and 90 % of the same role
	High   []*float64 `json:"high"`
	// Since, Detected and Until are indexes into Steps, -1 where there is none.
	Since    int `json:"since"`
	Detected int `json:"detected"`
	Until    int `json:"until"`
}

// chartsOf draws the evidence of each node that has some.
func chartsOf(v *verdict.Verdict, p *picture) []chart {
	charts := []chart{}
	for _, n := range v.Nodes {
		drawn := 0
		for _, e := range n.Evidence {
			if drawn == chartsANode || len(charts) == chartsAll {
				break
			}

			if e.Metric == stepMetric { // its peers' steps are as long
				continue
			}

			if c, ok := chartOf(n, e, p); ok {
				charts, drawn = append(charts, c), drawn+1
			}
		}
	}

	return charts
}

// chartOf draws one piece of evidence: the rank's values beside its peers' of the same
// role (median, 10th and 90th percentile), in at most chartPoints bins.
// False: the picture holds nothing of that metric or rank.
func chartOf(n verdict.Node, e verdict.Evidence, p *picture) (chart, bool) {
	m, own := measureOf(e.Metric), p.rowOf(e.Rank)
	if !p.has(m) || own < 0 {
		return chart{}, false
	}

	// Peers are those of the last layout in all steps: one line a chart.
	var peers []rank
	for i, r := range p.drawn {
		if i != own && r.role == p.drawn[own].role {
			peers = append(peers, r)
		}
	}

	points := min(len(p.Columns), chartPoints)
	c := chart{Node: plain(n.Node), Rank: e.Rank, Metric: m.name}
	var around []float64
	for i := range points {
		from, to := bin(i, points, len(p.Columns))
		around = around[:0]
		for _, r := range peers {
			if x := p.mean(m.of, r, from, to); !math.IsNaN(x) {
				around = append(around, x)
			}
		}

		c.Steps = append(c.Steps, p.Columns[from].Step)
		c.Own = append(c.Own, point(p.mean(m.of, p.drawn[own], from, to)))
		c.Peers = append(c.Peers, point(median(around)))
		c.Low = append(c.Low, point(quantile(around, 0.1)))
		c.High = append(c.High, point(quantile(around, 0.9)))
	}

	c.Since, c.Detected, c.Until = markAt(p, points, n.SinceStep), markAt(p, points, n.DetectedStep), -1
	if n.State == verdict.Recovered {
		c.Until = markAt(p, points, n.UntilStep)
	}

	return c, true
}

// mean returns the mean of a rank's values in the steps from…to that are measured.
func (p *picture) mean(m frame.Metric, r rank, from, to int) float64 {
	values := make([]float32, 0, to-from)
	for s := from; s < to; s++ {
		values = append(values, p.At(m, r.row, s))
	}

	return mean(values)
}

// point is a value as JSON has it: null where nothing was measured. Five digits are more than a
// chart shows.
func point(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}

	x = significant(x, 5)
	return &x
}

// markAt returns which of count bins holds a step, -1 when the step is after the last. A step that
// was not recorded is in the bin of the next one.
func markAt(p *picture, count int, step int64) int {
	at := p.stepIndex(step)
	if at >= len(p.Columns) {
		return -1
	}

	return sort.Search(count, func(i int) bool {
		_, to := bin(i, count, len(p.Columns))
		return at < to
	})
}

// spark returns a rank's values over the steps as a line of block characters of
// at most width: against low…high, which it also returns. Where nothing was measured it is "".
func spark(values []float32, width int) (line string, low, high float64) {
	if len(values) == 0 || width <= 0 {
		return "", 0, 0
	}

	means := make([]float64, min(len(values), width))
	low, high = math.Inf(1), math.Inf(-1)
	for i := range means {
		from, to := bin(i, len(means), len(values))
		means[i] = mean(values[from:to])
		if !math.IsNaN(means[i]) {
			low, high = min(low, means[i]), max(high, means[i])
		}
	}

	if low > high {
		return "", 0, 0
	}

	blocks := []rune("▁▂▃▄▅▆▇█")
	out := make([]rune, len(means))
	// A range below 5 % is drawn as flat: noise must not look like a mountain. Nor must
	// one step that is far out make the others look flat: the highest tenth is full.
	sorted := slices.DeleteFunc(slices.Clone(means), math.IsNaN)
	slices.Sort(sorted)
	base := min(low, 1)
	top := max(sorted[len(sorted)-1-len(sorted)/10], base*1.05)
	for i, m := range means {
		if math.IsNaN(m) {
			out[i] = '·'
			continue
		}

		k := int(float64(len(blocks)) * (m - base) / (top - base))
		out[i] = blocks[max(0, min(len(blocks)-1, k))]
	}

	return string(out), low, high
}

// at names a step range in words.
func at(first, last int64) string {
	if first == last {
		return fmt.Sprintf("step %d", first)
	}

	return fmt.Sprintf("steps %d–%d", first, last)
}
