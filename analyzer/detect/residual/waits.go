package residual

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Waits takes waits out of forward time. Tensor, context and expert groups have
// collectives inside the forward pass: a late member makes the forward of all of
// them long. Such a wait shows in the rank's own record: its time in the group
// exceeds the shortest member's by more than it usually does, or is longer than it
// usually is where the shortest member waits as well.
type Waits struct {
	groups [3][]int32   // per dimension: row → group, -1 none
	low    [3][]float32 // per dimension and group: shortest member in this step
	stamp  [3][]int     // step in which low was made
	usual  [2][]float32 // per row: usual wait and usual time there, seconds: the third shortest of seven in past
	past   [2][]float32 // usualWaits per row
	seen   []uint8      // waits learned, less than 2*usualWaits
	Cut    []bool
	Waited []bool    // per row: in this step its excess was such a wait
	Worked []float32 // per row that waited: log of its forward without waits over that with, NaN unknown
	buf    []float32
	step   int
	layout *frame.Layout
}

// NewWaits returns the waits of a layout's groups.
func NewWaits(l *frame.Layout) *Waits {
	in := &Waits{layout: l, seen: make([]uint8, len(l.Ranks)), Waited: make([]bool, len(l.Ranks)), Worked: make([]float32, len(l.Ranks))}
	for k := range in.usual {
		in.usual[k], in.past[k] = make([]float32, len(l.Ranks)), make([]float32, usualWaits*len(l.Ranks))
	}

	for d, m := range frame.Inner {
		for g := range l.Groups {
			if l.Groups[g].Metric() != m || !l.Groups[g].Complete() {
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
	}

	in.markCut(l)
	return in
}

// markCut marks ranks that may wait for somebody who is never recorded: a member of
// an inner group with missing members, or of none where others have one; and who
// works with such a rank, for waits are handed on.
func (in *Waits) markCut(l *frame.Layout) {
	cut := make([]bool, len(l.Ranks))
	var inside [][]int32
	for _, m := range frame.Inner {
		member := make([]bool, len(l.Ranks))
		known := false
		for i := range l.Groups {
			g := &l.Groups[i]
			if g.Metric() != m {
				continue
			}

			known = true
			inside = append(inside, g.Rows)
			for _, r := range g.Rows {
				member[r], cut[r] = true, cut[r] || !g.Complete()
			}
		}

		for r := range member {
			cut[r] = cut[r] || known && !member[r]
		}
	}

	for more := true; more; {
		more = false
		for _, rows := range inside {
			if !slices.ContainsFunc(rows, func(r int32) bool { return cut[r] }) {
				continue
			}

			for _, r := range rows {
				more = more || !cut[r]
				cut[r] = true
			}
		}
	}

	in.Cut = cut
}

// Blind reports whether some member of the rank's inner groups is missing in this
// step: the one that all wait for may be it.
func (in *Waits) Blind(c *frame.Column, r int) bool {
	if in.Cut[r] {
		return true
	}

	for d, m := range frame.Inner {
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

// Find marks the ranks most of whose excess is such a wait, and reports whether there
// are any. raw is the forward time, e its residual (a log ratio to the peers), warm
// the first steps that each process still has before it: they teach nothing usual.
func (in *Waits) Find(c *frame.Column, raw, e []float32, warm []uint8, least float32) (found bool) {
	if in.groups[0] == nil && in.groups[1] == nil && in.groups[2] == nil {
		return false
	}

	in.step++
	clear(in.Waited)
	for r, x := range e {
		if x != x {
			continue
		}

		slow := x > least
		if !slow && !in.due(r, warm[r]) {
			continue
		}

		w, whole := in.wait(c, r)
		if w != w {
			continue
		}

		if !slow {
			in.learn(r, w, whole)
			continue
		}

		if in.covers(r, w, whole, raw[r], x) {
			in.Waited[r], found = true, true
		} else if in.seen[r] == 0 && warm[r] == 0 {
			in.learn(r, w, whole)
		}
	}

	if found {
		in.measure(raw, c.V[frame.Self])
	}

	return found
}

// FindHidden marks those whose wait little work hid from Find: e is what is left of the step after
// what is shared was removed.
func (in *Waits) FindHidden(c *frame.Column, raw, e []float32, least float32) (found bool) {
	for r, x := range e {
		if !(x > least) || in.Waited[r] {
			continue
		}

		if w, whole := in.wait(c, r); w == w && in.covers(r, w, whole, raw[r], x) {
			in.Waited[r], found = true, true
		}
	}

	if found {
		in.measure(raw, c.V[frame.Self])
	}

	return found
}

// covers reports whether the wait w of row r in this step, of its whole time there, is longer
// than usual by most of what it exceeds its peers by: x, a log ratio, of raw.
func (in *Waits) covers(r int, w, whole, raw, x float32) bool {
	excess := raw * (1 - float32(math.Exp(-float64(x))))
	longer := w - min(in.usual[0][r], UsualShare*excess)
	if in.seen[r] > 0 {
		longer = max(longer, whole-in.usual[1][r])
	}

	return longer >= VictimShare*excess
}

// measure tells the work of those that waited from their own time, in which no such
// wait is: as much of it is forward as for their peers that did not wait.
func (in *Waits) measure(raw, self []float32) {
	for g := range in.layout.Roles {
		rows := in.layout.Roles[g].Rows
		if !slices.ContainsFunc(rows, func(r int32) bool { return in.Waited[r] }) {
			continue
		}

		in.buf = in.buf[:0]
		for _, r := range rows {
			if self != nil && !in.Waited[r] && self[r] > 0 && raw[r] == raw[r] {
				in.buf = append(in.buf, raw[r]/self[r])
			}
		}

		forward, known := robust.Median(in.buf), len(in.buf) > 0
		for _, r := range rows {
			if in.Worked[r] = robust.NaN; in.Waited[r] && known && self[r] > 0 {
				share := max(forward, in.forward(int(r), raw, self))
				in.Worked[r] = min(0, float32(math.Log(float64(share*self[r]/raw[r]))))
			}
		}
	}
}

// forward is the share that forward has of the own time of those that row r waited for, 0
// where nobody tells. Own time holds what nobody recorded of waits between stages; the
// slowest stage has none of these, so forward is more of its own time than of its peers'.
func (in *Waits) forward(r int, raw, self []float32) float32 {
	in.buf = in.buf[:0]
	for d := range in.groups {
		if in.groups[d] == nil || in.groups[d][r] < 0 {
			continue
		}

		for _, p := range in.layout.Groups[in.groups[d][r]].Rows {
			if !in.Waited[p] && self[p] > 0 && raw[p] == raw[p] {
				in.buf = append(in.buf, raw[p]/self[p])
			}
		}
	}

	if len(in.buf) == 0 {
		return 0
	}

	return robust.Median(in.buf)
}

// due reports whether the usual wait of row r is looked at in this step: at once
// while few looks are known, for two of three may be pauses of others.
func (in *Waits) due(r int, warm uint8) bool {
	return warm == 0 && (in.seen[r] < usualWaits || (in.step+r)%innerEvery == 0)
}

// learn keeps the last waits of row r. The third shortest of seven is the usual one: it leaves out the long
// waits of a job's first steps, and of other ranks' pauses, which would hide that the rank
// only waited.
func (in *Waits) learn(r int, w, whole float32) {
	k := int(in.seen[r])
	if in.seen[r]++; in.seen[r] == 2*usualWaits {
		in.seen[r] = usualWaits
	}

	n := min(k+1, usualWaits)
	for i, x := range [2]float32{w, whole} {
		past := in.past[i][r*usualWaits : r*usualWaits+usualWaits]
		past[k%usualWaits] = x
		in.buf = append(in.buf[:0], past[:n]...)
		robust.Sort(in.buf)
		in.usual[i][r] = in.buf[(n-1)/3]
	}
}

// wait is what row r waits in its inner groups in this step, and its whole time
// there, seconds.
func (in *Waits) wait(c *frame.Column, r int) (sum, whole float32) {
	sum = robust.NaN
	for d, m := range frame.Inner {
		v := c.V[m]
		if v == nil || in.groups[d] == nil || in.groups[d][r] < 0 || v[r] != v[r] {
			continue
		}

		g := in.groups[d][r]
		if in.stamp[d][g] != in.step {
			in.stamp[d][g], in.low[d][g] = in.step, robust.NaN
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
		whole += v[r]
	}

	return sum, whole
}
