package cost

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// enter plays the i-th analysed step with and without the faults that had begun,
// and enters what each node and all together would have saved.
func (b *Book) enter(i int, faults []Fault, accounts map[string]Account) {
	b.charged = b.charged[:0]
	for k := range faults {
		if faults[k].From <= i {
			b.charged = append(b.charged, faults[k])
		}
	}

	t := float64(b.recent.Times[i%threshold.Window])
	if len(b.charged) == 0 || !(t > 0) {
		return
	}

	slices.SortStableFunc(b.charged, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Row, b.Row)) })
	span, steps := b.recent.Spans[i%threshold.Window], float64(b.recent.Steps[i%threshold.Window])
	b.play(i, false)
	b.recall(i)
	charge := func(name string, part []Fault) {
		a := accounts[name]
		// What was measured stays until it is measured otherwise: forward passes alone tell less than own time did.
		own := b.recent.Place[history.Own][i%threshold.Window] > 0
		if (own || !a.Own) && !slices.ContainsFunc(part, func(f Fault) bool { return !f.Slight && !b.shows(i, &f) }) {
			saved, most := b.without(i, part, t)
			a.Own = a.Own || own
			a.Time += span
			a.Saved += steps * saved
			a.Most += steps * most
		}

		accounts[name] = a
	}
	for from := 0; from < len(b.charged); {
		to := from + 1
		for to < len(b.charged) && b.charged[to].Node == b.charged[from].Node {
			to++
		}

		charge(b.charged[from].Node, b.charged[from:to])
		from = to
	}

	charge("", b.charged)
}

// shows reports whether the i-th step was recorded well enough to tell a fault.
func (b *Book) shows(i int, f *Fault) bool {
	if !b.measured(i, f.Row) {
		return false
	}

	for s, has := range f.Has {
		if has && b.recent.Place[s][i%threshold.Window] > 0 {
			return true
		}
	}

	return f.Effect != 0 || f.Late != 0
}

// measured reports whether the work of a row was recorded in the i-th step.
func (b *Book) measured(i, row int) bool {
	return slices.ContainsFunc([]frame.Metric{frame.Self, frame.FP}, func(m frame.Metric) bool {
		v := b.recent.At(m, i)
		return v != nil && v[row] == v[row]
	})
}

// played is a step that was played as it was.
type played struct {
	At                 int       // number of the analysed step + 1; 0 = none
	Ends, Plain, Usual []float64 // when each lane was through, as played, and what stands for the unmeasured
}

// play fills work with what the ranks did in the i-th step, and ends with when
// the lanes were through.
func (b *Book) play(i int, keep bool) {
	p := &b.played[i%threshold.Window]
	if p.At == i+1 {
		b.ends, b.plain = append(b.ends[:0], p.Ends...), append(b.plain[:0], p.Plain...)
		copy(b.graph.Usual(), p.Usual)
		return
	}

	b.stepWork(i, b.graph.All(), false)
	b.graph.Learn(&b.did)
	b.ends = b.ends[:0]
	for k := range b.graph.Lanes() {
		b.ends = append(b.ends, b.graph.End(k, &b.did))
	}

	b.late(i)
	if keep && b.graph.Known() {
		p.At = i + 1
		p.Ends, p.Plain, p.Usual = append(p.Ends[:0], b.ends...), append(p.Plain[:0], b.plain...), append(p.Usual[:0], b.graph.Usual()...)
	}
}

// recall fills did for the lanes of the live faults.
func (b *Book) recall(i int) {
	for k := range b.charged {
		if lane := b.graph.Lane(b.charged[k].Row); lane >= 0 {
			b.stepWork(i, b.graph.Rows(lane), true)
		}
	}
}

