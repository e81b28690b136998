package frame

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Overlap says that two runs are recorded under one job name: processes of one rank,
// which can only follow each other, recorded the same time.
type Overlap struct {
	A, B  *Process // of the lowest such rank, in the order of their starts
	Ranks []int    // with such processes, ascending
	Mixed bool     // they are at least half of the ranks: the rows are of two jobs
}

// Bounds of an overlap. Hosts' clocks differ by seconds, and a process that is replaced
// may live on for some steps; two runs have most of the shorter one's time in common.
const (
	overlapLeast = int64(5e9)
	overlapSteps = 8
	overlapShare = 2 // of the shorter stretch, at least one in so many
)

// FindOverlap looks for overlaps in the processes of ranks that had several; ranks is
// how many the job has. nil is none.
func FindOverlap(all []*Process, ranks int) *Overlap {
	slices.SortFunc(all, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.EarlyNs, b.EarlyNs), cmp.Compare(a.ID, b.ID))
	})
	var o *Overlap
	for i, longest := 1, 0; i < len(all); i++ {
		a, b := all[longest], all[i]
		if a.Rank != b.Rank {
			longest = i
			continue
		}

		if together(a, b) {
			if o == nil {
				o = &Overlap{A: a, B: b}
			}

			if n := len(o.Ranks); n == 0 || o.Ranks[n-1] != int(a.Rank) {
				o.Ranks = append(o.Ranks, int(a.Rank))
			}
		}

		if b.LateNs > a.LateNs {
			longest = i
		}
	}

	if o != nil {
		o.Mixed = 2*len(o.Ranks) >= ranks
	}

	return o
}

// together reports whether two processes of a rank, a first, are of two runs.
func together(a, b *Process) bool {
	if a.EarlyNs <= 0 || b.EarlyNs <= 0 {
		return false
	}

	// A process that is replaced overlaps the next by a step or two: in common must be several of each
	// one's steps, and most of the shorter one's time.
	common := min(a.LateNs, b.LateNs) - b.EarlyNs
	for _, s := range []*Process{a, b} {
		span := s.LateNs - s.EarlyNs
		if s.Steps < overlapSteps || common < overlapSteps*span/int64(s.Steps) {
			return false
		}
	}

	return common >= overlapLeast && overlapShare*common >= min(a.LateNs-a.EarlyNs, b.LateNs-b.EarlyNs)
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
		o.A.Rank, who, o.A.words(), o.B.words(), do)}
	if o.Mixed {
		// Whatever was judged was judged of rows that no job wrote.
		v.Decided, v.Healthy = false, false
		v.Nodes, v.Links, v.Events = []verdict.Node{}, []verdict.Link{}, []verdict.Event{}
		v.JobImpact, v.JobImpactMax = 0, 0
		v.Attempts, v.Recorded, v.Steps.Analyzed, v.Coverage = 0, 0, 0, 0
		v.Steps.FirstTime = time.Unix(0, min(o.A.EarlyNs, o.B.EarlyNs)).UTC().Format(time.RFC3339)
		v.Steps.LastTime = time.Unix(0, max(o.A.LateNs, o.B.LateNs)).UTC().Format(time.RFC3339)
		v.Findings = v.Findings[:0]
	}

	v.Findings = append(v.Findings, f)
}

// words name the process so that a person finds it: by pid, node and incarnation.
func (p *Process) words() string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05") }
	on := ""
	if node := p.NodeName(); node != "" {
		on = " on " + node
	}

	return fmt.Sprintf("process %d%s (incarnation %016x) from %s to %s UTC", p.Meta.PID, on, p.ID, at(p.EarlyNs), at(p.LateNs))
}
