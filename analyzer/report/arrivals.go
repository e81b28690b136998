package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// mostArrivals is how many ranks stand at either end: who enters last and who waits are asked for,
// and sixteen lines fit a screen.
const mostArrivals = 8

// arrivalRows are the ranks at either end of the order as words: rank, node, late, waited,
// last. Ranks that are left out stand between the first mostArrivals and the others.
func arrivalRows(a *verdict.Arrivals) (rows [][]string) {
	ranks := a.Ranks
	if len(ranks) > 2*mostArrivals {
		ranks = slices.Concat(ranks[:mostArrivals], ranks[len(ranks)-mostArrivals:])
	}

	for _, r := range ranks {
		rows = append(rows, []string{fmt.Sprint(r.Rank), plain(r.Node), seconds(r.Late), seconds(r.Waited), fmt.Sprint(r.Last)})
	}

	return rows
}

// arrivalsTable prints who entered collectives last, with its caveat.
func arrivalsTable(p *Printer, a *verdict.Arrivals) {
	if a == nil || len(a.Ranks) == 0 {
		return
	}

	p.printf("\n%s\n", p.in(dim, "WHO ENTERED LAST, WHO WAITED (NO VERDICT)"))
	p.wrapped("  ", arrivalsCaveat(a))
	rows := arrivalRows(a)
	aligned(p, []string{"RANK", "NODE", "LATE BY UP TO", "WAITED PER STEP", "LAST IN"}, rows, nil, func(i int) {
		if left := len(a.Ranks) - len(rows); i == mostArrivals-1 && left > 0 {
			p.printf("     %s\n", p.in(dim, fmt.Sprintf("%d ranks in between", left)))
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
