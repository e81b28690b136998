package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/cost"
	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/saves"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fillCosts says what each culprit costs, and what all cost together: at most with those who may be culprits, too.
func (e *Engine) fillCosts(v *verdict.Verdict, culprits, mates []candidate) {
	faults := e.blame(culprits)
	p := e.costs.Price(faults)
	least, most, withMates := 0.0, 0.0, 0.0
	if len(faults) > 0 {
		least, most = p[""].Bounds()
		if len(mates) > 0 { // they may wait for any of the culprits, for all that they take longer
			_, withMates = e.costs.PriceNow(e.blame(slices.Concat(culprits, mates))).Bounds()
			most = max(most, withMates)
		}
	}

	first := int64(math.MaxInt64)
	for i := range v.Nodes {
		if v.Nodes[i].State == verdict.Degraded {
			first = min(first, v.Nodes[i].SinceStep)
		}
	}

	most = max(least, most)
	least = e.atLeastGrown(e.atMostGrown(least, first, ""), most, first, faults)
	least, most = e.withSaves(least, max(least, most), "")
	passing, passingMost := 0.0, 0.0 // nodes that come and go seldom meet
	for i := range v.Nodes {
		n := &v.Nodes[i]
		a, b := n.JobImpact, max(n.JobImpact, n.JobImpactMax)
		switch {
		case n.Cause == verdict.Communication || n.State == verdict.Recovered || n.State == verdict.Suspect:
		default:
			lasts := p[n.Node].Time > 0
			if x, y := e.costOf(p, n.Node); y > 0 || lasts {
				a = e.atLeastGrown(e.atMostGrown(x, n.SinceStep, n.Node), y, n.SinceStep, faults)
				b = max(a, x, y, withMates)
			}

			if x, y, ok := e.costs.CameAndWent(n.Node); ok && !lasts && n.State == verdict.Intermittent {
				a, b = x, y
			}
		}

		setCost(&n.JobImpact, &n.JobImpactMax, a, b)
		switch n.State {
		case verdict.Degraded:
			least, most = max(least, a), max(most, b)
		case verdict.Intermittent:
			passing, passingMost = passing+a, passingMost+b
		}
	}

	if slow := e.slowLinks(); !e.fabric(slow) {
		a, b := e.linkCost(slow)
		least, most = max(least, a), max(most, b)
	}

	least, most = min(1, least+passing), min(1, most+passingMost)
	setCost(&v.JobImpact, &v.JobImpactMax, least, most)
}

// setCost states a cost: its lower bound, and the upper one where that is more.
func setCost(least, most *float64, a, b float64) {
	*least, *most = round4(robust.Finite(a, 0)), 0
	if b = robust.Finite(b, 0); round4(b) > *least {
		*most = math.Ceil(b*1e4) / 1e4 // it is a bound
	}
}

// atMostGrown is what a node costs at least, all of them for "", but no more than steps are longer since, where own time is
// estimated: gradients that are reduced beside a backward pass, or parameters that are gathered ahead, count as waits, of those who
// wait least too. Of what was so from the start and gathers ahead the passes tell: they hold such waits on all ranks.
func (e *Engine) atMostGrown(cost float64, since int64, node string) float64 {
	grew := e.grownShare(since)
	switch {
	case (e.estimated || e.exposure.Estimates()) && grew >= shownGrowth*cost:
		return min(cost, grew)
	case grew != grew && e.exposure.Estimates():
		passes := 0.0
		for r := range e.n {
			if node == "" || e.nodeOf(r) == node {
				passes = max(passes, robust.Finite(e.excess(r, compute, nil), 0))
			}
		}

		return min(cost, passes/e.stepMedian)
	}

	return cost
}

// atLeastGrown is what a single node costs at least, but no less than steps are longer since, beyond what all ranks compute longer, where records
// of Communication are missing: whoever lacks them looks as busy as the culprit, so a replay saves too little. most is its upper bound.
func (e *Engine) atLeastGrown(least, most float64, since int64, faults []cost.Fault) float64 {
	if !e.exposure.Loses() || slices.ContainsFunc(faults, func(f cost.Fault) bool { return f.Node != faults[0].Node }) || len(e.slowLinks()) > 0 {
		return least
	}

	grew := e.level.Since(level.Step, since) - max(0, robust.Finite(e.level.Since(level.Compute, since), 0))
	return max(least, min(most, robust.Finite(-math.Expm1(-grew), 0)))
}

// grownShare is by what share of its time a step is longer since one than before it; NaN where too few before are known.
func (e *Engine) grownShare(since int64) float64 {
	return -math.Expm1(-e.level.Since(level.Step, since))
}

// costOf is what the node costs, the slow saves of its ranks included.
func (e *Engine) costOf(p map[string]cost.Account, node string) (least, most float64) {
	least, most = p[node].Bounds()
	return e.withSaves(least, most, node)
}

// withSaves adds what the slow saves of a node cost, of all together for "".
func (e *Engine) withSaves(least, most float64, node string) (float64, float64) {
	a, b := e.saver.Cost(node, e.now())
	return min(1, least+a), min(1, most+b)
}

// now is what the saves ask of the job.
func (e *Engine) now() saves.Now {
	return saves.Now{Seconds: e.costs.Clock() + e.recent.Pause, Waits: e.graph.Known() && e.measuredAt[frame.Exposed] > 0}
}
