package detect

import (
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// What slow links cost.

// linkCost is what the job would save as a share of step time were the transfers of slow groups as fast as they should be: what
// steps are longer since, where no rank is slow in its own work; else what is waited for them, the mean over the window. Where no step
// before is known, or steps hardly grew, it has two bounds. The upper one is what is waited, and more where ranks send slowly. The lower one is
// what steps grew by; of what always was so what is waited, or, where no collective ends a step for all, what no other stage works meanwhile.
func (e *Engine) linkCost(slow []link.Slow) (least, most float64) {
	if len(slow) == 0 {
		return 0, 0
	}

	share, all := e.waited(slow)
	grew := e.grewSinceLinks(slow)
	others := slices.ContainsFunc([]signal{compute, loading}, func(s signal) bool { return e.tracks[s].Any(e.tracks[s].Degraded) })
	switch {
	case grew != grew && e.layout.Stages > 1 && !e.allMeet(): // other stages work meanwhile where no collective ends a step for all
		sends, groups := byPipeline(slow)
		sent, _ := e.waited(sends)
		return min(share, max(sent, e.beyondPipeline(groups))), max(share, e.pipelined(slow))
	case grew != grew:
		return share, max(share, e.pipelined(slow))
	case grew < shownGrowth*share: // or since before it was told
		return min(share, max(0, grew)), share
	case !others:
		share = min(grew, wireShare*all/e.stepMedian)
	case !e.allMeet() || !slices.ContainsFunc(slow, func(w link.Slow) bool { return !w.Sends() }): // much may hide
		share = min(share, grew)
	}

	return share, share
}

// waited is the share of step time, over the window, and the most seconds a step that are waited for slow links.
func (e *Engine) waited(slow []link.Slow) (share, most float64) {
	gain, most := e.gains(slow)
	return e.costs.OverWindow(func(i int) float64 { return e.withoutLinks(i, gain, most) }), most
}

// byPipeline parts slow links into pipelines, whose ranks send to each other, and groups.
func byPipeline(slow []link.Slow) (sends, groups []link.Slow) {
	for _, w := range slow {
		if w.InPipeline() {
			sends = append(sends, w)
		} else {
			groups = append(groups, w)
		}
	}

	return sends, groups
}

// beyondPipeline is at least what slow groups of a pipeline's stages cost as a share of step time. With one forward and one backward pass in
// turn (1F1B) the k-th stage after the first ends k backward passes before it and begins the next step k forward passes after it, so that
// long nobody waits for it. Its own passes, those of the stages after it for one micro-batch and its transfer are at most
// a step, where stages are about equal.
func (e *Engine) beyondPipeline(slow []link.Slow) (share float64) {
	micro := e.costs.Micro()
	for _, w := range slow {
		at := slices.IndexFunc(w.Rows, func(r int32) bool { return e.layout.Role[r] >= 0 }) // one that is absent has none
		if at < 0 || micro == 0 {
			continue
		}

		k := e.layout.Roles[e.layout.Role[w.Rows[at]]].Stage
		passes := micro + e.layout.Stages - 1 - k
		share = max(share, (w.Cost-float64(k)*(e.stepMedian-w.Now)/float64(passes))/e.stepMedian-betweenPasses)
	}

	return share
}

// pipelined is at most what slow groups cost as a share of step time where ranks send slowly as well: these wait for a send
// and for what is sent back, and for each other's waits. 0 where none do.
func (e *Engine) pipelined(slow []link.Slow) float64 {
	sends, _ := byPipeline(e.links.Slow())
	if len(sends) == 0 {
		return 0
	}

	_, groups := byPipeline(slow)
	_, met := e.gains(groups)
	_, sent := e.gains(sends)
	return min(1, (met+2*sent)/e.stepMedian)
}

// grewSinceLinks is by what share of its time a step is longer since the first of the links is slow; NaN where none
// before are known.
func (e *Engine) grewSinceLinks(slow []link.Slow) float64 {
	since := slow[0].Since
	for _, w := range slow {
		since = min(since, w.Since)
	}

	return e.grownShare(since)
}

// withoutLinks is how much sooner the i-th step had ended without slow links, of which ranks gain that much and all
// is the most: as far as those ranks were the last to be done.
func (e *Engine) withoutLinks(i int, gain map[int32]float64, all float64) float64 {
	then := math.Inf(1) // how early the last rank had been
	for r, x := range e.early(i) {
		if x == x {
			then = min(then, x+gain[int32(r)])
		}
	}

	return robust.Finite(min(all, then), 0)
}

// early is by how many seconds each rank was done before the last one in the i-th step, NaN without a record: it waits as
// long for its replicas and for all at the end, and its step ends so long before the last.
func (e *Engine) early(i int) []float64 {
	out := make([]float64, e.n)
	waits := func(m frame.Metric, rows []int32) {
		v, least := e.recent.At(m, i), math.Inf(1)
		if v == nil {
			return
		}

		for _, r := range rows {
			if x := float64(v[r]); x == x {
				least = min(least, x)
			}
		}

		for _, r := range rows {
			out[r] += robust.Finite(float64(v[r])-least, 0)
		}
	}
	steps, longest := e.recent.At(frame.Step, i), 0.0
	for r := range out {
		if out[r] = math.NaN(); steps != nil {
			out[r] = -float64(steps[r])
			longest = max(longest, robust.Finite(-out[r], 0))
		}
	}

	for r := range out {
		out[r] += longest
	}

	waits(frame.Other, e.graph.All())
	for g := range e.layout.Groups {
		if x := &e.layout.Groups[g]; x.Metric() == frame.DP && x.Complete() {
			waits(frame.DP, x.Rows)
		}
	}

	return out
}

// allMeet reports whether all ranks meet in a step beside their groups of a dimension, as the norm of all gradients takes.
func (e *Engine) allMeet() bool {
	steps, others := e.recent.At(frame.Step, e.recent.Count-1), e.recent.At(frame.Other, e.recent.Count-1)
	if steps == nil || others == nil {
		return false
	}

	for r, x := range steps {
		if x == x && others[r] != others[r] {
			return false
		}
	}

	return true
}

// gains is by how many seconds a step each rank is done sooner without slow links, and the most. A rank's slow groups
// of one dimension are one transfer; those of several follow each other. What a rank does sooner in its forward passes, its pipeline
// does; where no collective of all ranks ends a step, so it does what a rank begins sooner.
func (e *Engine) gains(slow []link.Slow) (gain map[int32]float64, all float64) {
	byDim, met := map[string]map[int32]float64{}, e.allMeet()
	for _, w := range slow {
		if byDim[w.Dim] == nil {
			byDim[w.Dim] = map[int32]float64{}
		}

		rows := w.Rows
		if e.inForward(w) || !met {
			rows = slices.Clone(rows)
			for _, r := range w.Rows {
				if q := e.layout.Replica[r]; q >= 0 {
					rows = append(rows, e.layout.Replicas[q]...)
				}
			}
		}

		for _, r := range rows {
			byDim[w.Dim][r] = max(byDim[w.Dim][r], w.Cost)
		}
	}

	gain = map[int32]float64{}
	for _, dim := range slices.Sorted(maps.Keys(byDim)) { // sums of floats come out alike only in one order
		longest := 0.0
		for r, x := range byDim[dim] {
			gain[r] += x
			longest = max(longest, x)
		}

		all += longest
	}

	return gain, all
}
