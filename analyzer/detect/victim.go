package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// tensorVictim reports whether the rank only shares the fate of its tensor,
// context or expert group: collectives inside the forward pass make all of them as
// slow as the slowest, which waits least in them. What it waits there beyond what
// its peers wait in their groups, and what its groups' wires take beyond theirs, is then most of
// its excess.
func (e *Engine) tensorVictim(c *candidate) bool {
	if !c.has[compute] {
		return false
	}

	k := e.tracks[compute].Recent(c.row)
	x := max(0, e.excess(c.row, compute, nil))
	if e.unknownMates() && e.ownExcess(c.row, k) < residual.VictimShare*x || e.exchanges(c.row) && e.ownExcess(c.row, k) < computeShare*x {
		return true
	}

	waits := 0.0
	for _, m := range frame.Inner {
		if !e.seen[m] {
			continue
		}

		mine, wire, usual, usualWire := e.groupTimes(c.row, m, k)
		if usual == usual {
			waits += mine - min(usual, residual.UsualShare*x) // half the role may be victims
			waits += max(0, wire-usualWire)                   // congestion, or a slow link
		}
	}

	if waits >= residual.VictimShare*x && !e.late(c.row, k, x) {
		return true
	}

	recorded := slices.ContainsFunc(frame.Inner[:], func(m frame.Metric) bool { return e.seen[m] })
	return !recorded && (e.awaitsData(c.row, c.row, x) || e.followsMate(c.row, x)) || e.maybeVictim(c, k, x)
}

// unknownMates reports whether no groups are known while own time is recorded: forward passes may hold
// waits for whoever a rank works with, and own time, in which none are, tells. Where all ranks meet in one communicator nobody works
// with some of them.
func (e *Engine) unknownMates() bool {
	return e.layout.From == "inferred" && e.seen[frame.Self] && !e.layout.OneCommunicator()
}

// maybeMate reports whether a rank may work with another one on another node that has more own time than its peers,
// and became slow in the same moment or computes longer by as much: no groups are known, own time may hold waits
// between stages, and ranks that meet in their forward passes end them together.
func (e *Engine) maybeMate(c *candidate, all []candidate) bool {
	if !e.unknownMates() || !c.has[compute] {
		return false
	}

	k := e.tracks[compute].Recent(c.row)
	x := e.excess(c.row, compute, nil)
	itself := e.ownAsForward(c, k, x)
	return slices.ContainsFunc(all, func(o candidate) bool {
		if !o.has[compute] && !e.accused(own, o.row) || e.layout.Node[o.row] == e.layout.Node[c.row] {
			return false
		}

		alike := math.Abs(e.excess(o.row, compute, nil)-x) <= inLockstep*x
		if alike && e.covered(c.row, k)-e.covered(o.row, k) >= residual.VictimShare*x {
			return true
		}

		together := !e.tracks[compute].FromStart(o.row) && abs(o.sinceAt-c.sinceAt) <= commonSteps
		return !itself && (together || alike) && e.ownExcess(o.row, k) > e.ownExcess(c.row, k)
	})
}

// covered is how many seconds of a step row r is in communication that is part of its own time: nobody told that it was blocked
// there, and it computed meanwhile, or waited inside its forward and backward passes.
func (e *Engine) covered(r, k int) float64 {
	return e.recent.Median(frame.Comm, r, k) - e.recent.Median(frame.Exposed, r, k)
}

// ownAsForward reports whether own time, of which forward passes are a part, is longer by the factor that they are:
// whoever waits inside them has that wait in its forward time alone, and what it waits elsewhere is not in proportion.
func (e *Engine) ownAsForward(c *candidate, k int, x float64) bool {
	forward := math.Log1p(x / e.peers(c.row, compute, k, nil))
	own := math.Log1p(e.ownExcess(c.row, k) / e.peers(c.row, own, k, nil))
	return own >= (1-inLockstep)*forward
}

// waitsInside reports whether the forward passes of a rank, whose pipeline waits for one that is
// slower anyway, are no longer by themselves, or by little of what its own time is longer. Ranks in lockstep end them together: whose take
// longer than a mate's began them earlier and waited, though no range may tell; nor does where a
// mate is missing.
func (e *Engine) waitsInside(c *candidate, all []candidate) bool {
	unseen := !c.has[own] && e.inner.Cut[c.row]
	if !c.has[compute] || c.has[loading] || c.has[saving] || !c.has[own] && !unseen || !slices.ContainsFunc(all, func(o candidate) bool {
		return o.has[compute] && o.excess >= c.excess && e.explains(&o, c)
	}) {
		return false
	}

	if hardly := e.tracks[compute].Standing(c.row) < computeShare*e.tracks[own].Standing(c.row); hardly {
		return true
	}

	most := (1 - residual.VictimShare) * e.excess(c.row, compute, nil)
	return unseen || !e.tracks[compute].Active(c.row) || e.unseenInner(c.row) && slices.ContainsFunc(e.graph.Mates(c.row), func(p int32) bool { return e.excess(int(p), compute, nil) < most })
}

