package detect

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// hidden says what may hide a culprit, "" where nothing does: a light recording, steps that grew
// without a reason, a link that nobody can judge, and where nobody is found (who is, is waited
// for) a rank that may wait for one that is missing, or somebody for whom others wait unseen.
func (e *Engine) hidden(found bool) string {
	missing, who := e.missing()
	if why := cmp.Or(e.hostTimes(), e.unprovenAlone(found), e.unexplained(missing, who, found), e.links.Unjudged()); why != "" || found {
		return why
	}

	if why := cmp.Or(e.unproven(), e.lockstep(), e.loadsAlone()); why != "" || !e.live(frame.Exposed) || e.layout.Stages > 1 {
		return why // in a pipeline everybody waits in its bubbles, which says nothing
	}

	return cmp.Or(e.waitedFor(), e.maybeWaited(missing, who))
}

// moreWords is what to do where a light recording hides something.
const moreWords = "; laggard trace on --words CommunicationOperator"

// light reports whether no own time is recorded, for Communication is not.
func (e *Engine) light() bool { return !e.live(frame.Self) && e.seen[frame.FP] }

// hostTimes says that a light recording times the host alone: forward times of a device tell a
// slow device, but those of a host only that the device was given work.
func (e *Engine) hostTimes() string {
	if !e.light() || !e.hostOnly {
		return ""
	}

	return "no Communication is recorded, and forward passes with host times only: of work on an accelerator that is the time to enqueue it, so a slow rank may be hidden" + moreWords
}

// unexplained says that steps became longer, and that nothing of what is recorded did by as
// much: where no own time is recorded, or nothing of some ranks, that may hold the reason. Where all
// is recorded a change of the whole job says so, congestion that passes makes none, and one replica that
// has more work makes steps longer by as much.
func (e *Engine) unexplained(missing int, who string, found bool) string {
	light := e.light()
	if !light && found {
		return ""
	}

	least := math.Log1p(e.cfg.MinImpact)
	if !light && missing == 0 {
		if e.links.Busy() {
			return "" // congestion
		}

		least = math.Log1p(level.Rise)
	}

	step, since := e.level.Change(level.Step)
	if step < least {
		return ""
	}

	for _, kind := range [...]int{level.Compute, level.Own, level.Load, level.Link} {
		if rise, _ := e.grew(kind); rise >= identityShare*step {
			return ""
		}
	}

	if !light && missing == 0 && e.apart() >= identityShare*step {
		return ""
	}

	why := fmt.Sprintf("since step %d a step takes %.1f %% longer than before, and what is recorded does not say why", since, 100*math.Expm1(step))
	switch {
	case light:
		return why + moreWords
	case missing > 0:
		return why + ": " + who
	case !e.ownIsWork():
		return why + ": forward passes have host times only, of work on an accelerator the time to enqueue it, and own time that grows on all ranks alike may be their wait for one of them; record the device's times of forward passes"
	}

	return why
}

// ownIsWork reports whether own time that grows on all ranks alike is work of all of them: where the host alone is timed, it
// may stand in any of them until the device of the slowest is done.
func (e *Engine) ownIsWork() bool { return !e.hostOnly || !e.seen[frame.FP] }

// unproven says that a rank has been slow in its own time for long, and that some with which it works
// are not recorded: it may only wait for one of them where nothing tells. Or that all are recorded, and
// nothing proves that it is late itself, though no noise makes so much on so many of a node's ranks.
func (e *Engine) unproven() string {
	for _, c := range e.candidates() {
		if !c.onlyOwn() || e.moreWork(&c) || e.givenMore(&c) {
			continue
		}

		who := fmt.Sprintf("since step %d rank %d takes %.1f %% longer than its peers", c.since, e.layout.Ranks[c.row], 100*math.Expm1(c.effect))
		if q := e.layout.Replica[c.row]; q >= 0 && !e.recorded(q) {
			return who + ", waits aside, and ranks of its pipeline are not recorded: it is slow, or waits for one of them where nothing tells"
		}

		if !e.tracks[own].Habitual(c.row) && c.z*math.Sqrt(e.together(c.row)) >= unprovenAlarm && c.excess >= e.cfg.MinImpact*e.stepMedian {
			return who + ", and than it did, outside of what is recorded, and nothing proves that others wait for it: it is slow, or waits itself where nothing tells"
		}
	}

	return ""
}

