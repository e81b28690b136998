package link

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// volume is what a group moves: bytes a step and rank, in the windows that end with a step.
type volume struct {
	Bytes float64
	To    int64
}

// add takes one operation's window.
func (v *volume) add(t *frame.Transfer) {
	if t.To != v.To {
		*v = volume{To: t.To}
	}

	v.Bytes += t.Bytes
}

// equal reports whether two groups move as much, as far as that is known of both.
func (v volume) equal(o volume) bool {
	return v.Bytes > 0 && math.Abs(v.Bytes-o.Bytes) <= wireVolume*max(v.Bytes, o.Bytes)
}

// hosts is the number of nodes that rows are on.
func hosts(l *frame.Layout, rows []int32) int {
	on := map[int32]bool{}
	for _, r := range rows {
		if int(r) < len(l.Node) {
			on[l.Node[r]] = true
		}
	}

	return len(on)
}

// rank renews the median and spread of each class, and which dimensions are busy.
func (w *Watch) rank() {
	clear(w.busy)
	for g, p := range w.passes {
		if p > 0 {
			w.busy[w.groups[g].Dim] = true
		}
	}

	for c, groups := range w.byDim {
		w.buf = w.buf[:0]
		for _, g := range groups {
			if x := w.cur[g]; x == x {
				w.buf = append(w.buf, x)
			}
		}

		n := len(w.buf)
		if n == 0 {
			continue
		}

		mid := robust.Median(w.buf)
		w.classes[c] = classLevel{mid, robust.SpreadAbout(w.buf, mid), n}
	}
}

// classLevel is the usual transfer of the groups of one class, a logarithm.
type classLevel struct {
	Mid, Spread float32
	N           int
}

// class returns the median and spread of the other groups that should be as
// fast, exactly where there are few.
func (w *Watch) class(g int) (mid, spread float32, n int) {
	id := w.groups[g].Class
	if c := w.classes[id]; c.N >= threshold.LargeRole {
		return c.Mid, c.Spread, c.N - 1
	}

	var v []float32
	for _, k := range w.byDim[id] {
		if k != g && w.cur[k] == w.cur[k] {
			v = append(v, w.cur[k])
		}
	}

	if len(v) == 0 {
		return robust.NaN, robust.NaN, 0
	}

	mid = robust.Median(v)
	return mid, robust.SpreadAbout(v, mid), len(v)
}

// slowBeside reports whether group g takes much longer than mid, by which others of their spread are told.
func (w *Watch) slowBeside(g int, cur, mid, spread float32, t float64) bool {
	return w.isSlow(g, cur-mid, float32(math.Exp(float64(cur))-math.Exp(float64(mid))), t, spread) && w.lasts(g, (cur+mid)/2)
}

// slowBesideStages compares group g with those of other stages. It is slow where these move as much, and it has too few
// equals in its own; or where the sends of its members tell that one of their nodes is as slow.
func (w *Watch) slowBesideStages(g int, cur float32, others int, t float64) (slow bool, ref float32) {
	rise := w.slowSender(g)
	if others >= minClass && rise == 0 {
		return false, 0
	}

	var equal, alike []float32
	for k := range w.groups {
		if w.groups[k].Class == w.groups[g].Class || !w.alike(k, g) {
			continue
		}

		alike = append(alike, w.cur[k])
		if w.volumes[k].equal(w.volumes[g]) {
			equal = append(equal, w.cur[k])
		}
	}

	if mid := robust.Median(alike); rise > 0 && float64(cur-mid) >= rise/2 && w.slowBeside(g, cur, mid, linkNoise, t) {
		return true, mid
	}

	mid := robust.Median(equal)
	return len(equal) >= minClass && w.slowBeside(g, cur, mid, max(robust.SpreadAbout(equal, mid), linkNoise), t), mid
}

// alike reports whether group k, whose transfer is known, is of as many ranks of the same dimension as g, on as many nodes.
func (w *Watch) alike(k, g int) bool {
	a, b := &w.groups[k], &w.groups[g]
	return a.Dim == b.Dim && a.Size == b.Size && w.hosts[k] == w.hosts[g] && w.cur[k] == w.cur[k]
}

// slowSender is by how much the sends of the slowest of a group's members are slow, a logarithm.
func (w *Watch) slowSender(g int) (rise float64) {
	for _, r := range w.groups[g].Rows {
		if w.sendsSlowly(r) {
			rise = max(rise, w.sends[r].Rise)
		}
	}

	return rise
}

// doubtful reports whether group g takes many times as long as all others that move as much over as many nodes, and these
// are too few to tell that it is slow.
func (w *Watch) doubtful(g int) bool {
	equals, most := 0, float32(math.Inf(-1))
	for k := range w.groups {
		if k != g && w.alike(k, g) && w.volumes[k].equal(w.volumes[g]) {
			equals, most = equals+1, max(most, w.cur[k])
		}
	}

	longer := math.Exp(float64(w.cur[g])) - math.Exp(float64(most))
	return !w.slow[g] && equals > 0 && equals < minClass && float64(w.cur[g]-most) >= math.Log(wireQuickest) && longer >= w.cfg.LinkShare*w.usual
}
