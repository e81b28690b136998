package detect

import (
	"math"
	"slices"

	"laggard/analyzer/frame"
)

// candidate is a rank that is slow now, before anybody is accused.
type candidate struct {
	row             int
	has             [signals + 1]bool // signals that are slow, saving included
	main            signal
	phase           uint8 // degraded, or suspect
	since, detected int64
	sinceAt         int
	effect, z       float64
	excess          float64 // seconds a step more than peers, of the main signal
	few             bool
	self            bool // known from its own past only
	sure            bool // a carried suspicion met it again
}

// onlyOwn reports whether nothing but self time speaks against the rank: it may
// be waiting where no range was recorded.
func (c *candidate) onlyOwn() bool {
	return c.has[own] && !c.has[compute] && !c.has[loading] && !c.has[saving]
}

// active reports whether unit r is slow now in the eyes of a window test.
func (t *track) active(r int) bool {
	return t.phase[r] == degraded || t.phase[r] == suspect && t.passes[r] >= t.need(r) && !t.masked(r)
}

// candidates lists the ranks that are slow now in any signal.
func (e *Engine) candidates() []candidate {
	var out []candidate
	for r := range e.n {
		c := candidate{row: r, main: -1}
		for s := range signals {
			t := e.tracks[s]
			if !t.active(r) {
				continue
			}
			c.has[s] = true
			x := e.excess(r, s, nil)
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.effect, c.z, c.few = s, x, float64(t.effect[r]), float64(t.z[r]), t.few[r]
			}
			if c.detected == 0 && c.since == 0 || t.detected[r] < c.detected {
				c.since, c.detected, c.sinceAt = e.sinceOf(t, r), t.detected[r], int(t.sinceAt[r])
			}
			c.phase = degraded
		}
		if e.saver.guilty(r) {
			c.has[saving] = true
			x := e.savingCost(r)
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.effect, c.z = saving, x, float64(e.saver.rise[r]), float64(e.saver.rise[r])/math.Max(e.saver.sigma, saveNoise)
			}
			if c.phase == 0 || e.saver.third[r] < c.detected {
				c.since, c.detected = e.saver.since[r], e.saver.third[r]
			}
			c.phase = degraded
		}
		if c.main >= 0 {
			out = append(out, c)
		}
	}
	return out
}

// sinceOf is the first slow step of the episode; the first recorded one where
// the rank was slow from the start.
func (e *Engine) sinceOf(t *track, r int) int64 {
	if t.fromStart(r) {
		return t.firstLabel[r]
	}
	return t.since[r]
}

// excess is how many seconds a step more than its peers rank r spends in the
// signal now; skip leaves out other culprits.
func (e *Engine) excess(r int, s signal, skip func(int) bool) float64 {
	k := min(window, max(minBold, e.tracks[s].age(r)))
	mine, theirs := e.value(r, s, k), e.peers(r, s, k, skip)
	if x := mine - theirs; x == x {
		return x
	}
	return mine * (1 - math.Exp(-float64(e.tracks[s].effect[r])))
}

// value is the median of the signal's raw time of a rank, seconds.
func (e *Engine) value(r int, s signal, k int) float64 {
	switch s {
	case own:
		return e.recent.median(frame.Self, r, k)
	case loading:
		return e.recent.median(frame.DataLoader, r, k)
	}
	fp, bp := e.recent.median(frame.FP, r, k), e.recent.median(frame.Backward, r, k)
	if bp == bp {
		return fp + bp
	}
	return fp
}

// peers is the same over the other ranks of the role.
func (e *Engine) peers(r int, s signal, k int, skip func(int) bool) float64 {
	g := e.layout.Role[r]
	if g < 0 {
		return math.NaN()
	}
	var v []float64
	for _, p := range sample(e.layout.Roles[g].Rows, r) {
		if int(p) == r || skip != nil && skip(int(p)) {
			continue
		}
		if x := e.value(int(p), s, k); x == x {
			v = append(v, x)
		}
	}
	if len(v) > 0 && len(v) < medianPeers-1 {
		return slices.Min(v)
	}
	return middle(v)
}

// sampleSize bounds the peers whose medians a sentence quotes.
const sampleSize = 129

// sample returns at most sampleSize of the rows, evenly.
func sample(rows []int32, _ int) []int32 {
	if len(rows) <= sampleSize {
		return rows
	}
	out := make([]int32, 0, sampleSize)
	for i := range sampleSize {
		out = append(out, rows[i*len(rows)/sampleSize])
	}
	return out
}

// accuse removes who must not be named from the candidates: victims, common
// causes, and those of whom the culprit may be missing from the record.
func (e *Engine) accuse(all []candidate) []candidate {
	keep := all[:0:0]
	for i := range all {
		c := &all[i]
		if c.onlyOwn() && !e.convincing(c, all) {
			continue
		}
		if e.tensorVictim(c, all) {
			continue
		}
		keep = append(keep, *c)
	}
	return e.withoutCommon(keep)
}

