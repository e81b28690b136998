package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/cost"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/saves"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fillCosts says what each culprit costs, and what all cost together: at most with those who may be culprits, too.
func (e *Engine) fillCosts(v *verdict.Verdict, culprits, mates []candidate) {
	faults := e.blame(culprits)
	p := e.costs.Price(faults)
	set := func(least, most *float64, a, b float64) {
		*least, *most = round4(robust.Finite(a, 0)), 0
		if b = robust.Finite(b, 0); round4(b) > *least {
			*most = math.Ceil(b*1e4) / 1e4 // it is a bound
		}
	}
	least, most := 0.0, 0.0
	if len(faults) > 0 {
		least, most = p[""].Bounds()
		if len(mates) > 0 {
			_, b := e.costs.PriceNow(e.blame(slices.Concat(culprits, mates))).Bounds()
			most = max(most, b)
		}
	}

	least, most = e.withSaves(least, most, "")
	passing, passingMost := 0.0, 0.0 // nodes that come and go seldom meet
	for i := range v.Nodes {
		n := &v.Nodes[i]
		a, b := n.JobImpact, max(n.JobImpact, n.JobImpactMax)
		switch {
		case n.Cause == verdict.Communication || n.State == verdict.Recovered || n.State == verdict.Suspect:
		default:
			lasts := p[n.Node].Time > 0
			if x, y := e.costOf(p, n.Node); y > 0 || lasts {
				a, b = x, y
			}

			if x, y, ok := e.costs.CameAndWent(n.Node); ok && !lasts && n.State == verdict.Intermittent {
				a, b = x, y
			}
		}

		set(&n.JobImpact, &n.JobImpactMax, a, b)
		switch n.State {
		case verdict.Degraded:
			least, most = max(least, a), max(most, b)
		case verdict.Intermittent:
			passing, passingMost = passing+a, passingMost+b
		}
	}

	if slow := e.slowLinks(); !e.fabric(slow) {
		x := e.linkCost(slow)
		least, most = max(least, x), max(most, x)
	}

	least, most = min(1, least+passing), min(1, most+passingMost)
	set(&v.JobImpact, &v.JobImpactMax, least, most)
}

// linkCost is what the job would save as a share of step time were the transfers of
// slow groups as fast as they should be: the mean over the window.
func (e *Engine) linkCost(slow []link.Slow) float64 {
	if len(slow) == 0 {
		return 0
	}

	return max(e.costs.OverWindow(func(i int) float64 { return e.withoutLinks(i, slow) }), e.grewWithLinks(slow))
}

// grewWithLinks is by what share of its time a step is longer since one of the links is slow, no more than its
// transfers are, where no rank is. Where the pipeline waits for a link and no range tells, nobody is seen to be early.
func (e *Engine) grewWithLinks(slow []link.Slow) float64 {
	if e.inSome(func(t *sequential.Test) bool { return t.Any(t.Degraded) }) {
		return 0
	}

	most := 0.0
	for _, w := range slow {
		most = max(most, min(e.grewSince(w.Since), w.Cost))
	}

	return most / e.stepMedian
}

// withoutLinks is how much sooner the i-th step had ended: as far as the ranks of the
// slow groups were the last to be done. How early a rank was shows in what it waits
// for all at the end, and in how long before the last its step ended.
func (e *Engine) withoutLinks(i int, slow []link.Slow) float64 {
	at := func(m frame.Metric, r int) float64 {
		if v := e.recent.At(m, i); v != nil {
			return float64(v[r])
		}

		return math.NaN()
	}
	least, longest := math.Inf(1), 0.0
	for r := range e.n {
		if x := at(frame.Other, r); x == x {
			least = min(least, x)
		}

		if x := at(frame.Step, r); x == x {
			longest = max(longest, x)
		}
	}

	gain := map[int32]float64{}
	all := 0.0
	for _, w := range slow {
		for _, r := range w.Rows {
			gain[r] = max(gain[r], w.Cost)
		}

		all = max(all, w.Cost)
	}

	then := math.Inf(1) // how early the last rank had been
	for r := range e.n {
		x := at(frame.Step, r)
		if x != x {
			continue
		}

		early := longest - x
		if o := at(frame.Other, r); o == o {
			early += o - least
		}

		then = min(then, early+gain[int32(r)])
	}

	return robust.Finite(min(all, then), 0)
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
