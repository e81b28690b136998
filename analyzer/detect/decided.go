package detect

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// decide says whether enough was seen to call anything healthy.
func (e *Engine) decide(v *verdict.Verdict, common *common) {
	expected, judged, bold := 0, 0, 0
	for r, p := range e.layout.Present {
		if !p {
			continue
		}

		expected++
		if e.judged[r] >= threshold.MinValid {
			judged++
		}

		if e.judged[r] > 0 {
			bold++
		}
	}

	found := len(v.Links) > 0 || slices.ContainsFunc(v.Nodes, func(n verdict.Node) bool { return n.State != verdict.Recovered })
	// What was switched off is no coverage, and says nothing of the steps recorded since.
	covered := e.expected > 0 && round4(float64(e.measured)/float64(e.expected)) >= e.cfg.MinCoverage
	hidden := e.hidden(found)

	v.Decided = found || expected > 1 && 2*judged >= expected && covered && hidden == ""
	// Below it, and beside who may be one, only a culprit is news: a suspect is none, nor is one that costs too little.
	news := v.Exit(e.cfg.MinImpact) == verdict.ExitDegraded
	v.Decided = v.Decided && (news || covered && !common.undecidable() && len(common.last) == 0)
	if !covered && e.columns > 0 {
		low(v, "%.0f %% of the expected rank-steps (steps × the ranks of the job) were measured; a slow rank may be among those that were not", 100*v.Coverage)
	}

	if len(common.few) > 0 && !news {
		low(v, "rank %d has one peer, or peers on %d other nodes or fewer, is slower, and always was: nobody can tell which of them is not as it should be", common.few[0], fewHosts)
	} else if !news && common.undecidable() {
		low(v, "%d of %d nodes take longer than others for the same work (%s): too few nodes to tell bad ones from another model, or from ones that have more to do", len(common.standing), common.nodes, standingWords(common.standing))
	}

	if len(common.last) > 0 && !news {
		low(v, "the replica of rank %d is the last in most steps: it gets more work, or it is slow and this is too noisy, or too short, to tell", common.last[0])
	}

	switch {
	case e.columns == 0:
		low(v, "no step was recorded")
	case !e.seen[frame.FP] && !e.seen[frame.Self]:
		low(v, "only step times were recorded: everybody waits for the slowest, so they tell nothing of a single rank; record FP or Communication")
	case !found && expected <= 1:
		low(v, "one rank alone was recorded: there is nobody to compare it with")
	case !found && 2*judged < expected:
		low(v, "%d of %d ranks have the %d valid steps that a decision needs (%d have any)", judged, expected, threshold.MinValid, bold)
	case found && e.seen[frame.Self] && !e.live(frame.Self):
		low(v, "Communication is no longer recorded (since step %d): what was found with it is repeated until it is measured again; laggard trace on --words CommunicationOperator", e.measuredStep[frame.Self]+1)
	case hidden != "":
		low(v, "%s", hidden)
	case !e.layout.Certain:
		low(v, "no groups are known: a rank that was slow from the start can't be told from a heavier pipeline stage when others are as slow; give --topology")
	case !e.seen[frame.Self]:
		low(v, "no Communication was recorded: a slow backward pass, a slow host and slow links can't be seen; laggard trace on --words CommunicationOperator")
	case !e.seen[frame.FP]:
		low(v, "no FP was recorded: slow computing and a slow host can't be told apart, and an unrecorded wait looks like work")
	}
}

// live reports whether the metric was recorded in the last window of steps.
func (e *Engine) live(m frame.Metric) bool {
	return e.seen[m] && e.columns-e.measuredAt[m] < threshold.Window
}

// low says why too little was seen.
func low(v *verdict.Verdict, words string, args ...any) {
	addFindingf(v, verdict.LowCoverage, 0, words, args...)
}
