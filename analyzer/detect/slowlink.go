package detect

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Which links are slow by themselves, and what else explains that a group takes longer.

// slowLinks lists the links that are slow by themselves.
func (e *Engine) slowLinks() []link.Slow {
	all := e.links.Slow()
	for i := range all {
		w := &all[i]
		w.Since = max(w.Since, e.firstStep) // a window may begin before the recording does
		if w.InPipeline() && e.grownShare(w.Since) < shownGrowth*w.Cost/e.stepMedian {
			w.Since = e.firstStep // steps took as long before it was told
		}
	}

	late := e.lateBy(all)
	all = slices.DeleteFunc(all, func(w link.Slow) bool {
		if w.Sends() {
			return slices.ContainsFunc(w.Ends, func(r int32) bool { return e.links.AllBeside(r, late) })
		}

		return e.inForward(w) && (e.awaitsData(int(w.Rows[0]), -1, w.Cost) || e.grewWithWork(w)) || e.lastByTurns(w) || e.waitsForRole(w) || e.beganWithRank(w)
	})
	if n := len(e.commonNodes(all)); n == 0 || n > 2 { // between two nodes it may be either, or what connects them
		// No node explains them: a group that is slow at the end of steps makes all its ranks late for the next.
		all = slices.DeleteFunc(all, func(w link.Slow) bool { return w.Sends() })
	}

	return all
}

// lateBy tells the rows for which others of their pipelines may wait in each of their calls, so that the quickest is no longer
// the wire's alone: somebody on their node is slow by itself, or they meet others inside their forward passes over a slow link.
func (e *Engine) lateBy(slow []link.Slow) func(r int32) bool {
	nodes, inside := map[int32]bool{}, map[int32]bool{}
	if !slices.ContainsFunc(slow, func(w link.Slow) bool { return w.Sends() }) {
		return func(int32) bool { return false } // nobody asks
	}

	for r, n := range e.layout.Node {
		nodes[n] = nodes[n] || e.inSome(func(t *sequential.Test) bool { return t.Active(r) })
	}

	for g, n := range e.home { // own time of a whole stage may be a wait for its wires
		nodes[n] = nodes[n] || n >= 0 && (e.alone[compute].Active(g) || e.alone[loading].Active(g))
	}

	for _, w := range slow {
		for _, r := range w.Rows {
			inside[r] = inside[r] || !w.Sends() && e.inForward(w)
		}
	}

	return func(r int32) bool { return nodes[e.layout.Node[r]] || inside[r] }
}

// beganWithRank reports whether a group became slow when a rank did that is on no member's node, and loses as much: some
// members wait for it in their pipelines, so they are late by turns, from bucket to bucket, and no time of theirs is the transfer alone.
func (e *Engine) beganWithRank(w link.Slow) bool {
	t := e.tracks[compute]
	for r, n := range e.layout.Node {
		if e.layout.Stages > 1 && t.Active(r) && !t.FromStart(r) && max(w.Since, t.FirstSlow(r))-min(w.Since, t.FirstSlow(r)) <= commonSteps &&
			linkLead*max(e.excess(r, compute, nil), e.excess(r, own, nil)) >= w.Cost && !slices.ContainsFunc(w.Rows, func(p int32) bool { return e.layout.Node[p] == n }) {
			return true
		}
	}

	return false
}

// lastByTurns reports whether ranks of a group on different nodes are slow by themselves, and not all since its
// link is: who of them comes last changes from bucket to bucket, so nobody's time in the group is
// the transfer alone. Inside forward passes one that is slow is enough: a group meets there many times a step.
func (e *Engine) lastByTurns(w link.Slow) bool {
	nodes, apart := map[int32]bool{}, false
	for _, r := range w.Rows {
		if t := e.tracks[own]; t.Active(int(r)) {
			nodes[e.layout.Node[r]] = true
			since := t.FirstSlow(int(r))
			apart = apart || max(since, w.Since)-min(since, w.Since) > threshold.Window
		}
	}

	return apart && len(nodes) > 1 || len(nodes) > 0 && e.inForward(w)
}

// grewWithWork reports whether a group that meets inside forward passes takes longer by no more than all computing
// does: its members are late by turns, for as much longer as there is more to do, so its shortest time holds waits.
func (e *Engine) grewWithWork(w link.Slow) bool {
	grown, since := e.level.Change(level.Compute)
	return grown >= w.Rise && since <= w.Since
}

// inForward reports whether a link is that of a group which meets inside the forward pass.
func (e *Engine) inForward(w link.Slow) bool {
	return len(w.Rows) > 0 && slices.ContainsFunc(frame.Inner[:], func(m frame.Metric) bool {
		g := e.groupOf(int(w.Rows[0]), m)
		return g != nil && g.Name == w.Name
	})
}

// onSlowLink reports whether row r is in a group whose link is slow, inside the forward
// pass where that is asked.
func (e *Engine) onSlowLink(r int, forward bool) bool {
	return slices.ContainsFunc(e.slowLinks(), func(w link.Slow) bool {
		return slices.Contains(w.Rows, int32(r)) && (!forward || e.inForward(w))
	})
}

// fabric reports whether all that is slow are groups of every rank. That is the network of the whole
// job, or what else its hosts do: none of its wires is set apart.
func (e *Engine) fabric(slow []link.Slow) bool {
	return len(slow) > 0 && !slices.ContainsFunc(slow, func(w link.Slow) bool { return len(w.Rows) < len(e.layout.Ranks) })
}

// commonNode is the one node that all slow groups have in common, -1 where there is none.
func (e *Engine) commonNode(slow []link.Slow) int32 {
	if common := e.commonNodes(slow); len(common) == 1 {
		return common[0]
	}

	return -1
}

// commonNodes are the nodes that all slow groups have in common.
func (e *Engine) commonNodes(slow []link.Slow) (common []int32) {
	for i, w := range slow {
		var here []int32
		for _, r := range w.Ends {
			if n := e.layout.Node[r]; n >= 0 && (i == 0 || slices.Contains(common, n)) && !slices.Contains(here, n) {
				here = append(here, n)
			}
		}

		common = here
	}

	return common
}
