package detect

import (
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// maybeWaited says that all may wait for a rank of which nothing is known, "" where they don't. A
// job has ranks that were not recorded, and is healthy all the same when the others hardly wait:
// who is slow keeps everybody waiting. Where even the one that waits least is in bare
// communication for long, that may be the wire, or the time until such a rank comes. One that
// is missing among many is hardly the slow one. In a pipeline everybody waits in its bubbles,
// which says nothing.
func (e *Engine) maybeWaited() string {
	if !e.live(frame.Exposed) || e.layout.Stages > 1 {
		return ""
	}

	least := math.Inf(1)
	for r := range e.layout.Ranks {
		if x := e.recent.Median(frame.Exposed, r, threshold.MinValid); x == x {
			if least = min(least, x); least < unrecordedShare*e.stepMedian {
				return "" // as a rule the first one
			}
		}
	}

	unknown, first := e.world()-len(e.layout.Ranks), -1
	for r, rank := range e.layout.Ranks {
		if !e.worked(r) {
			if unknown++; first < 0 {
				first = rank
			}
		}
	}

	if unknown <= 0 || float64(unknown) < unrecordedRanks*float64(e.world()) || math.IsInf(least, 1) {
		return ""
	}

	which := fmt.Sprintf("%d ranks are not recorded", unknown)
	switch {
	case unknown == 1 && first >= 0:
		which = fmt.Sprintf("rank %d is not recorded", first)
	case unknown == 1:
		which = "one rank is not recorded"
	}

	return fmt.Sprintf("%s, and all others are in bare communication for %.0f %% of a step or more: they may wait for it, and nothing tells what it does meanwhile",
		which, math.Floor(100*least/e.stepMedian))
}

// worked reports whether a rank's own work was measured in any of the last steps.
func (e *Engine) worked(r int) bool {
	for _, m := range [...]frame.Metric{frame.Self, frame.FP} {
		if x := e.recent.Median(m, r, threshold.MinValid); x == x {
			return true
		}
	}

	return false
}
