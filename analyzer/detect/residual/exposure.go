package residual

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Exposure tells own time from Communication where records leave it open. Nobody may tell how long the
// trainer was blocked in what its passes cover: it may compute meanwhile, as beside the reduction of
// gradients, or wait, as the next layer does for what tensor, context and expert groups exchange, and for
// sharded parameters. Who waits for each other in its passes ends them together: ranks are then alike
// by far more than without the Communication. And a record may be lost: a rank
// was in what the others of its group recorded, for a time that nobody knows.
type Exposure struct {
	layout *frame.Layout
	kinds  [len(blocking)]kind
	// Calls of collectives that ranks recorded, and those that they lack of what another member of their group has.
	Calls, Lacking float64
	window         int64   // of steps at hand, by its number
	steps          []int32 // that each rank recorded in it
	right          frame.Column
	vals           [2][]float32 // own and exposed time of the step at hand
	buf            [2][]float32
}

// blocking are the dimensions that passes may wait for: the inner ones, the data-parallel ones that gather parameters, and those of groups
// that ranks were seen to talk in and no topology names.
var blocking = [...][]frame.Metric{frame.Inner[:], {frame.DP}, {frame.Other}}

// Of blocking those that meet in passes where they do so often.
const gathering, unnamed = 1, 2

// kind is what is known of one of those lists of dimensions.
type kind struct {
	groups      [][]int32
	Columns     int
	Passes, Net float64 // how the ranks of a group differ: with, and without, the Communication that their passes cover
	Calls       float64 // of such a group in a step, at most; of data-parallel ones those that gather
	Waits       bool    // for each other there
}

// NewExposure returns the exposure of a layout's ranks.
func NewExposure(l *frame.Layout) *Exposure {
	x := &Exposure{layout: l, steps: make([]int32, len(l.Ranks))}
	if l.From == "inferred" {
		return x // any group may be any
	}

	for g := range l.Groups {
		for i, dims := range blocking {
			rows := l.Groups[g].Rows
			if k := &x.kinds[i]; slices.Contains(dims, l.Groups[g].Metric()) && len(k.groups) < exposureGroups {
				k.groups = append(k.groups, rows[:min(len(rows), exposureRanks)])
			}
		}
	}

	return x
}

// ObserveTransfer takes what a group does in a window of steps.
func (x *Exposure) ObserveTransfer(t *frame.Transfer) {
	x.count(t)
	switch {
	case t.Dim == "dp" && t.Op == "allgather":
		x.kinds[gathering].Calls = max(x.kinds[gathering].Calls, t.Calls)
	case t.Dim == "" && len(t.Rows) < len(x.layout.Ranks):
		x.kinds[unnamed].Calls = max(x.kinds[unnamed].Calls, t.Calls)
	}
}

// countSteps counts the steps that each rank recorded in the window of steps at hand.
func (x *Exposure) countSteps(c *frame.Column) {
	if window := c.Step / row.Window; window != x.window {
		x.window = window
		clear(x.steps)
	}

	for r, t := range c.V[frame.Step] {
		if t == t {
			x.steps[r]++
		}
	}
}

// count counts the calls of a group's members: in a collective all of them meet, so each has as many in each of the steps that it recorded.
func (x *Exposure) count(t *frame.Transfer) {
	if frame.P2P(t.Op) || len(t.Counts) < 2 || t.From/row.Window != x.window {
		return
	}

	most := float32(0)
	for i, r := range t.Rows {
		if n := x.steps[r]; n > 0 {
			most = max(most, t.Counts[i]/float32(n))
		}
	}

	for i, r := range t.Rows {
		x.Calls, x.Lacking = x.Calls+float64(t.Counts[i]), x.Lacking+float64(max(0, most*float32(x.steps[r])-t.Counts[i]))
	}
}

// Loses reports whether records of Communication are missing here and there: waits are then longer, and own times shorter, than they say.
func (x *Exposure) Loses() bool { return x.Lacking > lostCalls*(x.Calls+x.Lacking) }

