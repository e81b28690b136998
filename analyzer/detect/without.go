package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// enter plays the i-th analysed step with and without the faults that had begun,
// and enters what each node and all together would have saved.
func (e *Engine) enter(i int, faults []fault, of func(string, int) *account, all *account) {
	e.charged = e.charged[:0]
	for k := range faults {
		if faults[k].From <= i {
			e.charged = append(e.charged, faults[k])
		}
	}

	t := float64(e.recent.Times[i%threshold.Window])
	if len(e.charged) == 0 || !(t > 0) {
		return
	}

	slices.SortStableFunc(e.charged, func(a, b fault) int {
		switch {
		case a.Node < b.Node:
			return -1
		case a.Node > b.Node:
			return 1
		}

		return a.Row - b.Row
	})
	span, steps := e.recent.Spans[i%threshold.Window], float64(e.recent.Steps[i%threshold.Window])
	e.play(i, false)
	e.recall(i)
	book := func(a *account, part []fault) {
		if slices.ContainsFunc(part, func(f fault) bool { return !f.Slight && !e.shows(i, &f) }) {
			return // what was measured stays until it is measured otherwise
		}

		saved, most := e.without(i, part, t)
		a.Time += span
		a.Saved += steps * saved
		a.Most += steps * most
	}
	for from := 0; from < len(e.charged); {
		to := from + 1
		for to < len(e.charged) && e.charged[to].Node == e.charged[from].Node {
			to++
		}

		book(of(e.charged[from].Node, e.charged[from].From), e.charged[from:to])
		from = to
	}

	book(all, e.charged)
}

// shows reports whether the i-th step was recorded well enough to tell a fault.
func (e *Engine) shows(i int, f *fault) bool {
	if x := e.did.Passes[f.Row]; x != x {
		return false
	}

	for s, has := range f.Has {
		if has && e.recent.Place[s][i%threshold.Window] > 0 {
			return true
		}
	}

	return f.Effect != 0
}

// play fills work with what the ranks did in the i-th step, and ends with when
// the lanes were through.
func (e *Engine) play(i int, keep bool) {
	p := &e.ledger.Played[i%threshold.Window]
	if p.At == i+1 {
		e.ends, e.plain = append(e.ends[:0], p.Ends...), append(e.plain[:0], p.Plain...)
		copy(e.graph.Usual(), p.Usual)
		return
	}

	e.stepWork(i, e.graph.All(), false)
	e.graph.Learn(&e.did)
	e.ends = e.ends[:0]
	for k := range e.graph.Lanes() {
		e.ends = append(e.ends, e.graph.End(k, &e.did))
	}

	e.late(i)
	if keep && e.graph.Known() {
		p.At = i + 1
		p.Ends, p.Plain, p.Usual = append(p.Ends[:0], e.ends...), append(p.Plain[:0], e.plain...), append(p.Usual[:0], e.graph.Usual()...)
	}
}

// recall fills did for the lanes of the live faults.
func (e *Engine) recall(i int) {
	for k := range e.charged {
		if l := e.graph.Lane(e.charged[k].Row); l >= 0 {
			e.stepWork(i, e.graph.Rows(l), true)
		}
	}
}

// without is how many seconds shorter the step had been without the faults. Where it
// isn't recorded who waits for whom, or for how long, most is the ranks' whole excess,
// else the same. Either is no more than what the others wait.
func (e *Engine) without(i int, faults []fault, t float64) (saved, most float64) {
	e.mended = e.mended[:0]
	measured, all := 0.0, 0.0 // of the faults' excess
	e.struck = e.struck[:0]
	for k := range faults {
		if l := e.graph.Lane(faults[k].Row); l >= 0 && e.struckAt(l) < 0 {
			e.struck = append(e.struck, struckLane{l, e.graph.End(l, &e.did)})
		}
	}

	for k := range faults {
		e.mend(i, &faults[k], t)
		x := e.excessOf(i, &faults[k], t)
		most = max(most, x.most)
		measured, all = measured+x.measured, all+x.taken
	}

	now, then := math.Inf(-1), math.Inf(-1)
	for l, x := range e.ends {
		now = max(now, x)
		if k := e.struckAt(l); k >= 0 {
			x += e.graph.End(l, &e.did) - e.struck[k].end
		}

		then = max(then, x)
	}

	for k := len(e.mended) - 1; k >= 0; k-- {
		m := &e.mended[k]
		e.did.Passes[m.row], e.did.Before[m.row] = m.passes, m.before
	}

	saved = max(0, now-then)
	if longest := slices.Max(e.plain); longest > t {
		saved *= t / longest // what was not recorded is thought too long
	}

	if all > 0 {
		saved *= measured / all
	}

	mid, high := e.othersWait(i, faults)
	if mid == mid {
		saved, most = min(saved, mid), min(most, high)
	}

	if !e.graph.Known() && (e.layout.Stages > 1 || !e.layout.Certain) {
		saved = 0 // a pipeline that isn't known may hide it all
	}

	if e.graph.Known() && e.recent.At(frame.Exposed, i) != nil {
		most = saved
	}

	return min(saved, t), min(max(saved, most), t)
}