// unseenInner reports whether row r has a group that works inside the forward pass, and what is waited there is not
// recorded.
func (e *Engine) unseenInner(r int) bool {
	return slices.ContainsFunc(frame.Inner[:], func(m frame.Metric) bool { return !e.seen[m] && e.groupOf(r, m) != nil })
}

// late reports whether row r, of which x seconds are asked, has more own time than its peers, in
// which no wait for its groups is. It may hold others that nobody recorded: then who is waited for
// has as much of it.
func (e *Engine) late(r, k int, x float64) bool {
	mine := e.ownExcess(r, k)
	return mine >= max(residual.VictimShare*x, e.cfg.MinEffect*e.peers(r, own, k, nil)) &&
		!slices.ContainsFunc(e.graph.Mates(r), func(p int32) bool { return e.layout.Node[p] != e.layout.Node[r] && e.ownExcess(int(p), k) >= mine })
}

// followsMate reports whether a rank on another node that works in lockstep with row r, whose
// excess is x seconds, computes longer as well: where nobody recorded who waits inside the forward
// pass, either may be who is waited for. Where own time was recorded it tells them apart, and only a
// mate that is slow for sure counts. Where such a mate gets its work from another stage of the
// replica that is slower, that one is.
func (e *Engine) followsMate(r int, x float64) bool {
	slower := func(p int32, x float64) bool {
		return e.layout.Node[p] != e.layout.Node[r] && e.excess(int(p), compute, nil) > x &&
			(e.tracks[compute].Active(int(p)) || !e.recent.Has(frame.Self))
	}

	mates := e.graph.Mates(r)
	if slices.ContainsFunc(mates, func(p int32) bool { return slower(p, residual.VictimShare*x) }) {
		return true
	}

	q := e.layout.Replica[r]
	return q >= 0 && len(mates) > 1 && slices.ContainsFunc(e.layout.Replicas[q], func(p int32) bool { return slower(p, x) })
}

// awaitsData reports whether a rank that works in lockstep with row r comes late by most of
// x seconds, for it waits for data; but leaves one out.
func (e *Engine) awaitsData(r, but int, x float64) bool {
	return slices.ContainsFunc(e.graph.Mates(r), func(p int32) bool {
		return int(p) != but && !e.tracks[loading].Healthy(int(p)) && e.excess(int(p), loading, nil) >= residual.VictimShare*x
	})
}

// maybeVictim reports whether a rank may be the victim of a member of its inner
// groups that has no records: its self time, which holds no such wait, is not up by as
// much, or others there are as slow and nobody is seen to be waited for.
func (e *Engine) maybeVictim(c *candidate, k int, x float64) bool {
	t := e.tracks[compute]
	effect, _ := t.Last(c.row) // of waits that come and go the median tells less
	if e.inner.Cut[c.row] && e.ownExcess(c.row, k) < residual.VictimShare*max(x, -e.value(c.row, compute, k)*math.Expm1(-effect)) {
		return true
	}

	mine := t.Middle(c.row)
	for _, m := range frame.Inner {
		g := e.groupOf(c.row, m)
		if g == nil || !e.seen[m] || g.Complete() && !e.anyUnjudged(g.Rows) {
			continue
		}

		if !slices.ContainsFunc(history.Sample(g.Rows), func(p int32) bool { return e.layout.Node[p] != e.layout.Node[c.row] && t.Middle(int(p)) >= mine/2 }) {
			continue
		}

		theirs := e.recent.Over(m, history.Sample(g.Rows), k, func(p int) bool { return p == c.row })
		if theirs-e.recent.Median(m, c.row, k) < residual.VictimShare*x {
			return true
		}
	}

	return false
}

// groupTime returns what rank r waits in its group of that dimension, its time there less the
// shortest member's, and that one's, the transfer itself; NaN when a member is not known.
func (e *Engine) groupTime(r int, m frame.Metric, k int) (wait, transfer float64) {
	g := e.groupOf(r, m)
	if g == nil || !g.Complete() || len(g.Rows) > history.SampleRows {
		return math.NaN(), math.NaN()
	}

	low := math.NaN()
	for _, p := range g.Rows {
		if x := e.recent.Median(m, int(p), k); x == x && !(x >= low) {
			low = x
		}
	}

	return e.recent.Median(m, r, k) - low, low
}