// convincing decides on a rank with nothing but self time against it. Time that
// no range covers may be a wait: so its whole pipeline must be recorded, nobody
// in it may have more of it, nobody else may explain it, and its own recorded
// waiting must be down by as much.
func (e *Engine) convincing(c *candidate, all []candidate) bool {
	r := c.row
	q := e.layout.Replica[r]
	if q < 0 || !e.recorded(q) {
		return false
	}
	k := min(window, max(minBold, e.tracks[own].age(r)))
	for _, p := range e.layout.Replicas[q] {
		if int(p) == r || e.layout.Role[p] == e.layout.Role[r] {
			continue
		}
		x := e.value(int(p), own, k) - e.peers(int(p), own, k, nil)
		same := e.layout.Node[p] == e.layout.Node[r]
		if x > c.excess*pipelineLead || !same && x > c.excess {
			return false
		}
	}
	for i := range all {
		o := &all[i]
		if o.row == r || e.layout.Node[o.row] == e.layout.Node[r] {
			continue
		}
		x := o.excess
		if y := e.excess(o.row, own, nil); y == y && o.main == compute {
			x = max(x, y)
		}
		if !o.onlyOwn() && x >= explainedShare*c.excess && o.sinceAt <= c.sinceAt+commonSteps {
			return false
		}
		if o.onlyOwn() && abs(o.sinceAt-c.sinceAt) <= 2*commonSteps && o.excess*0.9 > c.excess {
			return false
		}
	}
	if e.links.covers(r) {
		return false
	}
	mine := e.recent.median(frame.Exposed, r, k)
	theirs := e.recent.over(frame.Exposed, sample(e.layout.Roles[e.layout.Role[r]].Rows, r), k, func(p int) bool { return p == r })
	if d := theirs - mine; d == d && d < identityShare*c.excess {
		return false
	}
	return true
}

// recorded reports whether every stage of the replica has a rank with records.
func (e *Engine) recorded(q int32) bool {
	var seen, all [1 << 10]bool
	for _, r := range e.layout.Replicas[q] {
		s := e.layout.Roles[e.layout.Role[r]].Stage % len(all)
		all[s] = true
		seen[s] = seen[s] || e.judged[r] > 0
	}
	return seen == all
}

// tensorVictim reports whether the rank only shares the fate of its tensor or
// expert group: collectives inside the forward pass make all of them as slow as
// the slowest, which waits least in them.
func (e *Engine) tensorVictim(c *candidate, all []candidate) bool {
	if !c.has[compute] {
		return false
	}
	for _, m := range []frame.Metric{frame.TP, frame.EP, frame.CP} {
		mine := e.recent.median(m, c.row, window)
		if mine != mine {
			continue
		}
		for i := range all {
			o := &all[i]
			if o.row == c.row || !o.has[compute] || e.layout.Node[o.row] == e.layout.Node[c.row] || !e.together(o.row, c.row, m) {
				continue
			}
			theirs := e.recent.median(m, o.row, window)
			if mine-theirs >= identityShare*c.excess {
				return true
			}
		}
	}
	return false
}

// together reports whether two ranks share a group of the metric's dimension.
func (e *Engine) together(a, b int, m frame.Metric) bool {
	for i := range e.layout.Groups {
		g := &e.layout.Groups[i]
		if dimMetric[g.Dim] == m && slices.Contains(g.Rows, int32(a)) && slices.Contains(g.Rows, int32(b)) {
			return true
		}
	}
	return false
}

// withoutCommon drops nodes that became slow in the same moment: a switch or a
// storage did it. What the record begins with has no moment.
func (e *Engine) withoutCommon(all []candidate) []candidate {
	at := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.main == saving || e.tracks[c.main].fromStart(c.row) || c.sinceAt == 0 {
			continue
		}
		node := e.nodeOf(c.row)
		if old, ok := at[node]; !ok || c.sinceAt < old {
			at[node] = c.sinceAt
		}
	}
	common := map[string]bool{}
	for node, x := range at {
		n := 0
		for _, y := range at {
			if abs(x-y) <= commonSteps {
				n++
			}
		}
		common[node] = n >= commonNodes && 8*n >= len(e.layout.Nodes)
	}
	e.common = e.common[:0]
	return slices.DeleteFunc(all, func(c candidate) bool {
		if common[e.nodeOf(c.row)] {
			e.common = append(e.common, c)
			return true
		}
		return false
	})
}

func abs(x int) int { return max(x, -x) }

// covers reports whether row r is in a group whose link is slow.
func (w *linkWatch) covers(r int) bool {
	for g := range w.groups {
		if w.phase[g] == degraded && slices.Contains(w.groups[g].Rows, int32(r)) {
			return true
		}
	}
	return false
}