// Blocking are the dimensions in whose collectives trainers wait during their passes, whether or not they tell.
func (x *Exposure) Blocking() []frame.Metric {
	dims := slices.Clone(frame.Inner[:])
	for i := gathering; i < len(blocking); i++ {
		if x.kinds[i].Waits {
			dims = append(dims, blocking[i]...)
		}
	}

	return dims
}

// Estimates reports whether own time is what Communication leaves of it, though a part of that may run beside the passes.
func (x *Exposure) Estimates() bool {
	return slices.ContainsFunc(x.kinds[:], func(k kind) bool { return k.Waits })
}

// Correct returns the column with own and exposed time as they are, which is good until the next call; estimated tells
// that the latter was guessed without the end of backward passes. It reports whether own time means something else from this step on.
func (x *Exposure) Correct(c *frame.Column, estimated bool) (right *frame.Column, anew bool) {
	x.countSteps(c)
	self, exposed := c.V[frame.Self], c.V[frame.Exposed]
	if self == nil || exposed == nil || c.V[frame.Comm] == nil {
		return c, false
	}

	passes := self
	if estimated {
		passes = c.V[frame.FP] // what is covered lies in forward passes, and these end together
	}

	var dims []frame.Metric
	for i := range blocking {
		if i == 0 || x.kinds[i].Calls > max(1, float64(c.Passes)) {
			anew = x.learn(i, c, passes) || anew
		}

		if x.kinds[i].Waits {
			dims = append(dims, blocking[i]...)
		}
	}

	x.vals[0], x.vals[1] = append(x.vals[0][:0], self...), append(x.vals[1][:0], exposed...)
	for r := range self {
		if w := covered(c, r, dims); w > 0 {
			x.vals[0][r], x.vals[1][r] = max(0, self[r]-w), exposed[r]+w
		}
	}

	for g := range x.layout.Groups {
		x.forget(&x.layout.Groups[g], c)
	}

	x.right = *c
	x.right.V[frame.Self], x.right.V[frame.Exposed] = x.vals[0], x.vals[1]
	return &x.right, anew
}

// covered is for how long row r was in the Communication of some dimensions that its passes cover, at most.
func covered(c *frame.Column, r int, dims []frame.Metric) float32 {
	all, sum := c.V[frame.Comm][r]-c.V[frame.Exposed][r], float32(0)
	for _, m := range dims {
		if v := c.V[m]; v != nil && v[r] == v[r] {
			sum += v[r]
		}
	}

	return min(all, sum)
}

// forget takes back the own time of those who lack the Communication of a group that most others of it recorded.
func (x *Exposure) forget(g *frame.Group, c *frame.Column) {
	m := g.Metric()
	v, steps := c.V[m], c.V[frame.Step]
	if m == frame.Other || v == nil || steps == nil {
		return
	}

	with, without := 0, 0
	for _, r := range g.Rows {
		switch {
		case v[r] == v[r]:
			with++
		case steps[r] == steps[r]:
			without++
		}
	}

	if without == 0 || with < without {
		return
	}

	for _, r := range g.Rows {
		if v[r] != v[r] {
			x.vals[0][r], x.vals[1][r] = robust.NaN, robust.NaN
		}
	}
}

// learn follows how the ranks of a kind's groups differ, and reports whether it is known by now that they wait for
// each other in their passes.
func (x *Exposure) learn(i int, c *frame.Column, passes []float32) bool {
	k, self := &x.kinds[i], c.V[frame.Self]
	if passes == nil || k.Waits || len(k.groups) == 0 {
		return false
	}

	for _, rows := range k.groups {
		x.buf[0], x.buf[1] = x.buf[0][:0], x.buf[1][:0]
		for _, r := range rows {
			if net := self[r] - covered(c, int(r), blocking[i]); net > 0 && passes[r] > 0 {
				x.buf[0], x.buf[1] = append(x.buf[0], passes[r]), append(x.buf[1], net)
			}
		}

		for j, sum := range [...]*float64{&k.Passes, &k.Net} {
			robust.Logs(x.buf[j], x.buf[j])
			*sum += robust.Finite(float64(robust.MAD(x.buf[j])), 0)
		}
	}

	k.Columns++
	k.Waits = k.Columns >= backwardColumns && k.Passes < lockstepShare*k.Net
	return k.Waits
}