// groupTimes is groupTime of rank r, and the medians of both over its peers; NaN when one is not known.
func (e *Engine) groupTimes(r int, m frame.Metric, k int) (wait, transfer, usualWait, usualTransfer float64) {
	wait, transfer = e.groupTime(r, m, k)
	if wait != wait {
		return wait, transfer, math.NaN(), math.NaN()
	}

	var waits, transfers []float64
	for _, p := range history.Sample(e.layout.Roles[e.layout.Role[r]].Rows) {
		if len(waits) >= usualSample {
			break
		}

		if w, t := e.groupTime(int(p), m, k); int(p) != r && w == w {
			waits, transfers = append(waits, w), append(transfers, t)
		}
	}

	return wait, transfer, robust.Median64(waits), robust.Median64(transfers)
}

// slowWires is how many seconds a step longer than those of its peers the transfers of rank r take that are
// inside its forward pass: congestion, or a slow link.
func (e *Engine) slowWires(r, k int) (sum float64) {
	for _, m := range frame.Inner {
		if !e.seen[m] {
			continue
		}

		if _, wire, _, usual := e.groupTimes(r, m, k); usual == usual {
			sum += max(0, wire-usual)
		}
	}

	return sum
}

// groupOf is the group of row r in the metric's dimension, nil when none is known.
func (e *Engine) groupOf(r int, m frame.Metric) *frame.Group {
	if e.inGroup[m] == nil {
		e.inGroup[m] = make([]int32, e.n)
		for i := range e.inGroup[m] {
			e.inGroup[m][i] = -1
		}

		for i := range e.layout.Groups {
			if e.layout.Groups[i].Metric() == m {
				for _, p := range e.layout.Groups[i].Rows {
					e.inGroup[m][p] = int32(i)
				}
			}
		}
	}

	if i := e.inGroup[m][r]; i >= 0 {
		return &e.layout.Groups[i]
	}

	return nil
}

// maybeStage reports whether the rank may just be one of a heavier stage: roles
// are not known, it was slow from the start, and others are as slow.
func (e *Engine) maybeStage(c *candidate) bool {
	if e.layout.Certain || c.main >= loading || !e.tracks[c.main].FromStart(c.row) {
		return false
	}

	t := e.tracks[c.main]
	mine := t.Middle(c.row)
	return slices.ContainsFunc(e.layout.Roles[e.layout.Role[c.row]].Rows, func(r int32) bool {
		x := t.Middle(int(r))
		return int(r) != c.row && x >= float32(e.cfg.MinEffect) && x >= mine-stageLikeness && x <= mine+stageLikeness
	})
}

// waitsForLink reports whether a rank computes longer in its backward pass alone while a
// link of its groups is slow: who comes early waits in it, where no range tells.
func (e *Engine) waitsForLink(c *candidate) bool {
	if !c.has[compute] || c.has[loading] || c.has[saving] || !e.recent.Has(frame.Backward) || !e.onSlowLink(c.row, false) {
		return false
	}

	t := e.tracks[compute]
	effect, _ := t.Last(c.row)
	k := t.Recent(c.row)
	mine := e.recent.Median(frame.FP, c.row, k)
	theirs := e.roleMedian(frame.FP, c.row, k, nil)
	return math.Log(mine/theirs) < computeShare*effect
}

// beganWithLink reports whether a rank computes longer since the links of another node became
// slow, and costs less than they do: one change has one cause. Where ranks share processors,
// who waits longer for its wires leaves more of them to others, or less.
func (e *Engine) beganWithLink(c *candidate) bool {
	if c.has[loading] || c.has[saving] {
		return false
	}

	slow := e.slowLinks()
	n := e.commonNode(slow)
	return n >= 0 && n != e.layout.Node[c.row] && slices.ContainsFunc(slow, func(w link.Slow) bool {
		return max(c.since, w.Since)-min(c.since, w.Since) <= threshold.Window && w.Cost >= linkLead*c.excess
	})
}

// beganWithReplica reports whether a rank with few peers became slower when a whole replica, to which one of these
// belongs, became so by more: what the stages of that replica share is taken out of its ranks' times, and what is left of them is no measure.
func (e *Engine) beganWithReplica(c *candidate) bool {
	if !c.few || c.main >= signals {
		return false
	}

	return slices.ContainsFunc(e.slowWholes(), func(u unit) bool {
		effect, _ := u.test.Last(u.at)
		return effect > c.effect && abs(u.test.SinceAt(u.at)-c.sinceAt) <= threshold.Window &&
			slices.ContainsFunc(u.rows, func(r int32) bool { return int(r) != c.row && e.layout.Role[r] == e.layout.Role[c.row] })
	})
}
