package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// arrivals are the order of a few steps as words: the ranks at either end of it.
type arrivals struct {
	Caveat  string
	Rows    [][]string // rank, node, late, waited, last
	Between int        // ranks that are left out after the first of mostArrivals
}

const mostArrivals = 8 // at either end

// arrivalsOf returns nil where there is no order.
func arrivalsOf(a *verdict.Arrivals) *arrivals {
	if a == nil || len(a.Ranks) == 0 {
		return nil
	}

	ranks := a.Ranks
	if len(ranks) > 2*mostArrivals {
		ranks = slices.Concat(ranks[:mostArrivals], ranks[len(ranks)-mostArrivals:])
	}

	all := &arrivals{Caveat: arrivalsCaveat(a), Between: len(a.Ranks) - len(ranks)}
	for _, r := range ranks {
		all.Rows = append(all.Rows, []string{fmt.Sprint(r.Rank), plain(r.Node), seconds(r.Late), seconds(r.Waited), fmt.Sprint(r.Last)})
	}

	return all
}

// arrivalsTable prints who entered collectives last, with its caveat.
func arrivalsTable(p *printer, v *verdict.Arrivals) {
	a := arrivalsOf(v)
	if a == nil {
		return
	}

	p.printf("\n%s\n", p.in(dim, "WHO ENTERED LAST, WHO WAITED (NO VERDICT)"))
	p.wrapped("  ", a.Caveat)
	aligned(p, []string{"RANK", "NODE", "LATE BY UP TO", "WAITED PER STEP", "LAST IN"}, a.Rows, nil, func(i int) {
		if i == mostArrivals-1 && a.Between > 0 {
			p.printf("     %s\n", p.in(dim, fmt.Sprintf("%d ranks in between", a.Between)))
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
