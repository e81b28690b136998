package main

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// check is one line of the bar: what was reached, what is asked.
type check struct {
	what    string
	reached string
	target  string
	ok      bool
}

func atLeast(what string, got, want float64) check {
	return check{what, fmt.Sprintf("%.3f", got), fmt.Sprintf(">= %.3g", want), got >= want}
}

func atMost(what string, got, want float64) check {
	return check{what, fmt.Sprintf("%.4g", got), fmt.Sprintf("<= %.3g", want), got <= want}
}

func within(what string, got, want int) check {
	if got < 0 {
		return check{what, "nobody detected", fmt.Sprintf("<= %d steps", want), false}
	}

	return check{what, fmt.Sprint(got), fmt.Sprintf("<= %d steps", want), got <= want}
}

func none(what string, got int) check {
	return check{what, fmt.Sprint(got), "0", got == 0}
}

// checks are the demands of a row of the bar on one of its scenarios.
func (t *tally) checks() []check {
	row, _ := simulate.Row(t.scenario)
	f := bar[row]
	if f == nil {
		return nil
	}

	out := f(t)
	if t.asked > 0 {
		out = append(out, check{fmt.Sprintf("bound: provable in %d steps by who knows place and start", bounded[row]),
			fmt.Sprintf("%.3f", share(t.provable, t.asked)), "(bound)", true})
	}

	return out
}

// bar says, for each row of the table, what a detector has to reach.
var bar = map[int]func(t *tally) []check{
	0: func(t *tally) []check { // shown, not asked for
		return []check{
			{"recall", fmt.Sprintf("%.3f", t.recall()), "(none)", true}, {"p95", fmt.Sprint(t.percentile(0.95)), "(none)", true},
			{"cases with a victim", fmt.Sprintf("%.3f", share(t.victimCases, t.cases)), "(none)", true},
		}
	},
	1: func(t *tally) []check {
		return []check{none("falsely accused", t.alarms), atMost("undecided", float64(t.abstain), 0)}
	},
	2: func(t *tally) []check {
		return append([]check{atLeast("recall", t.recall(), 0.95), within("p95", t.percentile(0.95), 16)}, t.clean()...)
	},
	3: func(t *tally) []check {
		return append([]check{
			atLeast("recall", t.recall(), 0.99), atLeast("precision", t.precision(), 0.99), within("p95", t.percentile(0.95), 10),
		}, t.clean()...)
	},
	4: func(t *tally) []check {
		return append([]check{atLeast("recall", t.recall(), 1), within("p95", t.percentile(0.95), 8)}, t.clean()...)
	},
	5: func(t *tally) []check { return append([]check{atLeast("recall", t.recall(), 0.99)}, t.clean()...) },
	6: func(t *tally) []check {
		return append([]check{atLeast("recall in 25 steps", t.within(25), 0.99), atLeast("recall", t.recall(), 0.99)}, t.clean()...)
	},
	7: func(t *tally) []check {
		return append([]check{atLeast("both, nobody else", share(t.allNodes, t.cases), 0.98)}, t.clean()...)
	},
	8: func(t *tally) []check {
		return []check{
			atLeast("link recall", share(t.links, t.wantLinks), 0.98), atMost("cases with a node accused", share(t.victimCases, t.cases), 0.01),
			none("other links accused", t.wrongLinks),
		}
	},
	9: func(t *tally) []check {
		return []check{atLeast("recall", t.recall(), 0.99), atLeast("cause", share(t.cause, t.hit), 0.98), t.innocent()}
	},
	10: func(t *tally) []check {
		return []check{atLeast("recall", t.recall(), 0.98), atLeast("cause", share(t.cause, t.hit), 0.95), t.innocent()}
	},
	11: func(t *tally) []check {
		return []check{atLeast("recall", t.recall(), 0.98), atLeast("cause", share(t.cause, t.hit), 0.9), t.innocent()}
	},
	12: func(t *tally) []check {
		return []check{none("nodes named", t.victims), atLeast("events", share(t.events, t.wantEvents), 0.95)}
	},
	13: func(t *tally) []check {
		return []check{atLeast("called intermittent", share(t.blinking, t.cases), 0.9), t.innocent()}
	},
	14: jobFinding,
	15: jobFinding,
	16: func(t *tally) []check { return []check{none("falsely accused", t.alarms)} },
	17: func(t *tally) []check {
		return []check{{"same verdict as with right clocks", fmt.Sprintf("%d of %d", t.same, t.cases), "all", t.same == t.cases}}
	},
	18: func(t *tally) []check {
		base := share(t.twinHit, t.twinHit+t.twinMissed)
		return []check{atMost("recall lost", max(0, base-t.recall()), 0.05), none("falsely accused", t.alarms)}
	},
	19: func(t *tally) []check {
		return []check{atLeast("the node, after the restart", t.recall(), 1), t.innocent()}
	},
	20: func(t *tally) []check {
		return append([]check{atLeast("recall in 40 steps", t.within(40), 0.99)}, t.clean()...)
	},
	21: jobFinding,
	22: func(t *tally) []check {
		return []check{atLeast("recall in 96 steps", t.within(96), 0.95), t.innocent()}
	},
}

// jobFinding asks for the finding and for no node.
func jobFinding(t *tally) []check {
	return []check{none("nodes named", t.victims), atLeast("finding named", share(t.findings, t.wantFindings), 0.99)}
}

// innocent asks for no victims beside the culprits.
func (t *tally) innocent() check {
	return atMost("cases with a victim", share(t.victimCases, t.cases), 0.005)
}

// clean asks for right causes and no victims, as the whole bar does.
func (t *tally) clean() []check {
	return []check{atLeast("cause", share(t.cause, t.hit), 0.95), t.innocent()}
}

// overall is the bar over all scenarios with a slowdown of x1.10 and more.
func overall(tallies map[string]*tally) []check {
	var strong, weak, running tally
	for _, n := range simulate.Names() {
		t := tallies[n]
		if t == nil {
			continue
		}

		switch row, _ := simulate.Row(n); row {
		case 3, 4, 5, 7:
			running.merge(t)
			strong.merge(t)
		case 20: // its own limit is 40 steps: the first ten of a process are warm-up
			strong.merge(t)
		case 2:
			weak.merge(t)
		}
	}

	all := tally{}
	victims, cases := 0, 0
	for _, t := range tallies {
		victims, cases = victims+t.victimCases, cases+t.cases
		all.hit, all.cause = all.hit+t.hit, all.cause+t.cause
	}

	return []check{
		atLeast("node precision at x1.10 and more", strong.precision(), 0.99),
		atLeast("node recall at x1.10 and more", strong.recall(), 0.99),
		atLeast("node recall at x1.05", weak.recall(), 0.95),
		within("p95 of the detection at x1.10 and more, faults of running jobs (rows 3, 4, 5, 7)", running.percentile(0.95), 10),
		atMost("cases with a victim, all scenarios", share(victims, cases), 0.005),
		atLeast("cause right, all scenarios", share(all.cause, all.hit), 0.95),
	}
}
