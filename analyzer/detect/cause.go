package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// describe is what a verdict says of one candidate: the cause that covers what its
// peers wait for, and the numbers behind it.
func (e *Engine) describe(c *candidate, all []candidate) verdict.Node {
	culprit := map[int]bool{}
	for i := range all {
		culprit[all[i].row] = true
	}

	skip := func(r int) bool { return culprit[r] }
	n := verdict.Node{Node: e.nodeOf(c.row), Ranks: []int{e.layout.Ranks[c.row]}, SinceStep: c.since, DetectedStep: c.detected, Cause: e.cause(c, skip)}
	byOwn := e.ownTells(c, n.Cause, skip)
	n.Slowdown, n.Confidence = robust.Finite(e.slowdown(c, byOwn, skip), 1), robust.Finite(e.confidence(c), 0.5)
	n.Evidence = e.evidence(c, skip)
	n.Detail = e.sentence(c, &n, byOwn)
	return n
}

// cause applies the table of causes: the one whose excess covers most, and at
// least causeShare, of all measured excess.
func (e *Engine) cause(c *candidate, skip func(int) bool) string {
	var x [signals + 1]float64
	for s := range signals {
		if c.has[s] {
			x[s] = max(0, e.excess(c.row, s, skip))
		}
	}

	if c.has[saving] {
		x[saving] = e.saver.Slow(c.row).Step
	}

	share := causeShare
	if e.estimated { // no wait was told: what a slow loader takes counts as own time once more
		share = estimatedShare
		x[own] = max(0, x[own]-x[loading])
	}

	self := max(x[compute], x[own])
	total := self + x[loading] + x[saving]
	switch {
	case total <= 0:
		return verdict.Unattributed
	case x[loading] >= share*total:
		return verdict.DataLoader
	case x[saving] >= share*total:
		return verdict.Checkpoint
	case self < share*total:
		return verdict.Unattributed
	}

	if e.onSlowLink(c.row, true) {
		return verdict.Communication
	}

	if !e.seen[frame.FP] {
		return verdict.Unattributed
	}

	if e.coversSelf(c, skip) {
		return verdict.Compute
	}

	return verdict.HostDelay
}

// coversSelf reports whether forward time is up by about as much as self time: a
// slow device slows forward as well, what slows all but forward is the host. A
// small rise need not have alarmed by itself.
func (e *Engine) coversSelf(c *candidate, skip func(int) bool) bool {
	if !e.seen[frame.Self] {
		return c.has[compute]
	}

	s := own
	if c.has[compute] {
		s = compute
	}

	k := e.tracks[s].Recent(c.row)
	if inside, known := e.inside(c, k, skip); known {
		return inside
	}

	fp, self := e.ratioOf(c.row, compute, k, skip), e.ratioOf(c.row, own, k, skip)
	if q := e.layout.Replica[c.row]; q >= 0 && e.isWhole(e.layout.Replicas[q]) { // what its stages share may be what slows their host
		fp = max(fp, robust.Finite(math.Log(e.recent.Median(frame.FP, c.row, k)/e.roleMedian(frame.FP, c.row, k, skip)), 0))
	}

	if c.has[compute] {
		return !(fp < computeShare*self)
	}

	return fp >= max(computeShare*self, e.cfg.MinEffect/2)
}

// ratioOf is the log ratio of rank r to its peers.
func (e *Engine) ratioOf(r int, s signal, k int, skip func(int) bool) float64 {
	return math.Log(e.value(r, s, k) / e.peers(r, s, k, skip))
}

// inside decides for a rank that the members of its tensor, context or expert
// groups wait for: inside the forward pass, then all of them are as long, or
// before it begins, then theirs are longer than its own.
func (e *Engine) inside(c *candidate, k int, skip func(int) bool) (inside, known bool) {
	x := e.excess(c.row, own, skip)
	if !(x > 0) || e.innerLead(c.row, k) < awaitedShare*x {
		return false, false
	}

	most := math.NaN()
	for _, m := range e.exposure.Blocking() {
		g := e.groupOf(c.row, m)
		if g == nil || !g.Complete() || !e.seen[m] {
			continue
		}

		d := e.recent.Over(frame.FP, history.Sample(g.Rows), k, func(p int) bool { return p == c.row || skip(p) }) - e.recent.Median(frame.FP, c.row, k)
		if d == d && !(most >= d) {
			most = d
		}
	}

	return most < beforeShare*x, most == most
}

// ownTells reports whether own time tells how slow a rank is: its forward passes are not slow, or its
// host slows it outside of them, or its peers wait for it inside theirs and own time holds no waits.
func (e *Engine) ownTells(c *candidate, cause string, skip func(int) bool) bool {
	if c.main >= loading || !c.has[compute] {
		return c.main == own
	}

	mate := func(p int32) bool { return int(p) != c.row && e.layout.Role[p] == e.layout.Role[c.row] }
	k := e.tracks[compute].Recent(c.row)
	return (cause == verdict.HostDelay || len(e.exposure.Blocking()) > len(frame.Inner) || slices.ContainsFunc(e.graph.Mates(c.row), mate)) && e.ratioOf(c.row, own, k, skip) > e.ratioOf(c.row, compute, k, skip)
}

// slowdown is the ratio to the peers in the main signal, at least 1: the middles of the last steps may
// be equal where peers are slow as well, in turns. For data loading it is the ratio of the whole work.
func (e *Engine) slowdown(c *candidate, byOwn bool, skip func(int) bool) float64 {
	ratio := math.Exp(c.effect)
	switch c.main {
	case saving:
		return math.Exp(c.effect)
	case loading:
		if t := e.stepMedian; t > c.excess && c.excess > 0 {
			return t / (t - c.excess)
		}

		return ratio
	}

	s := compute
	if byOwn {
		s = own
	}

	k := e.tracks[s].Recent(c.row)
	x := e.value(c.row, s, k) / e.peers(c.row, s, k, skip)
	if x != x || math.IsInf(x, 0) {
		return ratio
	}

	return max(x, 1)
}
