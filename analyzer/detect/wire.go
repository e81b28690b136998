package detect

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// wires follows the transfers of groups that the steps do not show apart: those
// without a dimension, or of ranks with several groups of one. It sees them in
// windows of steps, so it knows later and less; the rules are those of linkWatch.
type wires struct {
	cfg *Config
	Of  map[string]*wire // by group and operation
}

// wire is one group's transfers in one operation, window by window.
type wire struct {
	Name, Dim, Op string
	Rows          []int32
	Size          int
	Bytes         float64
	Recent        []float64 // log seconds a step of the shortest member, newest last
	Steps         []int     // steps of each
	Base          float64
	BaseN         int
	Passes        int
	Slow          bool
	Rise, Cost    float64
	Since, Found  int64
}

// bounds of wires.
const (
	maxWires    = 1 << 14
	keptWindows = 8
	// wireBase windows make a wire's own past, wireWindows in a row must be slow.
	wireBase    = 3
	wireWindows = 2
	// wireSteps must lie in them.
	wireSteps = 8
	// wireVolume: groups whose bytes differ by less should be as fast.
	wireVolume = 0.1
)

// ObserveTransfer takes one window of one group's communication, after the last
// step of the window was observed. The window is not kept.
func (e *Engine) ObserveTransfer(t *frame.Transfer) {
	if t.P2P() || len(t.Rows) < 2 || e.stepMedian <= 0 || e.links.sees(t) {
		return
	}

	e.wires.observe(t, e.stepMedian)
}

// sees reports whether the steps show the window's group by themselves.
func (w *linkWatch) sees(t *frame.Transfer) bool { return w.seenIn[[2]string{t.Name, t.Dim}] }

func (w *wires) observe(t *frame.Transfer, step float64) {
	low := float64(t.Shortest())
	if !(low > 0) {
		return
	}

	key := t.Name + "\x00" + t.Op
	x := w.Of[key]
	if x == nil {
		if len(w.Of) >= maxWires {
			return
		}

		x = &wire{Name: t.Name, Dim: t.Dim, Op: t.Op}
		w.Of[key] = x
	}

	if x.Size = max(x.Size, t.Size, len(t.Rows)); len(t.Rows) < x.Size {
		return // the one all wait for may be missing
	}

	x.Rows, x.Bytes = append(x.Rows[:0], t.Rows...), t.Bytes
	x.Recent, x.Steps = append(x.Recent, math.Log(low)), append(x.Steps, t.Steps)
	if len(x.Recent) > keptWindows {
		x.Recent, x.Steps = x.Recent[1:], x.Steps[1:]
	}

	w.judge(x, step, t)
}

// judge compares a wire with its own past and with those of equal volume.
func (w *wires) judge(x *wire, step float64, t *frame.Transfer) {
	cur := x.Recent[len(x.Recent)-1]
	least := math.Log1p(w.cfg.LinkRise)
	slow, ref := false, x.Base
	enough := func(ref float64) bool {
		return cur-ref >= least && math.Exp(cur)-math.Exp(ref) >= w.cfg.LinkShare*step
	}
	if x.BaseN >= wireBase && !enough(ref) {
		w.well(x, cur)
		return
	}

	mates, rises := w.mates(x)
	if x.BaseN >= wireBase {
		slow = len(rises) == 0 || cur-ref-robust.Median64(rises) >= least/2
	} else if len(mates) >= minClass {
		mid := robust.Median64(mates)
		var far []float64
		for _, m := range mates {
			far = append(far, math.Abs(m-mid))
		}

		if slow = enough(mid) && cur-mid >= linkSpread*max(1.4826*robust.Median64(far), linkNoise); slow {
			ref = mid
		}
	}

	if !slow {
		w.well(x, cur)
		return
	}

	if x.Passes++; x.Passes == 1 {
		x.Since, x.Found = t.From, t.To
	}

	x.Rise, x.Cost = cur-ref, math.Exp(cur)-math.Exp(ref)
	steps := 0
	for _, n := range x.Steps[max(0, len(x.Steps)-x.Passes):] {
		steps += n
	}

	x.Slow = x.Slow || x.Passes >= wireWindows && steps >= wireSteps
}

// well ends what was slow and lets the wire's own past learn.
func (w *wires) well(x *wire, cur float64) {
	x.Passes, x.Slow = 0, false
	x.BaseN = min(x.BaseN+1, 4*wireBase)
	move := (cur - x.Base) / float64(x.BaseN)
	if x.BaseN > wireBase {
		move = max(-linkDrift, min(move, linkDrift))
	}

	x.Base += move
}

// mates returns the latest transfers of the wires of equal operation, size and
// volume, and how far those with a past are above it.
func (w *wires) mates(x *wire) (latest, rises []float64) {
	for _, o := range w.Of {
		if o == x || o.Op != x.Op || o.Size != x.Size || len(o.Recent) == 0 || math.Abs(o.Bytes-x.Bytes) > wireVolume*max(o.Bytes, x.Bytes) {
			continue
		}

		last := o.Recent[len(o.Recent)-1]
		latest = append(latest, last)
		if o.BaseN >= wireBase {
			rises = append(rises, last-o.Base)
		}
	}

	return latest, rises
}

// common reports whether the wires of equal volume rose as well: windows come one
// group after the other, so this is asked when all of them are there.
func (w *wires) common(x *wire) bool {
	_, rises := w.mates(x)
	return len(rises) > 0 && x.Rise-robust.Median64(rises) < math.Log1p(w.cfg.LinkRise)/2
}

// slowLink is a link that is slow now, whoever saw it.
type slowLink struct {
	name         string
	rows         []int32
	rise, cost   float64 // log ratio; seconds a step
	cur          float64 // seconds a step
	noise        float64
	since, found int64
}

// slowLinks lists the slow links, named and in a fixed order.
func (e *Engine) slowLinks() []slowLink {
	var out []slowLink
	w := e.links
	for g := range w.groups {
		if w.phase[g] == degraded {
			out = append(out, slowLink{w.groups[g].Name, w.groups[g].Rows, float64(w.rise[g]), float64(w.cost[g]), math.Exp(float64(w.cur[g])),
				float64(w.noise[g]), w.since[g], w.found[g]})
		}
	}

	n := len(out)
	for _, x := range e.wires.Of {
		if x.Slow && !e.wires.common(x) {
			out = append(out, slowLink{x.Name, x.Rows, x.Rise, x.Cost, math.Exp(x.Recent[len(x.Recent)-1]), linkNoise, x.Since, x.Found})
		}
	}

	slices.SortFunc(out[n:], func(a, b slowLink) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.cost, a.cost))
	})
	return slices.CompactFunc(out, func(a, b slowLink) bool { return a.name == b.name && a.name != "" })
}
