package link

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// due is a window of a wire that was not judged yet.
type due struct {
	wire     *wire
	from, to int64
	step     float64 // a usual step in seconds
	slow     bool
	doubtful bool    // slower than an equal, which so few windows and equals don't explain
	ref      float64 // what it is slow against
}

// wire is the transfers, in one operation, of a group that the steps do not show apart: one
// without a dimension, or of ranks with several groups of one. Windows of steps show it, so it is
// known later and less; the rules are those of groups.
type wire struct {
	Name, Dim, Op string // Op "" = of the sends of a rank
	From          int32  // that rank's row
	Rows          []int32
	Size          int
	Bytes         float64
	Recent        []float64 // log seconds a step of the shortest member, newest last
	Steps         []int     // steps of each
	Quickest      float64   // log seconds of the newest window's quickest call, NaN unknown
	Base          float64
	BaseN         int
	Noise         float64 // mean distance of a window from Base in health
	Passes        int
	Well          int // steps since it was slow
	Doubt         int // steps of doubtful windows
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
	// wireSteps must lie in them, and in those that end what was slow; wireRisen where its own past
	// tells, for a gust of congestion may last two windows.
	wireSteps = 8
	wireRisen = 56
	// wireSigmas of its windows' noise a wire is above its own past: congestion is in the mean of a
	// window, and may be in several.
	wireSigmas = 3
	// wireQuickest times an equal's quickest call: what busy processors add to calls is hardly in the
	// quickest one of a window, while a wire that is slow is so in every call.
	wireQuickest = 3
	// wireVolume: groups whose bytes differ by less should be as fast.
	wireVolume = 0.1
)

// ObserveTransfer takes one window of one group's communication, after the last step of
// the window was observed; step is a usual step in seconds. The window is not kept. What
// the steps show by themselves is left to them.
func (w *Watch) ObserveTransfer(t *frame.Transfer, step float64) {
	if len(t.Rows) < 2 || !(step > 0) {
		return
	}

	w.usual = step
	if g, ok := w.shown[[2]string{t.Name, t.Dim}]; ok {
		w.volumes[g].add(t)
		return
	}

	if t.To != w.until {
		w.settle()
		w.until = t.To
	}

	if frame.P2P(t.Op) {
		w.observeSends(t, step)
		return
	}

	low := float64(t.Shortest())
	if !(low > 0) {
		return
	}

	key := t.Name + "\x00" + t.Op
	x := w.wires[key]
	if x == nil {
		if len(w.wires) >= maxWires {
			return
		}

		x = &wire{Name: t.Name, Dim: t.Dim, Op: t.Op}
		w.wires[key] = x
	}

	if x.Size = max(x.Size, t.Size, len(t.Rows)); len(t.Rows) < x.Size {
		return // the one all wait for may be missing
	}

	x.Rows, x.Bytes = append(x.Rows[:0], t.Rows...), t.Bytes
	x.add(math.Log(low), t.Steps)
	x.Quickest = math.Log(float64(t.QuickestCall()))
	w.due = append(w.due, due{wire: x, from: t.From, to: t.To, step: step})
}

// add takes the log seconds a step of one more window.
func (x *wire) add(seconds float64, steps int) {
	x.Recent, x.Steps = robust.Newest(append(x.Recent, seconds), keptWindows), robust.Newest(append(x.Steps, steps), keptWindows)
}

// settle judges the windows that are due. Each is compared with the same window of the others: so
// two windows tell a slow group, whichever came first. Windows that end together are handed over
// together, before the next step: so it does not matter who asks first, that step or a verdict.
func (w *Watch) settle() {
	w.settleSends()
	for i := range w.due {
		w.judge(&w.due[i])
	}

	for i := range w.due {
		w.due[i].end()
	}

	w.due, w.until = nil, -1
}

