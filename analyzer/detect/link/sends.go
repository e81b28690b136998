package link

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Sends and receives of a pipeline wait for the other end, so their sums tell nothing of the wire. But each
// step fills and drains the pipeline, and then somebody is there first: the quickest call of a window is the
// wire's alone. In AR-1 that is 1.03 ± 0.03 ms for ranks that wait 1 to 780 ms in the usual call.
//
// The quickest call of a rank is one of any of its neighbours. Where it takes longer, the wires to all of them are slow,
// which is the rank's own node, or that of its only neighbours.

// sends is what a rank sent and received in one window of steps.
type sends struct {
	group, dim   string
	rows         []int32 // of the pipeline
	from, to     int64
	step         float64 // a usual step in seconds
	steps        int
	calls, bytes float64 // a step
	quickest     float32 // seconds
}

const (
	// mostSends is how many ranks' sends are followed, and sampledSends how many of them one is compared with.
	mostSends    = 1 << 14
	sampledSends = 64
)

// neighbours finds whom each row exchanges activations and gradients with: those of its pipeline in the stages beside its own.
// It is nil where one of them has no records, or runs on the same node, for the quickest calls are those with it.
func neighbours(l *frame.Layout) [][]int32 {
	out := make([][]int32, len(l.Ranks))
	if len(l.Role) != len(l.Ranks) || len(l.Node) != len(l.Ranks) {
		return out
	}

	stage := func(r int32) int {
		if g := l.Role[r]; g >= 0 {
			return l.Roles[g].Stage
		}

		return -1
	}
	for i := range l.Groups {
		g := &l.Groups[i]
		if g.Metric() != frame.PP || !g.Complete() {
			continue
		}

		rows := slices.SortedFunc(slices.Values(g.Rows), func(a, b int32) int { return cmp.Compare(stage(a), stage(b)) })
		for k, r := range rows {
			beside := slices.Concat(rows[max(0, k-1):k], rows[k+1:min(len(rows), k+2)])
			if l.Node[r] >= 0 && !slices.ContainsFunc(beside, func(p int32) bool { return l.Node[p] < 0 || l.Node[p] == l.Node[r] }) {
				out[r] = beside
			}
		}
	}

	return out
}

// observeSends takes a window of what the ranks of a group sent to each other and received.
func (w *Watch) observeSends(t *frame.Transfer, step float64) {
	for i, r := range t.Rows {
		if int(r) >= len(w.beside) || w.beside[r] == nil || !(t.Quickest[i] > 0) || len(w.pending) >= mostSends {
			continue
		}

		x := w.pending[r]
		if x == nil {
			x = &sends{group: t.Name, dim: t.Dim, rows: t.Rows, from: t.From, to: t.To, step: step, quickest: t.Quickest[i]}
			w.pending[r] = x
		}

		x.steps, x.quickest = max(x.steps, t.Steps), min(x.quickest, t.Quickest[i])
		x.calls, x.bytes = x.calls+t.Calls, x.bytes+t.Bytes
	}
}

// settleSends makes the windows of sends due: a rank's wire takes as long as its quickest call, for half of its calls:
// what it sends and what it receives go at once, as the batched calls of 1F1B do.
func (w *Watch) settleSends() {
	for _, r := range slices.Sorted(maps.Keys(w.pending)) {
		s, x := w.pending[r], w.sends[r]
		if x == nil {
			x = &wire{Name: s.group, Dim: s.dim, Size: len(w.beside[r]), From: r}
			w.sends[r] = x
		}

		x.Rows = append(x.Rows[:0], s.rows...)
		x.Bytes, x.Quickest = s.bytes, math.Log(float64(s.quickest))
		x.add(x.Quickest+math.Log(s.calls/2), s.steps)
		w.due = append(w.due, due{wire: x, from: s.from, to: s.to, step: s.step})
	}

	clear(w.pending)
}

// sendMates returns some of the ranks that send as much to as many.
func (w *Watch) sendMates(x *wire) (mates []*wire) {
	every := int32(max(1, w.n/sampledSends))
	for r := x.From % every; int(r) < w.n; r += every {
		if o := w.sends[r]; o != nil && o != x && o.like(x) {
			mates = append(mates, o)
		}
	}

	return mates
}

// sendsSlowly reports whether a row's sends are slow by themselves, however little that costs.
func (w *Watch) sendsSlowly(r int32) bool {
	x := w.sends[r]
	return x != nil && x.Slow && !w.roseTogether(x)
}

// slowSends lists the pipelines of ranks that send slowly: where that is much of a step, or other is a group of theirs
// that is slow as well.
func (w *Watch) slowSends(other []Slow) (out []Slow) {
	var slow []int32
	for r := range w.sends {
		if w.sendsSlowly(r) {
			slow = append(slow, r)
		}
	}

	slices.Sort(slow)
	least := w.cfg.LinkShare * w.usual
	if slices.ContainsFunc(slow, func(r int32) bool { return w.sends[r].Cost >= least }) {
		least /= 2 // ranks at the ends of pipelines have half as many calls
	}

	for _, r := range slow {
		x := w.sends[r]
		if x.Cost < least && !slices.ContainsFunc(other, func(s Slow) bool { return slices.Contains(s.Rows, r) }) || w.awaits(r) {
			continue
		}

		s := x.found()
		s.Ends = []int32{r}
		if !slices.ContainsFunc(w.beside[r], func(p int32) bool { return w.node[p] != w.node[w.beside[r][0]] || !w.asSlow(p, x) }) {
			s.Ends = append(s.Ends, w.beside[r]...)
		}

		out = append(out, s)
	}

	return out
}

// AllBeside reports whether all to whom row r sends are so: then its quickest call may be with one that is.
func (w *Watch) AllBeside(r int32, is func(p int32) bool) bool {
	return len(w.beside[r]) > 0 && !slices.ContainsFunc(w.beside[r], func(p int32) bool { return !is(p) })
}

// awaits reports whether those to whom row r sends are late with each step for slow groups of their own: then all its calls wait.
func (w *Watch) awaits(r int32) bool {
	return w.AllBeside(r, func(p int32) bool {
		for g := range w.groups {
			rows := w.groups[g].Rows
			if slices.Contains(rows, p) && !slices.Contains(rows, r) && (w.slow[g] || w.doubtful(g)) {
				return true
			}
		}

		return false
	})
}

// asSlow reports whether a row's quickest sends take about as long as those of a slow one.
func (w *Watch) asSlow(r int32, slow *wire) bool {
	x := w.sends[r]
	return x == nil || x.Quickest >= slow.Quickest-slow.Rise/2
}
