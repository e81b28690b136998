package cost

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// UnevenLanes is what the job would save as a share of step time were all lanes but
// those to skip through when their mean is: what they wait for the last of them. Beside
// it in how many steps of the window each of them was the last.
func (b *Book) UnevenLanes(skip []bool) (impact float64, last []int) {
	last = make([]int, b.graph.Lanes())
	impact = b.OverWindow(func(i int) float64 {
		sum, n, at := 0.0, 0, -1
		for lane, x := range b.ends {
			if skip[lane] {
				continue
			}

			if sum, n = sum+x, n+1; at < 0 || x > b.ends[at] {
				at = lane
			}
		}

		if at < 0 {
			return 0
		}

		last[at]++
		return b.ends[at] - sum/float64(n)
	})
	return impact, last
}

// LastLane is what the job would save as a share of step time were that lane through with the last of the others.
func (b *Book) LastLane(lane int) float64 {
	return b.OverWindow(func(int) float64 {
		others := slices.Delete(slices.Clone(b.ends), lane, lane+1)
		return max(0, b.ends[lane]-slices.Max(others))
	})
}

// UnevenStages is what the job would save were all stages of a pipeline as long; bound is that
// from the stages' times, for where groups aren't known.
func (b *Book) UnevenStages(bound float64) float64 {
	if !b.graph.Known() {
		return min(bound, b.OverWindow(func(int) float64 { return math.Inf(1) }))
	}

	return b.OverWindow(func(i int) float64 {
		b.stepWork(i, b.graph.All(), false)
		now, then := slices.Max(b.plain), math.Inf(-1)
		for lane := range b.plain {
			then = max(then, b.graph.Even(lane, &b.did))
		}

		return now - then
	})
}

// OverWindow is the mean over the window of what a step had saved, no more than the
// ranks wait in it, as a share of step time.
func (b *Book) OverWindow(saved func(i int) float64) float64 {
	if b.graph.Lanes() == 0 {
		return 0
	}

	defer b.learnedHere()()
	sum, time := 0.0, 0.0
	for i := max(0, b.recent.Count-threshold.Window); i < b.recent.Count; i++ {
		t := float64(b.recent.Times[i%threshold.Window])
		if !(t > 0) {
			continue
		}

		b.play(i, false)
		x := min(t, max(0, saved(i)))
		if mid, _ := b.othersWait(i, nil); mid == mid {
			x = min(x, mid)
		}

		sum, time = sum+x*float64(b.recent.Steps[i%threshold.Window]), time+b.recent.Spans[i%threshold.Window]
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
// was no earlier than its work says. Where waits are missing from the record, they show nothing.
func (b *Book) late(i int) {
	b.plain = append(b.plain[:0], b.ends...)
	if b.layout.Stages < 2 || len(b.ends) < 2 || !b.graph.Known() || b.habits.Patchy {
		return
	}

	dp, other := b.recent.At(frame.DP, i), b.recent.At(frame.Other, i)
	if dp == nil {
		return
	}

	least := math.Inf(1)
	b.waits = b.waits[:0]
	for lane := range b.ends {
		x := math.NaN()
		for _, r := range b.graph.First(lane) {
			w := float64(dp[r])
			if other != nil {
				w += robust.Finite(float64(other[r]), 0)
			}

			if w == w && !(x <= w) {
				x = w
			}
		}

		b.waits = append(b.waits, x)
		if x == x {
			least = min(least, x)
		}
	}

	var shift []float64 // of the lanes that show it against the play
	for lane, x := range b.waits {
		if x == x {
			shift = append(shift, least-x-b.plain[lane])
		}
	}

	if 2*len(shift) < len(b.ends) {
		return
	}

	usual := robust.Median64(shift)
	last := math.Inf(1)
	if !slices.Contains(b.habits.Expected, true) {
		last = slices.Max(b.plain)
	}

	for lane, x := range b.waits {
		if x == x {
			b.ends[lane] = max(least-x, b.plain[lane]-last)
		} else {
			b.ends[lane] += usual
		}
	}
}
