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
// it for the shortest time. Where that is one rank by far, nobody can say that all is well. In
// a pipeline it is no sign: who is first in its schedule waits beside others' work.
func (e *Engine) waitedFor() string {
	if !e.live(frame.Comm) || !e.live(frame.Exposed) || e.layout.Stages > 1 {
		return ""
	}

	least := float32(waitedShare * e.stepMedian)
	for g := range e.layout.Roles {
		rows := e.layout.Roles[g].Rows
		if late, _ := e.lateIn(rows, waitedSteps, least/2); len(late) == 0 {
			continue
		}

		mid, spread, n := middle(rows, e.overlapped)
		if n <= waitingPeers {
			continue
		}

		late, steps := e.lateIn(rows, threshold.Window, least/2)
		for _, r := range rows {
			less := mid - e.overlapped(r)
			if less >= least && less >= waitedSigmas*spread && float64(late[r]) >= waitedOften*float64(steps) {
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

// lateIn counts, by row, in how many of the last steps it has so many seconds less of it than
// the others, and those steps. There is hardly ever one.
func (e *Engine) lateIn(rows []int32, last int, least float32) (late map[int32]int, steps int) {
	exposed := e.recent.Latest(frame.Exposed, last)
	for k, comm := range e.recent.Latest(frame.Comm, last) {
		if k >= len(exposed) {
			break
		}

		now := func(r int32) float32 { return comm[r] - exposed[k][r] }
		mid, _, _ := middle(rows, now)
		steps++
		for _, r := range rows {
			if mid-now(r) >= least {
				if late == nil {
					late = map[int32]int{}
				}

				late[r]++
			}
		}
	}

	return late, steps
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
