package link

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// gustiness is how long the gusts of congestion of a job last: the sums of their
// lengths and of the squares. The mean over steps, not over gusts, counts, for
// single steps of jitter are many and short.
type gustiness struct{ Steps, Squares float64 }

// add counts the k-th step of a gust.
func (g *gustiness) add(k uint16) {
	g.Steps++
	g.Squares += 2*float64(k) - 1
}

// passes is how many tests in a row a gust hardly ever lasts, as gusts were so far. Lengths are about
// exponential, so their mean over steps is twice the mean, which makes steps over mean the number of
// gusts that tell it. The next one outlasts x with probability (steps/(steps+x))^number: Lomax' law,
// what is left of an exponential whose mean is known from so few.
func (g *gustiness) passes() uint8 {
	if g.Steps < fewGusts {
		return 0
	}

	number := 2 * g.Steps * g.Steps / g.Squares
	return uint8(min(mostPasses, math.Ceil(g.Steps*math.Expm1(gustOdds/number)/threshold.EvaluateEvery)))
}

// remember takes a step of group g that leaves the window, high if it is above half a rise.
// What may be a slow link is kept until it ends: then it was a gust.
func (w *Watch) remember(g int, high bool) {
	if w.slow[g] || w.passes[g] > 0 {
		if high {
			w.lasting[g] = min(w.lasting[g]+1, mostPasses*threshold.EvaluateEvery) // no test waits longer
		}

		return
	}

	for ; w.lasting[g] > 0; w.lasting[g]-- {
		w.gusting[g]++
		w.gust.add(w.gusting[g])
	}

	gust := float32(0)
	if high {
		gust = 1
		w.gusting[g]++
		w.gust.add(w.gusting[g])
	} else {
		w.gusting[g] = 0
	}

	w.gusts[g] += (gust - w.gusts[g]) / threshold.Memory
}

// lasts reports whether most of the last window is above half the rise: a burst of
// a dozen steps moves a median, but it is congestion.
func (w *Watch) lasts(g int, half float32) bool {
	n := w.last(g, threshold.Window)
	slow := 0
	for _, x := range w.buf {
		if x > half {
			slow++
		}
	}

	return float64(slow) >= threshold.SlowShare*float64(n)
}

// need is how many tests in a row tell that group g is slow.
func (w *Watch) need(g int) uint8 {
	need := uint8(threshold.Confirmations)
	if len(w.byDim[w.groups[g].Class]) < minClass {
		need = lonePasses
	}

	if w.gusts[g] >= linkGusts {
		need = gustyPasses
	}

	return max(need, w.gust.passes()) // the next gust may be its first
}
