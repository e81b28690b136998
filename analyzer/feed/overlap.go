package feed

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Bounds of an overlap. Hosts' clocks differ by seconds, and a process that is replaced
// may live on for some steps; two runs have most of the shorter one's time in common.
const (
	overlapLeast = int64(5e9)
	overlapSteps = 8
	overlapShare = 2 // of the shorter stretch, at least one in so many
)

// findOverlap looks for overlaps in the processes of ranks that had several; ranks is
// how many the job has. nil is none.
func findOverlap(all []*process, ranks int) *frame.Overlap {
	slices.SortFunc(all, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.EarlyNs, b.EarlyNs), cmp.Compare(a.ID, b.ID))
	})
	var o *frame.Overlap
	for i, longest := 1, 0; i < len(all); i++ {
		a, b := all[longest], all[i]
		if a.Rank != b.Rank {
			longest = i
			continue
		}

		if together(a, b) {
			if o == nil {
				o = &frame.Overlap{Who: [2]string{a.words(), b.words()}, FirstNs: min(a.EarlyNs, b.EarlyNs), LastNs: max(a.LateNs, b.LateNs)}
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
func together(a, b *process) bool {
	if a.EarlyNs <= 0 || b.EarlyNs <= 0 {
		return false
	}

	// A process that is replaced overlaps the next by a step or two: in common must be several of each
	// one's steps, and most of the shorter one's time.
	common := min(a.LateNs, b.LateNs) - b.EarlyNs
	for _, s := range []*process{a, b} {
		span := s.LateNs - s.EarlyNs
		if s.Steps < overlapSteps || common < overlapSteps*span/int64(s.Steps) {
			return false
		}
	}

	return common >= overlapLeast && overlapShare*common >= min(a.LateNs-a.EarlyNs, b.LateNs-b.EarlyNs)
}

// words name the process so that a person finds it: by pid, node and incarnation.
func (p *process) words() string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05") }
	on := ""
	if node := p.nodeName(); node != "" {
		on = " on " + node
	}

	return fmt.Sprintf("process %d%s (incarnation %016x) from %s to %s UTC", p.Meta.PID, on, p.ID, at(p.EarlyNs), at(p.LateNs))
}