// without is how many seconds shorter the step had been without the faults. Where it
// isn't recorded who waits for whom, or for how long, most is the ranks' whole excess,
// else the same. Either is no more than what the others wait.
func (b *Book) without(i int, faults []Fault, t float64) (saved, most float64) {
	b.mended = b.mended[:0]
	measured, all := 0.0, 0.0 // of the faults' excess
	clear(b.struck)
	for k := range faults {
		lane := b.graph.Lane(faults[k].Row)
		if _, known := b.struck[lane]; lane >= 0 && !known {
			b.struck[lane] = b.graph.End(lane, &b.did)
		}
	}

	for k := range faults {
		b.mend(i, &faults[k], faults, t)
		taken, recorded, high := b.excessOf(i, &faults[k], t)
		most = max(most, high)
		measured, all = measured+recorded, all+taken
	}

	now, then := math.Inf(-1), math.Inf(-1)
	for lane, x := range b.ends {
		now = max(now, x)
		if end, ok := b.struck[lane]; ok {
			x += b.graph.End(lane, &b.did) - end
		}

		then = max(then, x)
	}

	for k := len(b.mended) - 1; k >= 0; k-- {
		m := &b.mended[k]
		b.did.Passes[m.row], b.did.Before[m.row] = m.passes, m.before
	}

	saved = max(0, now-then)
	if longest := slices.Max(b.plain); longest > t {
		saved *= t / longest // what was not recorded is thought too long
	}

	if all > 0 {
		saved *= measured / all
	}

	unseen := 0.0
	for k := range faults {
		if g := b.layout.Role[faults[k].Row]; g >= 0 && int(g) < len(b.habits.Unseen) {
			unseen = max(unseen, min(b.habits.Unseen[g], all))
		}
	}

	saved = max(saved, unseen) // who waits in a call that is not recorded is as busy, in the play
	mid, high := b.othersWait(i, faults)
	loses := b.exposure.Loses()
	if mid == mid && !loses {
		saved, most = min(saved, mid+unseen), min(most, high+unseen)
	}

	if !b.graph.Known() && (b.layout.Stages > 1 || !b.layout.Certain) {
		saved = 0 // a pipeline that isn't known may hide it all
	}

	if b.graph.Known() && b.recent.At(frame.Exposed, i) != nil && !b.habits.Lost && !loses {
		most = saved
	}

	return min(saved, t), min(max(saved, most), t)
}

// mend takes a Fault out of the work at hand, one of those that are taken out together; what it
// was is kept in mended.
func (b *Book) mend(i int, f *Fault, together []Fault, t float64) {
	rows := []int32{int32(f.Row)}
	shared := b.byForward(f.Row)
	if shared {
		rows = b.graph.Mates(f.Row) // their forward time holds the waits for this one
	}

	m := b.passesEffect(i, f, shared)
	if shared {
		m *= 1 - b.left(i, f, rows, together)
	}

	for _, r := range rows {
		o := b.was(int(r))
		if o.effect == 0 || m > o.effect {
			o.effect = m
		}

		b.did.Passes[r] = o.passes * math.Exp(-o.effect)
	}

	late := f.Late
	if f.Has[history.Loading] {
		late = max(late, b.effectAt(history.Loading, i, f))
	}

	if late > 0 {
		o := b.was(f.Row)
		b.did.Before[f.Row] = max(0, o.before-late*t)
	}
}

// left is the share of what the mates of a Fault wait for it that they would wait for another of
// them that is slow as well, and is not taken out.
func (b *Book) left(i int, f *Fault, mates []int32, together []Fault) (share float64) {
	for k := range b.charged {
		o := &b.charged[k]
		if o.Slight || !slices.Contains(mates, int32(o.Row)) || holds(together, o.Row) {
			continue
		}

		shared := !(f.Has[history.Own] && o.Has[history.Own]) // then forward time, with the waits, has to tell it
		if mine := b.passesEffect(i, f, shared); mine > 0 {
			share = max(share, min(1, b.passesEffect(i, o, shared)/mine))
		}
	}

	return share
}

