package link

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// gustiness is how long the gusts of congestion of a job last, the sums of their lengths and of the
// squares, and the highest one's mean rise, a logarithm. The mean over steps, not over gusts,
// counts, for single steps of jitter are many and short.
type gustiness struct{ Steps, Squares, Height float64 }

// add counts a gust of k steps, once it is over: one that lasts may be a slow link, or what others
// see of it. sum is what they were above the usual by, in logarithms. A step or two are jitter, of
// which there is so much that the mean would tell of nothing else.
func (g *gustiness) add(k uint16, sum float32) {
	if k < leastGust {
		return
	}

	n := float64(k)
	g.Steps += n
	g.Squares += n * n
	g.Height = max(g.Height, float64(sum)/n)
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

// toNext is the spread of the transfers in buf from one step to the next: a gust lasts, so its many
// steps hardly are in it, while they are half of what a window differs by.
func (w *Watch) toNext() float32 {
	var steps [linkWindow]float32
	for i, x := range w.buf[1:] {
		steps[i] = (x - w.buf[i]) / math.Sqrt2
	}

	return robust.Spread(steps[:len(w.buf)-1])
}

// remember takes a step of group g that leaves the window, rise above its past, high if that is
// above half a rise of a slow link. What may be one is no gust before it ends.
func (w *Watch) remember(g int, rise float32, high bool) {
	if high && w.gusting[g] < mostPasses*threshold.EvaluateEvery { // no test waits longer
		w.gusting[g]++
		w.risen[g] += rise
	}

	if w.slow[g] || w.passes[g] > 0 {
		return
	}

	gust := float32(0)
	if high {
		gust = 1
	} else if w.gusting[g] > 0 {
		w.gust.add(w.gusting[g], w.risen[g])
		w.gusting[g], w.risen[g] = 0, 0
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

	if float64(w.rise[g]) >= gustHeights*w.gust.Height {
		return need // no gust was like it
	}

	return max(need, w.gust.passes()) // the next gust may be its first
}
