// Package link tells groups whose wire is slow from groups that wait for a late rank:
// the shortest member's time is the transfer, for whoever comes last waits for nobody.
//
// A Watch sees every step; of groups that the steps do not show apart it sees windows of
// steps, and so knows later and less. It compares each group with its own past and with
// the groups of its class, and lets gusts of congestion pass.
//
// Invariant: memory is bounded per group, and what all groups of a dimension show is the
// fabric, not a link. Caveat: a group of every rank may be slow by its fabric, too, which only
// smaller groups beside it tell. A group with a member that has no records is not judged, for
// all may wait for that one; of pipelines, whose time is mostly their bubble, the quickest calls
// between nodes are.
package link

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Watch follows the transfer time of each group.
type Watch struct {
	cfg     *threshold.Config
	groups  []frame.Group
	metric  []frame.Metric // MetricCount: not to be seen in the steps
	ring    []float32      // groups × window: log of the transfer
	base    []float32
	baseN   []uint16
	noise   []float32
	jitter  []float32 // from one step to the next
	slow    []bool
	passes  []uint8
	since   []int64
	found   []int64
	normal  []uint8
	gusts   []float32 // share of earlier steps above half a rise: congestion
	gusting []uint16  // steps of the gust that lasts
	risen   []float32 // what its steps are above the usual by, together
	gust    gustiness
	cur     []float32 // median of the last steps
	rise    []float32
	cost    []float32 // seconds a step
	seen    [frame.MetricCount][]int32
	labels  []int64
	count   int
	byDim   map[int][]int // class → groups
	classes map[int]classLevel
	shown   map[[2]string]int // groups that the steps show, by name and dimension
	volumes []volume          // what the windows say that these move
	hosts   []int             // nodes that each group is on
	busy    map[string]bool   // dimensions in which some group is above its past now
	wires   map[string]*wire  // by group and operation, of groups that the steps do not show
	sends   map[int32]*wire   // by row, where all of its neighbours in the pipeline run on other nodes
	beside  [][]int32         // these neighbours
	node    []int32
	pending map[int32]*sends // of the newest windows
	until   int64            // last step of the windows that were not judged yet, -1 where there are none
	usual   float64          // seconds of a usual step
	due     []due            // windows of wires that ended together, until all of them are there
	n       int              // ranks
	buf     []float32
}

// New returns a watch of a layout's groups.
func New(cfg *threshold.Config, l *frame.Layout) *Watch {
	n := len(l.Groups)
	w := &Watch{
		cfg: cfg, n: len(l.Ranks), wires: map[string]*wire{}, sends: map[int32]*wire{}, pending: map[int32]*sends{}, beside: neighbours(l), node: l.Node, until: -1, groups: l.Groups, metric: make([]frame.Metric, n), ring: robust.Unknown(n * threshold.Window),
		base: make([]float32, n), baseN: make([]uint16, n), noise: make([]float32, n), jitter: make([]float32, n), slow: make([]bool, n), passes: make([]uint8, n),
		since: make([]int64, n), found: make([]int64, n), normal: make([]uint8, n), gusts: make([]float32, n), gusting: make([]uint16, n), risen: make([]float32, n),
		cur: robust.Unknown(n), rise: make([]float32, n), cost: make([]float32, n), labels: make([]int64, threshold.Window),
		byDim: map[int][]int{}, classes: map[int]classLevel{}, busy: map[string]bool{}, shown: map[[2]string]int{}, volumes: make([]volume, n), hosts: make([]int, n),
	}
	member := map[frame.Metric][]uint8{}
	for g := range l.Groups {
		m := l.Groups[g].Metric()
		w.metric[g] = m
		if member[m] == nil {
			member[m] = make([]uint8, len(l.Ranks))
		}

		for _, r := range l.Groups[g].Rows {
			member[m][r] = min(member[m][r]+1, 2)
		}
	}

	for g := range l.Groups {
		m := w.metric[g]
		for _, r := range l.Groups[g].Rows {
			if member[m][r] > 1 { // the step row has one number for several groups
				w.metric[g] = frame.MetricCount
			}
		}

		if !l.Groups[g].Complete() || m == frame.PP { // a pipeline's time is mostly its bubble
			w.metric[g] = frame.MetricCount
		}

		if w.metric[g] < frame.MetricCount {
			w.shown[[2]string{l.Groups[g].Name, l.Groups[g].Dim}] = g
		}

		w.byDim[l.Groups[g].Class] = append(w.byDim[l.Groups[g].Class], g)
		w.hosts[g] = hosts(l, l.Groups[g].Rows)
	}

	for m := range member {
		w.seen[m] = make([]int32, len(l.Ranks))
	}

	return w
}

