package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// WhatIf writes what the verdict says that the culprits cost, what the replay of raw
// ranges says of the same, then how much faster the job would be if everybody worked
// alike, and how much of that is whose.
func (p *Printer) WhatIf(v *verdict.Verdict, r *verdict.WhatIf) error {
	p.printf("\n")
	culpritCosts(p, v, r)
	p.printf("What if everybody worked alike: the job would be %.2f times as fast (%s replayed, which take %s of the recorded time", r.Slowdown, count(r.Steps, "step"), percent(r.Fidelity))
	if r.Skipped > 0 {
		p.printf(", %d left out because records are missing", r.Skipped)
	}

	p.printf(")\n")
	p.printf("  the slowest 3%% of the ranks account for %s of the loss", percent(clamp(r.MW)))
	if len(r.ByStage) > 1 {
		p.printf(", the last stage for %s", percent(clamp(r.MS)))
	}

	p.printf("\n")
	for _, k := range slices.Sorted(maps.Keys(r.ByKind)) {
		if r.ByKind[k] >= noteworthy {
			p.printf("  all alike but %s: a step takes %.2f times as long\n", k, r.ByKind[k])
		}
	}

	for _, s := range slices.Sorted(maps.Keys(r.ByStage)) {
		if len(r.ByStage) > 1 && r.ByStage[s] >= noteworthy {
			p.printf("  all alike but stage %d: a step takes %.2f times as long\n", s, r.ByStage[s])
		}
	}

	workers(p, r)
	return p.err
}

const (
	noteworthy = 1.02 // a slowdown below is noise of the replay
	mostRanks  = 8    // lines; the others gain less
)

// clamp keeps a share in 0…1: a replay may gain a little more than there was to gain.
func clamp(share float64) float64 { return min(max(share, 0), 1) }

// culpritCosts writes the cost of each culprit and of all, the replay's beside it: the verdict's is
// of per-step rows and all steps, the replay's of raw ranges and some steps, so they may differ.
func culpritCosts(p *Printer, v *verdict.Verdict, r *verdict.WhatIf) {
	nodes, _ := convicted(v)
	for _, n := range nodes {
		beside := ""
		if x, ok := r.Repaired[n.Node]; ok {
			beside = fmt.Sprintf(" (%s by the replay of raw ranges)", smallShare(x))
		}

		p.printf("What if %s worked like its peers: the job would save %s of its time%s\n", plain(n.Node), Costs(n.JobImpact, n.JobImpactMax), beside)
	}

	if len(nodes) < 2 {
		return
	}

	beside := ""
	if len(r.Repaired) > 0 {
		beside = fmt.Sprintf(" (%s by the replay)", smallShare(r.Together))
	}

	p.printf("What if all of them did: %s%s\n", Costs(v.JobImpact, v.JobImpactMax), beside)
}

// workers lists the ranks whose repair gains most.
func workers(p *Printer, r *verdict.WhatIf) {
	ranks := slices.Collect(maps.Keys(r.ByRank))
	slices.SortFunc(ranks, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.ByRank[b], r.ByRank[a]), cmp.Compare(a, b))
	})
	for i, rank := range ranks {
		if i == mostRanks || r.ByRank[rank] < noteworthy {
			return
		}

		p.printf("  all alike but rank %d: a step takes %.2f times as long; brought to its stage's median alone it saves %s of the step\n", rank, r.ByRank[rank], percent(r.Gain[rank]))
	}
}