// unprovenAlone says that stages on one node each have more own time beside the others than they had, and that nothing proves
// that these wait for them: two have as much more since the same step, say.
func (e *Engine) unprovenAlone(found bool) string {
	if found || e.links.Busy() {
		return ""
	}

	t := e.alone[own]
	var who []string
	since, most := int64(math.MaxInt64), 0.0
	for g, n := range e.home {
		if n < 0 || !t.Active(g) || t.Recovering(g) || e.anotherModel(own, g) || e.aloneExcess(own, g) < e.cfg.MinImpact*e.stepMedian {
			continue
		}

		effect, _ := t.Last(g)
		who = append(who, fmt.Sprintf("%s on %s", e.layout.Roles[g].Name(e.layout.Stages), e.layout.Nodes[n]))
		since, most = min(since, t.FirstSlow(g)), max(most, effect)
	}

	if len(who) == 0 {
		return ""
	}

	return fmt.Sprintf("since step %d %s takes up to %.1f %% longer beside the other stages than before, outside of what is recorded, and nothing proves that they wait for it: it is slow, or waits itself where nothing tells",
		since, strings.Join(who, ", "), 100*math.Expm1(most))
}

// loadsAlone says that a node which alone loads data waits long for it: nothing tells whether it, or what all load from, is slow.
func (e *Engine) loadsAlone() string {
	node, alone := e.loader()
	if !alone {
		return ""
	}

	share := 0.0
	steps := e.recent.Latest(frame.DataLoader, threshold.Window)
	for _, loads := range steps {
		wait, _ := robust.SampleMedian(loads, nil)
		share += robust.Finite(float64(wait), 0) / e.stepMedian / float64(len(steps))
	}

	if share < level.LeastImpact {
		return "" // as much is usual
	}

	return fmt.Sprintf("%s alone loads data, and waits for it %.1f %% of a step: it is slow, or what it loads from, and no other node's loading tells which", e.layout.Nodes[node], 100*share)
}

// loader is the one node of several whose ranks load data; not alone where more do, or nobody.
func (e *Engine) loader() (node int32, alone bool) {
	var loads []int32
	for r := range e.n {
		if x := e.recent.Median(frame.DataLoader, r, threshold.Window); x == x {
			loads = append(loads, int32(r))
		}
	}

	if len(loads) == 0 || !e.live(frame.DataLoader) {
		return frame.None, false
	}

	node = e.singleNode(loads)
	return node, node >= 0 && e.nodes() > 1
}

// lockstep says that ranks compute longer than their peers and wait for each other inside their
// forward passes, where nobody recorded who is waited for.
func (e *Engine) lockstep() string {
	if !e.light() {
		return ""
	}

	for _, c := range e.candidates() {
		if x := e.excess(c.row, compute, nil); c.has[compute] && x >= e.cfg.MinImpact*e.stepMedian && e.followsMate(c.row, x) {
			return fmt.Sprintf("since step %d rank %d and others that it works with inside forward passes take longer than their peers, and nothing tells which of them the others wait for",
				c.since, e.layout.Ranks[c.row]) + moreWords
		}
	}

	return ""
}

// missing counts the ranks of the job whose own work was not measured in any of the last steps, and says so.
func (e *Engine) missing() (ranks int, said string) {
	ranks, said = max(0, e.world()-len(e.layout.Ranks)), "one rank is not recorded"
	for r, rank := range e.layout.Ranks {
		if !e.worked(r) {
			ranks, said = ranks+1, fmt.Sprintf("rank %d is not recorded", rank)
		}
	}

	if ranks > 1 {
		said = fmt.Sprintf("%d ranks are not recorded", ranks)
	}

	return ranks, said
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

// maybeWaited says that all may wait for a rank of which nothing is known, "" where they don't. A
// job has ranks that were not recorded, and is healthy all the same when the others hardly wait:
// who is slow keeps everybody waiting. Where even the one that waits least is in bare
// communication for long, that may be the wire, or the time until such a rank comes. One that
// is missing among many is hardly the slow one.
func (e *Engine) maybeWaited(missing int, who string) string {
	if missing == 0 || float64(missing) < unrecordedRanks*float64(e.world()) {
		return ""
	}

	least := math.Inf(1)
	for r := range e.layout.Ranks {
		if x := e.recent.Median(frame.Exposed, r, threshold.MinValid); x == x {
			least = min(least, x)
		}
	}

	if least < unrecordedShare*e.stepMedian || math.IsInf(least, 1) {
		return ""
	}

	return fmt.Sprintf("%s, and all others are in bare communication for %.0f %% of a step or more: they may wait for it, and nothing tells what it does meanwhile",
		who, math.Floor(100*least/e.stepMedian))
}

// waitedFor says for whom others wait unseen, "" where they don't. Communication inside a
// compiled graph has a time but no wait: forward passes of all ranks are as long as that of
// the slowest, and nobody's own time is longer. But whoever comes last to an operation is in
// it for the shortest time. Where that is one rank by far, nobody can say that all is well.
func (e *Engine) waitedFor() string {
	if !e.live(frame.Comm) {
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