// Observe takes the transfers of one step; t is its time in seconds.
func (w *Watch) Observe(c *frame.Column, t float64) {
	if len(w.groups) == 0 {
		return
	}

	for m, seen := range w.seen {
		if v := c.V[m]; v != nil && seen != nil {
			for r, x := range v {
				if x == x {
					seen[r]++
				}
			}
		}
	}

	slot := w.count % threshold.Window
	w.labels[slot] = c.Step
	half := float32(math.Log1p(w.cfg.LinkRise)) / 2
	for g := range w.groups {
		x := &w.ring[g*threshold.Window+slot]
		if old := *x; old == old && w.baseN[g] >= linkBase {
			rise := old - w.base[g]
			w.remember(g, rise, rise > max(half, gustSigmas*w.jitter[g]))
		}

		*x = w.transfer(g, c)
	}

	w.count++
	if w.count%threshold.EvaluateEvery == 0 {
		w.rank()
	}

	for g := range w.groups {
		if (w.count+g)%threshold.EvaluateEvery == 0 {
			w.evaluate(g, t, c.Step)
		}
	}
}

// transfer is the log of the shortest member's time, NaN when a member has never
// been seen: the one all wait for may be missing.
func (w *Watch) transfer(g int, c *frame.Column) float32 {
	m := w.metric[g]
	if m >= frame.MetricCount || c.V[m] == nil {
		return robust.NaN
	}

	v, low, n := c.V[m], robust.NaN, 0
	rows := w.groups[g].Rows
	for _, r := range rows {
		if 2*int(w.seen[m][r]) < w.count {
			return robust.NaN
		}

		if x := v[r]; x == x {
			n++
			if !(low <= x) {
				low = x
			}
		}
	}

	if 2*n < len(rows) || n < 2 || !(low > 0) {
		return robust.NaN
	}

	return float32(math.Log(float64(low)))
}

// evaluate compares group g with its own past and with its class.
func (w *Watch) evaluate(g int, t float64, label int64) {
	n := w.last(g, linkWindow)
	if n < threshold.MinValid || t <= 0 {
		return
	}

	jitter := w.toNext()
	cur := robust.Median(w.buf)
	w.cur[g] = cur
	noise := max(robust.SpreadAbout(w.buf, cur), linkNoise)
	peers, peerSpread, others := w.class(g)
	slow := false
	var ref float32
	if w.baseN[g] >= linkBase {
		ref = w.base[g]
		slow = w.isSlow(g, cur-ref, float32(math.Exp(float64(cur))-math.Exp(float64(ref))), t, max(noise, w.noise[g])*robust.MedianLoss/robust.Sqrt(float32(n)))
		if slow {
			rise, n := w.dimRise(g)
			slow = (n == 0 || cur-ref-rise >= float32(math.Log1p(w.cfg.LinkRise))/2) && w.lasts(g, (cur+ref)/2)
			// Where no other class of the dimension tells, the few equals may be as slow and have got used to it.
			if others > 0 && n <= others {
				slow = slow && cur-peers >= float32(math.Log1p(w.cfg.LinkRise))/2
			}
		}
	}

	if !slow && others >= minClass {
		slow, ref = w.slowBeside(g, cur, peers, max(peerSpread, linkNoise), t), peers
	}

	if !slow {
		slow, ref = w.slowBesideStages(g, cur, others, t)
	}

	w.step(g, slow, cur, ref, noise, jitter, label)
}

