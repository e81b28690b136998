package detect

import (
	"math"

	"laggard/analyzer/frame"
)

// inner takes waits out of forward time. Tensor, context and expert groups have
// collectives inside the forward pass: a late member makes the forward of all of
// them long. Such a wait shows in the rank's own record: its time in the group
// exceeds the shortest member's by more than it usually does.
type inner struct {
	groups [3][]int32   // per dimension: row → group, -1 none
	low    [3][]float32 // per dimension and group: shortest member in this step
	stamp  [3][]int     // step in which low was made
	usual  []float32    // per row: usual wait, seconds
	seen   []uint8
	cut    []bool
	step   int
	layout *frame.Layout
}

var innerMetrics = [3]frame.Metric{frame.TP, frame.CP, frame.EP}

func newInner(l *frame.Layout) *inner {
	in := &inner{layout: l, usual: make([]float32, len(l.Ranks)), seen: make([]uint8, len(l.Ranks))}
	for d, m := range innerMetrics {
		for g := range l.Groups {
			if dimMetric[l.Groups[g].Dim] != m || !l.Groups[g].Complete() {
				continue
			}
			if in.groups[d] == nil {
				in.groups[d] = make([]int32, len(l.Ranks))
				for i := range in.groups[d] {
					in.groups[d][i] = -1
				}
				in.low[d], in.stamp[d] = make([]float32, len(l.Groups)), make([]int, len(l.Groups))
			}
			for _, r := range l.Groups[g].Rows {
				in.groups[d][r] = int32(g)
			}
		}
		for g := range l.Groups {
			if dimMetric[l.Groups[g].Dim] == m && !l.Groups[g].Complete() {
				for _, r := range l.Groups[g].Rows {
					in.partial(len(l.Ranks))[r] = true
				}
			}
		}
	}
	return in
}

// partial marks ranks with members of an inner group that are never recorded.
func (in *inner) partial(n int) []bool {
	if in.cut == nil {
		in.cut = make([]bool, n)
	}
	return in.cut
}

// blind reports whether some member of the rank's inner groups is missing in this
// step: the one that all wait for may be it.
func (in *inner) blind(c *frame.Column, r int) bool {
	if in.cut != nil && in.cut[r] {
		return true
	}
	for d, m := range innerMetrics {
		if in.groups[d] == nil || in.groups[d][r] < 0 || c.V[m] == nil {
			continue
		}
		for _, p := range in.layout.Groups[in.groups[d][r]].Rows {
			if v := c.V[m][p]; v != v {
				return true
			}
		}
	}
	return false
}

// remove sets the residual of a rank to zero where most of its excess is such a
// wait. raw is the forward time, e its residual (a log ratio to the peers).
func (in *inner) remove(c *frame.Column, raw, e []float32, least float32) {
	if in.groups[0] == nil && in.groups[1] == nil && in.groups[2] == nil {
		return
	}
	in.step++
	for r, x := range e {
		if x != x {
			continue
		}
		slow := x > least
		if !slow && (in.step+r)%innerEvery != 0 {
			continue
		}
		w := in.wait(c, r)
		if w != w {
			continue
		}
		if !slow {
			in.learn(r, w)
			continue
		}
		excess := raw[r] * (1 - float32(math.Exp(-float64(x))))
		if w-in.usual[r] >= victimShare*excess {
			e[r] = 0
		} else if in.seen[r] == 0 {
			in.learn(r, w)
		}
	}
}

func (in *inner) learn(r int, w float32) {
	in.seen[r] = min(in.seen[r]+1, 16)
	in.usual[r] += (w - in.usual[r]) / float32(in.seen[r])
}

// wait is what row r waits in its inner groups in this step, seconds.
func (in *inner) wait(c *frame.Column, r int) float32 {
	sum := nan32
	for d, m := range innerMetrics {
		v := c.V[m]
		if v == nil || in.groups[d] == nil || in.groups[d][r] < 0 || v[r] != v[r] {
			continue
		}
		g := in.groups[d][r]
		if in.stamp[d][g] != in.step {
			in.stamp[d][g], in.low[d][g] = in.step, nan32
			for _, p := range in.layout.Groups[g].Rows {
				if x := v[p]; x == x && !(in.low[d][g] <= x) {
					in.low[d][g] = x
				}
			}
		}
		if sum != sum {
			sum = 0
		}
		sum += v[r] - in.low[d][g]
	}
	return sum
}
