package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// arrivalsTable prints who entered collectives last, with its caveat.
func arrivalsTable(p *printer, a *verdict.Arrivals) {
	const most = 8 // at either end
	if a == nil || len(a.Ranks) == 0 {
		return
	}
	p.printf("\n%s\n", p.in(dim, "WHO ENTERED LAST, WHO WAITED (NO VERDICT)"))
	p.wrapped("  ", arrivalsCaveat(a))
	ranks := a.Ranks
	if len(ranks) > 2*most {
		ranks = slices.Concat(ranks[:most], ranks[len(ranks)-most:])
	}
	var lines [][]string
	for _, r := range ranks {
		lines = append(lines, []string{
			fmt.Sprint(r.Rank), plain(r.Node), seconds(r.Late), seconds(r.Waited), fmt.Sprint(r.Last),
		})
	}
	aligned(p, []string{"RANK", "NODE", "LATE BY UP TO", "WAITED PER STEP", "LAST IN"}, lines, 1,
		func(_, _ int, cell string) string { return cell }, func(i int) {
			if i == most-1 && len(ranks) < len(a.Ranks) {
				p.printf("     %s\n", p.in(dim, fmt.Sprintf("%d ranks in between", len(a.Ranks)-len(ranks))))
			}
		})
}

// arrivalsCaveat says what the order rests on, and what it doesn't tell.
func arrivalsCaveat(a *verdict.Arrivals) string {
	s := fmt.Sprintf("The order in %s of %s, by clocks aligned where collectives end, sure to ± %s.", count(a.Collectives, "collective"), count(a.Steps, "step"), seconds(a.Unsure))
	if !a.Clear {
		return s + " Nobody's delay stands out from that."
	}
	return s + " Who is last has waited least, and may be the first in the next step: it takes 12 steps to tell a slow rank from one that was unlucky once."
}
