package detect

import (
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// waitedFor says for whom others wait unseen, "" where they don't. Communication inside a
// compiled graph has a time but no wait: forward passes of all ranks are as long as that of
// the slowest, and nobody's own time is longer. But whoever comes last to an operation is in
// it for the shortest time. Where that is one rank by far, nobody can say that all is well.
func (e *Engine) waitedFor() string {
	if !e.live(frame.Comm) || !e.live(frame.Exposed) {
		return ""
	}

	least := float32(waitedShare * e.stepMedian)
	for g := range e.layout.Roles {
		rows := e.layout.Roles[g].Rows
		late := e.lateNow(rows, least/2)
		if len(late) == 0 {
			continue
		}

		mid, spread, n := middle(rows, e.overlapped)
		if n <= waitingPeers {
			continue
		}

		for _, r := range late {
			if less := mid - e.overlapped(r); less >= least && less >= waitedSigmas*spread {
				return fmt.Sprintf("rank %d is %.1f ms a step less in communication than its peers, %.0f %% of a step: they may wait for it where no wait is recorded, inside a compiled graph say, and nothing tells what it does meanwhile",
					e.layout.Ranks[r], 1e3*less, math.Round(100*float64(less)/e.stepMedian))
			}
		}
	}

	return ""
}

// overlapped is a row's communication beyond its recorded waits, in seconds a step: the median
// over the window.
func (e *Engine) overlapped(r int32) float32 {
	return float32(e.recent.Median(frame.Comm, int(r), threshold.Window) - e.recent.Median(frame.Exposed, int(r), threshold.Window))
}

// lateNow lists the rows that have so many seconds less of it than the others in some of the
// last steps: it is cheap, and there is hardly ever one.
func (e *Engine) lateNow(rows []int32, least float32) (late []int32) {
	exposed := e.recent.Latest(frame.Exposed, waitedSteps)
	seen := map[int32]bool{}
	for k, comm := range e.recent.Latest(frame.Comm, waitedSteps) {
		if k >= len(exposed) {
			break
		}

		now := func(r int32) float32 { return comm[r] - exposed[k][r] }
		mid, _, _ := middle(rows, now)
		for _, r := range rows {
			if mid-now(r) >= least && !seen[r] {
				seen[r] = true
				late = append(late, r)
			}
		}
	}

	return late
}

// middle is the median over some of the rows, how they spread about it, and how many they are.
func middle(rows []int32, of func(int32) float32) (mid, spread float32, n int) {
	var v []float32
	for k := 0; k < len(rows); k += len(rows)/robust.SampleSize + 1 {
		if x := of(rows[k]); x == x {
			v = append(v, x)
		}
	}

	mid = robust.Median(v)
	return mid, robust.SpreadAbout(v, mid), len(v)
}
