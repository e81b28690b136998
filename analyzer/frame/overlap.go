package frame

import (
	"fmt"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Overlap says that two runs are recorded under one job name: processes of one rank,
// which can only follow each other, recorded the same time.
type Overlap struct {
	Ranks []int // with such processes, ascending
	Mixed bool  // they are at least half of the ranks: the rows are of two jobs
	// Who are the two of the lowest rank as a person finds them, in the order of their starts, and
	// FirstNs and LastNs their earliest and latest start of a step.
	Who             [2]string
	FirstNs, LastNs int64
}

// Tell says it in a verdict. Of a mixture nothing is judged.
func (o *Overlap) Tell(v *verdict.Verdict) {
	if o == nil {
		return
	}

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

	v.Findings = append(v.Findings, f)
}
