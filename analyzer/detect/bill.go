package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fillCosts says what each culprit costs, and what all cost together.
func (e *Engine) fillCosts(v *verdict.Verdict, culprits []candidate) {
	faults := e.blame(culprits)
	p := e.price(faults)
	set := func(least, most *float64, a, b float64) {
		*least, *most = round4(robust.Finite(a, 0)), 0
		if x := round4(robust.Finite(b, 0)); x > *least {
			*most = x
		}
	}
	least, most := 0.0, 0.0
	if len(faults) > 0 {
		least, most = p.all.bounds()
	}

	least, most = e.withSaves(least, most, "")
	passing, passingMost := 0.0, 0.0 // nodes that come and go seldom meet
	for i := range v.Nodes {
		n := &v.Nodes[i]
		a, b := n.JobImpact, max(n.JobImpact, n.JobImpactMax)
		switch {
		case n.Cause == verdict.Communication || n.State == verdict.Recovered || n.State == verdict.Suspect:
		case n.State == verdict.Intermittent && e.ledger.Spells[n.Node] != nil && p.nodes[n.Node].Time == 0:
			a, b = e.cameAndWent(e.ledger.Spells[n.Node])
		default:
			if x, y := e.costOf(&p, n.Node); y > 0 || p.nodes[n.Node].Time > 0 {
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

	x := e.linkCost(e.links.Slow())
	least, most = max(least, x), max(most, x)
	least, most = min(1, least+passing), min(1, most+passingMost)
	set(&v.JobImpact, &v.JobImpactMax, least, most)
}

// linkCost is what the job would save as a share of step time were the transfers of
// slow groups as fast as they should be: the mean over the window.
func (e *Engine) linkCost(slow []link.Slow) float64 {
	if len(slow) == 0 {
		return 0
	}

	return e.overWindow(func(i int) float64 { return e.withoutLinks(i, slow) })
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

// unevenLanes is what the job would save as a share of step time were all lanes but
// those to skip through when their mean is: what they wait for the last of them. Beside
// it in how many steps of the window each of them was the last.
func (e *Engine) unevenLanes(skip []bool) (impact float64, last []int) {
	last = make([]int, e.graph.Lanes())
	impact = e.overWindow(func(i int) float64 {
		sum, n, at := 0.0, 0, -1
		for l, x := range e.ends {
			if skip[l] {
				continue
			}

			if sum, n = sum+x, n+1; at < 0 || x > e.ends[at] {
				at = l
			}
		}

		if at < 0 {
			return 0
		}

		last[at]++
		return e.ends[at] - sum/float64(n)
	})
	return impact, last
}

// unevenStages is the same were all stages of a pipeline as long; bound is that
// from the stages' times, for where groups aren't known.
func (e *Engine) unevenStages(bound float64) float64 {
	if !e.graph.Known() {
		bound = min(bound, e.overWindow(func(i int) float64 { return math.Inf(1) }))
		return bound
	}

	return e.overWindow(func(i int) float64 {
		e.stepWork(i, e.graph.All(), false)
		now, then := slices.Max(e.plain), math.Inf(-1)
		for l := range e.plain {
			then = max(then, e.graph.Even(l, &e.did))
		}

		return now - then
	})
}

// overWindow is the mean over the window of what a step had saved, no more than the
// ranks wait in it, as a share of step time.
func (e *Engine) overWindow(saved func(i int) float64) float64 {
	if e.graph.Lanes() == 0 {
		return 0
	}

	if old := e.ledger.Habits; !e.knowsHabits() {
		e.ledger.Habits = e.habits()
		defer func() { e.ledger.Habits = old }()
	}

	sum, time := 0.0, 0.0
	for i := max(0, e.recent.Count-threshold.Window); i < e.recent.Count; i++ {
		t := float64(e.recent.Times[i%threshold.Window])
		if !(t > 0) {
			continue
		}

		e.play(i, false)
		x := min(t, max(0, saved(i)))
		if mid, _ := e.othersWait(i, nil); mid == mid {
			x = min(x, mid)
		}

		sum, time = sum+x*float64(e.recent.Steps[i%threshold.Window]), time+e.recent.Spans[i%threshold.Window]
	}

	if time <= 0 {
		return 0
	}

	return min(1, sum/time)
}

// late replaces when the lanes were through in the play by when they were in the
// step, where a pipeline's ranks of the first stage, which are through last, show it:
// who waits less for the others at the step's end came later. Buckets of gradients that
// are reduced beside the backward pass wait for the last lane one after the other, and
// their times add up to more than a lane was early: where all own time was measured it
// was no earlier than its work says.
func (e *Engine) late(i int) {
	e.plain = append(e.plain[:0], e.ends...)
	if e.layout.Stages < 2 || len(e.ends) < 2 || !e.graph.Known() {
		return
	}

	dp, other := e.recent.At(frame.DP, i), e.recent.At(frame.Other, i)
	if dp == nil {
		return
	}

	least := math.Inf(1)
	e.waits = e.waits[:0]
	for l := range e.ends {
		x := math.NaN()
		for _, r := range e.graph.First(l) {
			w := float64(dp[r])
			if other != nil {
				w += robust.Finite(float64(other[r]), 0)
			}

			if w == w && !(x <= w) {
				x = w
			}
		}

		e.waits = append(e.waits, x)
		if x == x {
			least = min(least, x)
		}
	}

	var shift []float64 // of the lanes that show it against the play
	for l, x := range e.waits {
		if x == x {
			shift = append(shift, least-x-e.plain[l])
		}
	}

	if 2*len(shift) < len(e.ends) {
		return
	}

	usual := robust.Median64(shift)
	last := math.Inf(1)
	if !slices.Contains(e.ledger.Habits.Expected, true) {
		last = slices.Max(e.plain)
	}

	for l, x := range e.waits {
		if x == x {
			e.ends[l] = max(least-x, e.plain[l]-last)
		} else {
			e.ends[l] += usual
		}
	}
}