// judge compares a wire with its own past and with those of equal volume.
func (w *Watch) judge(d *due) {
	x := d.wire
	cur := x.latest()
	least := math.Log1p(w.cfg.LinkRise)
	share := w.cfg.LinkShare
	if x.Op == "" {
		share = 0 // they tell of the node's other transfers, too
	}

	enough := func(ref float64) bool {
		return cur-ref >= least && math.Exp(cur)-math.Exp(ref) >= share*d.step
	}
	d.ref = x.Base
	if x.BaseN >= wireBase && !enough(d.ref) {
		return
	}

	mates := w.mates(x)
	if x.BaseN >= wireBase {
		if cur-d.ref < wireSigmas*math.Sqrt(math.Pi/2)*x.Noise { // Gaussian: the mean distance is sqrt(2/pi) of sigma
			return
		}

		rise := rises(mates)
		d.slow = x.Slow || len(rise) == 0 || cur-d.ref-robust.Median64(rise) >= least/2 // what all meet ends nothing
		return
	}

	if len(mates) < minClass {
		d.doubtful = slices.ContainsFunc(mates, func(o *wire) bool {
			return enough(o.latest()) && x.Quickest-o.Quickest >= math.Log(wireQuickest)
		})
		return
	}

	var latest, quickest, far []float64
	for _, o := range mates {
		latest, quickest = append(latest, o.latest()), append(quickest, o.Quickest)
	}

	d.ref = robust.Median64(latest)
	for _, m := range latest {
		if x.Op != "" || m <= d.ref { // of sends those to a slow node, which may be half, are no noise
			far = append(far, math.Abs(m-d.ref))
		}
	}

	d.doubtful = enough(d.ref)
	d.slow = d.doubtful && (cur-d.ref >= linkSpread*max(1.4826*robust.Median64(far), linkNoise) ||
		x.Quickest-robust.Median64(quickest) >= math.Log(wireQuickest))
}

// end moves the state of the wire.
func (d *due) end() {
	x := d.wire
	cur, n := x.latest(), x.Steps[len(x.Steps)-1]
	if d.doubtful {
		x.Doubt += n
	} else if n >= wireSteps {
		x.Doubt = 0
	}

	if !d.slow {
		x.well(cur)
		return
	}

	x.Well = 0
	if x.Passes++; x.Passes == 1 && !x.Slow {
		x.Since, x.Found = d.from, d.to
	}

	x.Rise, x.Cost = cur-d.ref, math.Exp(cur)-math.Exp(d.ref)
	least := wireSteps
	if x.BaseN >= wireBase {
		least = wireRisen
	}

	x.Slow = x.Slow || x.Passes >= wireWindows && x.slowSteps() >= least
}

// well ends what was slow, once as many steps say so as it takes to be slow, and lets the wire's own
// past learn: the few steps in which a recording ends end nothing.
func (x *wire) well(cur float64) {
	x.Passes = 0
	if x.Well += x.Steps[len(x.Steps)-1]; x.Slow && x.Well < wireSteps {
		return
	}

	x.Slow = false
	x.BaseN = min(x.BaseN+1, 4*wireBase)
	move := (cur - x.Base) / float64(x.BaseN)
	if x.BaseN > 1 {
		x.Noise += (math.Abs(cur-x.Base) - x.Noise) / float64(x.BaseN-1)
	}

	if x.BaseN > wireBase {
		move = max(-linkDrift, min(move, linkDrift))
	}

	x.Base += move
}

// slowSteps is how many steps lie in the last windows, all of which were slow.
func (x *wire) slowSteps() (steps int) {
	for _, n := range x.Steps[max(0, len(x.Steps)-x.Passes):] {
		steps += n
	}

	return steps
}

func (x *wire) latest() float64 { return x.Recent[len(x.Recent)-1] }

// like reports whether two wires are of equal operation, size and volume.
func (x *wire) like(o *wire) bool {
	return o.Op == x.Op && o.Size == x.Size && len(o.Recent) > 0 && math.Abs(o.Bytes-x.Bytes) <= wireVolume*max(o.Bytes, x.Bytes)
}

// mates returns the wires that should be as fast.
func (w *Watch) mates(x *wire) (mates []*wire) {
	if x.Op == "" {
		return w.sendMates(x)
	}

	for _, o := range w.wires {
		if o != x && o.like(x) {
			mates = append(mates, o)
		}
	}

	return mates
}

