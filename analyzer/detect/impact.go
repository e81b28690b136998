package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// savingCost is the excess of a slow save spread over the steps between saves.
func (e *Engine) savingCost(r int) float64 {
	return float64(e.saver.cost[r]) / max(1, e.saver.every)
}

// impact bounds the share of the step that the job would save: the rank's time
// above the slowest of its peers that are well, capped by what others wait more.
func (e *Engine) impact(c *candidate, skip func(int) bool) float64 {
	t := e.stepMedian
	if t <= 0 {
		return 0
	}
	x := 0.0
	for s := range signals {
		if c.has[s] || s == own && c.has[compute] && e.seen[frame.Self] {
			if y := e.lead(c.row, s, skip); y == y {
				if s == loading {
					x += max(0, y)
				} else {
					x = max(x, y)
				}
			}
		}
	}
	if w := e.waiting(c.row, skip); w == w {
		x = min(x, w)
	}
	if c.has[saving] {
		x += e.savingCost(c.row)
	}
	return min(1, max(0, x/t))
}

// lead is how far rank r is above the slowest healthy rank of its role, step by
// step: in the mean, for in steps in which another is slower it costs nothing.
func (e *Engine) lead(r int, s signal, skip func(int) bool) float64 {
	g := e.layout.Role[r]
	if g < 0 {
		return math.NaN()
	}
	k := min(window, max(minBold, e.tracks[s].age(r)))
	sum, n := 0.0, 0
	for i := range k {
		mine := e.cell(s, i, r)
		if mine != mine {
			continue
		}
		worst := nan32
		for _, p := range e.layout.Roles[g].Rows {
			if x := e.cell(s, i, int(p)); x == x && int(p) != r && !(x <= worst) && !skip(int(p)) {
				worst = x
			}
		}
		if worst == worst {
			sum += float64(max(0, mine-worst))
			n++
		}
	}
	if n == 0 {
		return e.excess(r, s, skip)
	}
	return sum / float64(n)
}

// cell is the raw time of a signal i steps before its last one.
func (e *Engine) cell(s signal, i, r int) float32 {
	at := func(m frame.Metric) float32 {
		if v := e.recent.cells[m]; v != nil && e.recent.steps[m] > i {
			return v[(e.recent.steps[m]-1-i)%window*e.n+r]
		}
		return nan32
	}
	switch s {
	case own:
		return at(frame.Self)
	case loading:
		return at(frame.DataLoader)
	}
	fp := at(frame.FP)
	if bp := at(frame.Backward); bp == bp {
		return fp + bp
	}
	return fp
}

// waiting is what the other ranks wait more than r does, seconds a step: the
// median over the job of the waits in its groups, NaN when none is recorded.
func (e *Engine) waiting(r int, skip func(int) bool) float64 {
	if !e.seen[frame.Exposed] {
		return math.NaN()
	}
	mine := e.recent.median(frame.Exposed, r, window)
	var v []float64
	for _, g := range e.layout.Roles[e.layout.Role[r]].Rows {
		if int(g) != r && !skip(int(g)) && len(v) < sampleSize {
			if x := e.recent.median(frame.Exposed, int(g), window) - mine; x == x {
				v = append(v, max(0, x))
			}
		}
	}
	if x := e.jobWait(); x == x && len(v) > 0 {
		return min(x, middle(v))
	}
	return middle(v)
}

// jobWait is the median over ranks of the waits in their groups: each group's
// time less that of its shortest member.
func (e *Engine) jobWait() float64 {
	wait, seen := make(map[int32]float64, e.n), make(map[int32]float64, e.n)
	for g := range e.links.groups {
		m := e.links.metric[g]
		if m >= frame.MetricCount || !e.seen[m] {
			continue
		}
		rows := e.links.groups[g].Rows
		if len(rows) > sampleSize || len(wait) > 8*sampleSize {
			continue
		}
		low := math.NaN()
		for _, r := range rows {
			if x := e.recent.median(m, int(r), window); x == x && !(x >= low) {
				low = x
			}
		}
		for _, r := range rows {
			if x := e.recent.median(m, int(r), window); x == x {
				wait[r] += x - low
				seen[r] += x
			}
		}
	}
	var v []float64
	for r, x := range wait {
		if seen[r] >= causeShare*e.recent.median(frame.Comm, int(r), window) { // else its waits are elsewhere
			v = append(v, x)
		}
	}
	slices.Sort(v)
	if len(v) < 4 {
		return math.NaN()
	}
	return middle(v)
}