// dimRise is how much the other groups of g's dimension are above their own past
// at this moment, the median: when all of them are, it is the fabric, not a link.
func (w *Watch) dimRise(g int) (float32, int) {
	var v []float32
	for i := 1; i < len(w.groups) && len(v) < linkMates; i++ {
		k := (g + i) % len(w.groups)
		if w.groups[k].Dim != w.groups[g].Dim || w.baseN[k] < linkBase {
			continue
		}

		if n := w.last(k, linkWindow); n >= threshold.MinValid {
			v = append(v, robust.Median(w.buf)-w.base[k])
		}
	}

	n := len(v)
	return robust.Median(v), n
}

// last fills buf with the transfers of g in the last steps and returns how many
// are known.
func (w *Watch) last(g, steps int) int {
	w.buf = w.buf[:0]
	for k := max(0, w.count-steps); k < w.count; k++ {
		if x := w.ring[g*threshold.Window+k%threshold.Window]; x == x {
			w.buf = append(w.buf, x)
		}
	}

	return len(w.buf)
}

// isSlow applies the gates: relative rise, share of the step, significance.
func (w *Watch) isSlow(g int, rise, cost float32, t float64, se float32) bool {
	if float64(rise) < math.Log1p(w.cfg.LinkRise) || float64(cost) < w.cfg.LinkShare*t || rise < linkSpread*se {
		return false
	}

	w.rise[g], w.cost[g] = rise, cost
	return true
}

// step moves the state of group g.
func (w *Watch) step(g int, slow bool, cur, ref, noise, jitter float32, label int64) {
	if !slow {
		w.passes[g] = 0
		if w.slow[g] {
			if w.normal[g]++; w.normal[g] >= 2 {
				w.slow[g], w.normal[g] = false, 0
			}

			return
		}

		if w.busy[w.groups[g].Dim] {
			return // what drifts together must not look different because one stood still
		}

		if w.baseN[g] < linkBase*4 {
			w.baseN[g] += threshold.EvaluateEvery
		}

		a := float32(threshold.EvaluateEvery) / float32(w.baseN[g])
		move := (cur - w.base[g]) * min(a, 1)
		if w.baseN[g] > linkBase { // known: it may drift, a jump is news
			move = robust.Clip(move, -linkDrift, linkDrift)
		}

		w.base[g] += move
		w.noise[g] += (noise - w.noise[g]) * min(a, 1)
		w.jitter[g] += (jitter - w.jitter[g]) * min(a, 1)
		return
	}

	w.normal[g] = 0
	if w.passes[g] == 0 && !w.slow[g] {
		w.since[g], w.found[g] = w.onset(g, (cur+ref)/2), label
	}

	w.passes[g] = min(w.passes[g]+1, 100)
	if w.passes[g] >= w.need(g) {
		w.slow[g] = true
	}
}

// onset is the first step of the run in which the transfer stayed above half way.
func (w *Watch) onset(g int, half float32) int64 {
	at, misses := w.count-1, 0
	for k := w.count - 1; k >= max(0, w.count-threshold.Window); k-- {
		x := w.ring[g*threshold.Window+k%threshold.Window]
		if x == x && x < half {
			if misses++; misses > 2 {
				break
			}

			continue
		}

		if x == x {
			at = k
		}
	}

	return w.labels[at%threshold.Window]
}

// Common is the median log transfer over the groups, NaN when none is known.
func (w *Watch) Common() float32 {
	if w.count == 0 {
		return robust.NaN
	}

	slot := (w.count - 1) % threshold.Window
	w.buf = w.buf[:0]
	for g := range w.groups {
		if x := w.ring[g*threshold.Window+slot]; x == x {
			w.buf = append(w.buf, x)
		}
	}

	return robust.Median(w.buf)
}