// rises returns how far those wires that have a past are above it.
func rises(all []*wire) (rise []float64) {
	for _, x := range all {
		if x.BaseN >= wireBase {
			rise = append(rise, x.latest()-x.Base)
		}
	}

	return rise
}

// roseTogether reports whether the wires of equal volume rose as well: asked when the windows
// of all of them are there.
func (w *Watch) roseTogether(x *wire) bool {
	rise := rises(w.mates(x))
	return len(rise) > 0 && x.Rise-robust.Median64(rise) < math.Log1p(w.cfg.LinkRise)/2
}

// Slow is a link that is slow now, whoever saw it.
type Slow struct {
	Name, Dim    string
	Rows         []int32
	Ends         []int32 // of these, those whose node's network may be what is slow
	Rise, Cost   float64 // log ratio; seconds a step
	Now          float64 // seconds a step
	Noise        float64
	Since, Found int64
}

// Sends reports whether it is a pipeline that is slow by what its ranks send to each other.
func (s *Slow) Sends() bool { return len(s.Ends) < len(s.Rows) }

// InPipeline reports whether it is a pipeline, whether or not one of its ends may be what is slow.
func (s *Slow) InPipeline() bool { return s.Sends() || s.Dim == "pp" }

// Slow lists the slow links, named and in a fixed order.
func (w *Watch) Slow() []Slow {
	w.settle()
	var out []Slow
	for g := range w.groups {
		if w.slow[g] {
			rows := w.groups[g].Rows
			out = append(out, Slow{w.groups[g].Name, w.groups[g].Dim, rows, rows, float64(w.rise[g]), float64(w.cost[g]), math.Exp(float64(w.cur[g])),
				max(float64(w.noise[g]), linkNoise), w.since[g], w.found[g]})
		}
	}

	n := len(out)
	for _, x := range w.wires {
		if x.Slow && !w.roseTogether(x) {
			out = append(out, x.found())
		}
	}

	out = append(out, w.slowSends(out)...)
	slices.SortStableFunc(out[n:], func(a, b Slow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Cost, a.Cost))
	})
	return merge(out)
}

// found is what there is to say of a slow wire.
func (x *wire) found() Slow {
	return Slow{x.Name, x.Dim, x.Rows, x.Rows, x.Rise, x.Cost, math.Exp(x.latest()), linkNoise, x.Since, x.Found}
}

// merge leaves of each group the costliest, with the rows of all, and the ends that all have in common.
func merge(all []Slow) (out []Slow) {
	for _, s := range all {
		if n := len(out); n == 0 || s.Name == "" || out[n-1].Name != s.Name {
			out = append(out, s)
			continue
		}

		last := &out[len(out)-1]
		last.Rows = slices.Compact(slices.Sorted(slices.Values(slices.Concat(last.Rows, s.Rows))))
		common := slices.DeleteFunc(slices.Clone(last.Ends), func(r int32) bool { return !slices.Contains(s.Ends, r) })
		if len(common) == 0 {
			common = slices.Concat(last.Ends, s.Ends)
		}

		last.Ends = common
	}

	return out
}

// Check reports numbers of a restored watch that none has and that a panic would follow
// from.
func (w *Watch) Check() error {
	for _, x := range w.wires {
		if err := x.check(w.n); err != nil {
			return err
		}
	}

	for r, x := range w.sends {
		if r < 0 || int(r) >= w.n || w.beside[r] == nil || x.From != r {
			return fmt.Errorf("sends of row %d: row %d", r, x.From)
		}

		if err := x.check(w.n); err != nil {
			return err
		}
	}

	return nil
}

func (x *wire) check(rows int) error {
	for _, r := range x.Rows {
		if r < 0 || int(r) >= rows {
			return fmt.Errorf("wire %s: row %d", x.Name, r)
		}
	}

	if x.Slow && len(x.Recent) == 0 || len(x.Recent) != len(x.Steps) {
		return fmt.Errorf("wire %s: %d windows of %d steps", x.Name, len(x.Recent), len(x.Steps))
	}

	return nil
}
