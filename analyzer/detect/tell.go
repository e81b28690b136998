package detect

import (
	"fmt"
	"time"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Tell says in a verdict what is known of a job beside its steps: when recording was off, and that two runs have
// one job name, nil where that is not so. Of a mixture that is all that is said.
func Tell(v *verdict.Verdict, off []frame.Off, overlap *frame.Overlap) {
	tellOff(v, off)
	if overlap != nil {
		tellOverlap(v, overlap)
	}
}

// tellOverlap says in a verdict that two runs are recorded under one job name. Of a mixture nothing is judged.
func tellOverlap(v *verdict.Verdict, o *frame.Overlap) {
	who, do := "and of no other", "Is one of them no trainer of this job? Move its files away"
	if n := len(o.Ranks); n > 1 {
		who, do = fmt.Sprintf("as of %d ranks in all", n), "Give each run a job name of its own, or move the files of one of them away"
	}

	f := verdict.Finding{Kind: verdict.OverlappingRuns, Ranks: o.Ranks, Detail: fmt.Sprintf(
		"two processes of rank %d, %s, recorded steps at the same time: %s, and %s. %s: they name the process",
		o.Ranks[0], who, o.Who[0], o.Who[1], do)}
	if o.Mixed {
		// Whatever was judged was judged of rows that no job wrote.
		v.Decided, v.Healthy = false, false
		v.Nodes, v.Links, v.Events = []verdict.Node{}, []verdict.Link{}, []verdict.Event{}
		v.JobImpact, v.JobImpactMax = 0, 0
		v.Attempts, v.Recorded, v.Steps.Analyzed, v.Coverage = 0, 0, 0, 0
		v.Steps.FirstTime = time.Unix(0, o.FirstNs).UTC().Format(time.RFC3339)
		v.Steps.LastTime = time.Unix(0, o.LastNs).UTC().Format(time.RFC3339)
		v.Findings = v.Findings[:0]
	}

	addFinding(v, f)
}