// struckLane is a lane with a culprit, and when it was through as played.
type struckLane struct {
	lane int
	end  float64
}

func (e *Engine) struckAt(lane int) int {
	return slices.IndexFunc(e.struck, func(s struckLane) bool { return s.lane == lane })
}

// mend takes a fault out of the work at hand; what it was is kept in mended.
func (e *Engine) mend(i int, f *fault, t float64) {
	rows := []int32{int32(f.Row)}
	shared := e.byForward(f.Row)
	if shared {
		rows = e.graph.Mates(f.Row) // their forward time holds the waits for this one
	}

	m := f.Effect
	switch {
	case f.Has[own] && e.recent.Place[own][i%threshold.Window] > 0 && !(f.Has[compute] && shared):
		m = e.effectAt(own, i, f)
	case f.Has[compute]:
		m = e.effectAt(compute, i, f)
	}

	if f.Slight && m < slightEffect {
		m = 0
	}

	for _, r := range rows {
		o := e.was(int(r))
		if o.effect == 0 || m > o.effect {
			o.effect = m
		}

		e.did.Passes[r] = o.passes * math.Exp(-o.effect)
	}

	if f.Has[loading] {
		o := e.was(f.Row)
		e.did.Before[f.Row] = max(0, o.before-max(0, e.effectAt(loading, i, f))*t)
	}
}

// mended is the work of a row before it was mended.
type mended struct {
	row            int
	passes, before float64
	effect         float64 // that was taken out
}

// was is what the row did before it was mended.
func (e *Engine) was(row int) *mended {
	for k := range e.mended {
		if e.mended[k].row == row {
			return &e.mended[k]
		}
	}

	e.mended = append(e.mended, mended{row: row, passes: e.did.Passes[row], before: e.did.Before[row]})
	return &e.mended[len(e.mended)-1]
}

// effectError: so many times the noise over the effect, squared, are half the steps
// that tell the effect to about an eighth.
const effectError = 7.0

// slightEffect: less, of a rank beside a culprit, is noise.
const slightEffect = 0.015

// extent is by how much a fault lengthens a rank's own work in a step, in seconds.
type extent struct {
	taken    float64 // what was mended
	measured float64 // of it, in what was recorded
	most     float64 // what it can be
}

// excessOf is the excess of a fault that was mended in a step of t seconds. Where
// neither own time nor a wait is recorded, the fault is sure of the forward passes
// alone, and all of the step may be the rank's own.
func (e *Engine) excessOf(i int, f *fault, t float64) (x extent) {
	for k := range e.mended {
		m := &e.mended[k]
		if m.row != f.Row {
			continue
		}

		loading, slower := robust.Finite(m.before-e.did.Before[m.row], 0), -math.Expm1(-m.effect)
		passes := robust.Finite(m.passes, 0)
		x.taken = loading + passes*slower
		x.measured, x.most = x.taken, x.taken
		if e.recent.At(frame.Exposed, i) == nil && e.recent.Place[own][i%threshold.Window] == 0 {
			if !e.ledger.Habits.Both {
				x.measured = loading + passes*slower*e.did.Forward
			}

			x.most = loading + max(passes, t-m.before)*slower
		}
	}

	return x
}

// effectAt is by how much a signal of the rank exceeds its peers' in the i-th step:
// the median of the steps about it, for single steps are noise; where the fault
// comes and goes, the steps that show it.
func (e *Engine) effectAt(s signal, i int, f *fault) float64 {
	t := e.tracks[s]
	at := func(k int) float32 {
		if k < max(0, e.recent.Count-threshold.Window) || k >= e.recent.Count {
			return robust.NaN
		}

		return t.Residual(f.Row, int(e.recent.Place[s][k%threshold.Window]))
	}
	if f.Spiky {
		if x := at(i); x > sequential.SpikeEffect {
			return float64(x)
		}

		return 0
	}

	half := 2
	if x, _ := t.Last(f.Row); x > 0 {
		half = int(min(threshold.Window, max(2, math.Pow(effectError*float64(t.Noise(f.Row))/x, 2))))
	}

	var v [2*threshold.Window + 1]float32
	n := 0
	for k := max(f.From, i-half); k <= i+half; k++ {
		if x := at(k); x == x {
			v[n] = x
			n++
		}
	}

	if n == 0 {
		return 0
	}

	return float64(robust.Median(v[:n]))
}
