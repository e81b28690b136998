package replay

import "slices"

// clock plays the schedule of one lane.
type clock struct {
	stages         int
	passes, before []float64 // per stage, seconds in a step
	fore, back     []float64 // per stage and micro-batch: when its pass was done, notYet before
	at             []float64 // per stage: free from then on
	next           []int     // per stage: passes done
}

// newClock is a clock for lanes of at most so many stages; its lists are used for one lane after the other.
func newClock(stages int) clock {
	return clock{stages: stages, passes: make([]float64, stages), before: make([]float64, stages), at: make([]float64, stages), next: make([]int, stages)}
}

// notYet stands for when a pass was done that is not done: times are from 0 on.
const notYet = -1

// steady is how many micro-batches a stage are played one by one: after them each
// takes as long as the slowest stage needs for it.
const steady = 4

// pipeline returns when all stages are through with micro equal micro-batches.
func (c *clock) pipeline(forward float64, micro int) float64 {
	if few := steady * c.stages; micro > few {
		return c.play(forward, micro, few) + slices.Max(c.passes)/float64(micro)*float64(micro-few)
	}

	return c.play(forward, micro, micro)
}

// play plays m micro-batches, each the micro-th part of the work.
func (c *clock) play(forward float64, micro, m int) float64 {
	s := c.stages
	if len(c.fore) < s*m {
		c.fore, c.back = make([]float64, s*m), make([]float64, s*m)
	}

	for i := range s * m {
		c.fore[i], c.back[i] = notYet, notYet
	}

	copy(c.at, c.before)
	clear(c.next)
	for left := 2 * s * m; left > 0; {
		for p := range s {
			left -= c.advance(p, m, forward, c.passes[p]/float64(micro))
		}
	}

	return slices.Max(c.at)
}

// advance plays the passes of stage p that need nothing that is not done yet, and
// returns how many: forwards until the pipeline is full, then one of each in turn,
// then the backwards that are left.
func (c *clock) advance(p, m int, forward, work float64) int {
	warm, done := min(c.stages-p-1, m), 0
	for c.next[p] < 2*m {
		// Pass i of the stage: the first warm are forwards 0 to warm-1, then forward warm+j and backward j in
		// turn, and the last warm are backwards.
		k, backward := c.next[p], false
		switch i := k - warm; {
		case i < 0:
		case i < 2*(m-warm):
			backward = i%2 == 1
			if k = warm + i/2; backward {
				k = i / 2
			}
		default:
			backward, k = true, k-m
		}

		from, took := 0.0, work*forward
		if backward {
			took = work - took
		}

		// A forward needs the stage before it, a backward the one behind it.
		switch {
		case !backward && p > 0:
			from = c.fore[(p-1)*m+k]
		case backward && p < c.stages-1:
			from = c.back[(p+1)*m+k]
		}

		if from == notYet {
			return done
		}

		c.at[p] = max(c.at[p], from) + took
		if backward {
			c.back[p*m+k] = c.at[p]
		} else {
			c.fore[p*m+k] = c.at[p]
		}

		c.next[p]++
		done++
	}

	return done
}