// passesEffect is by how much a Fault lengthens the passes of its rank in the i-th step, a
// logarithm; shared where forward time alone tells it.
func (b *Book) passesEffect(i int, f *Fault, shared bool) float64 {
	m := f.Effect
	switch {
	case m != 0:
	case f.Has[history.Own] && b.recent.Place[history.Own][i%threshold.Window] > 0 && !(f.Has[history.Compute] && (shared || b.habits.Patchy || b.exposure.Loses())):
		m = b.effectAt(history.Own, i, f)
		if !f.Has[history.Compute] {
			break
		}

		if c := b.effectAt(history.Compute, i, f); m < c/2 {
			m = max(m, min(c, b.recordedExcess(f.Row)))
		}
	case f.Has[history.Compute]:
		m = b.effectAt(history.Compute, i, f)
	}

	if f.Slight && m < slightEffect {
		return 0
	}

	return m
}

// recordedExcess is how much more own time row r has than its role in the last window, a logarithm, its replica's work
// included: what all stages of a replica on a slow node take longer looks like work to the rank's own test.
func (b *Book) recordedExcess(r int) float64 {
	g := b.layout.Role[r]
	if g < 0 {
		return 0
	}

	if b.usualAt != b.recent.Count { // several faults ask for it in a step
		clear(b.usual)
		b.usualAt = b.recent.Count
	}

	usual, known := b.usual[g]
	if !known {
		usual = b.recent.Over(frame.Self, history.Sample(b.layout.Roles[g].Rows), threshold.Window, nil)
		b.usual[g] = usual
	}

	return robust.Finite(math.Log(b.recent.Median(frame.Self, r, threshold.Window)/usual), 0)
}

// mended is the work of a row before it was mended.
type mended struct {
	row            int
	passes, before float64
	effect         float64 // that was taken out
}

// was is what the row did before it was mended.
func (b *Book) was(row int) *mended {
	for k := range b.mended {
		if b.mended[k].row == row {
			return &b.mended[k]
		}
	}

	b.mended = append(b.mended, mended{row: row, passes: b.did.Passes[row], before: b.did.Before[row]})
	return &b.mended[len(b.mended)-1]
}

// effectError: so many times the noise over the effect, squared, are half the steps
// that tell the effect to about an eighth.
const effectError = 7.0

// slightEffect: less, of a rank beside a culprit, is noise.
const slightEffect = 0.015

// excessOf is by how much a Fault that was mended lengthens a rank's own work in a step of t
// seconds: what was taken out, what was measured of that, and the most that it can be. Where
// neither own time nor a wait is recorded, the Fault is sure of the forward passes
// alone, and all of the step may be the rank's own.
func (b *Book) excessOf(i int, f *Fault, t float64) (taken, measured, most float64) {
	for k := range b.mended {
		m := &b.mended[k]
		if m.row != f.Row {
			continue
		}

		loading, slower := robust.Finite(m.before-b.did.Before[m.row], 0), -math.Expm1(-m.effect)
		passes := robust.Finite(m.passes, 0)
		taken = loading + passes*slower
		measured, most = taken, taken
		if b.recent.At(frame.Exposed, i) == nil && b.recent.Place[history.Own][i%threshold.Window] == 0 {
			if !b.habits.Both {
				measured = loading + passes*slower*b.did.Forward
			}

			most = loading + max(passes, t-m.before)*slower
		}
	}

	return taken, measured, most
}

// effectAt is by how much a signal of the rank exceeds its peers' in the i-th step:
// the median of the steps about it, for single steps are noise; where the fault
// comes and goes, the steps that show it.
func (b *Book) effectAt(s history.Signal, i int, f *Fault) float64 {
	t := b.tests[s]
	at := func(k int) float32 {
		if k < max(0, b.recent.Count-threshold.Window) || k >= b.recent.Count {
			return robust.NaN
		}

		return t.Residual(f.Row, int(b.recent.Place[s][k%threshold.Window]))
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
