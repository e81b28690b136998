package main

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// check is one demand of the bar: what is asked, what was reached.
type check struct {
	Scenario string `json:"scenario"` // "all" of the demands on all together
	Demand   string `json:"demand"`
	Target   string `json:"target"`
	Reached  string `json:"reached"`
	OK       bool   `json:"ok"`
}

// String is the demand in a line.
func (c *check) String() string {
	if c.Scenario == everything {
		return fmt.Sprintf("%s: %s (target %s)", c.Demand, c.Reached, c.Target)
	}

	return fmt.Sprintf("%s: %s %s (target %s)", c.Scenario, c.Demand, c.Reached, c.Target)
}

// everything is the scenario of the demands on all scenarios together.
const everything = "all"

func atLeast(what string, got, want float64) check {
	return check{Demand: what, Reached: fmt.Sprintf("%.3f", got), Target: fmt.Sprintf(">= %.3g", want), OK: got >= want}
}

func atMost(what string, got, want float64) check {
	return check{Demand: what, Reached: fmt.Sprintf("%.4g", got), Target: fmt.Sprintf("<= %.3g", want), OK: got <= want}
}

// soon asks that 95 of 100 culprits are detected within some steps.
func soon(what string, t tally, want int) check {
	c := check{Demand: what, Reached: "nobody detected", Target: fmt.Sprintf("<= %d steps", want)}
	if got := t.percentile(0.95); got >= 0 {
		c.Reached, c.OK = fmt.Sprint(got), got <= want
	}

	return c
}

func none(what string, got int) check {
	return check{Demand: what, Reached: fmt.Sprint(got), Target: "0", OK: got == 0}
}

// shown is a figure of which nothing is asked.
func shown(what, got, target string) check {
	return check{Demand: what, Reached: got, Target: target, OK: true}
}

// limits are the steps within which a row's culprit is to be detected. In as many the
// oracle is asked whether it can be.
var limits = map[int]int{2: 16, 3: 10, 4: 8, 6: 25, 20: 40, 22: 96}

// checks are the demands of the bar on the cases of one scenario, of which there are some.
func (t tally) checks() []check {
	row := t[0].row()
	demands := bar[row]
	if demands == nil {
		return nil
	}

	out := demands(t)
	if asked := t.cases(func(o *outcome) bool { return o.asked }); asked > 0 {
		provable := t.cases(func(o *outcome) bool { return o.provable })
		out = append(out, shown(fmt.Sprintf("bound: provable in %d steps by who knows place and start", limits[row]),
			fmt.Sprintf("%.3f", share(provable, asked)), "(bound)"))
	}

	for i := range out {
		out[i].Scenario = t[0].scenario
	}

	return out
}

// allChecks are the demands on every scenario that ran, in the order of the table, and on all together.
func allChecks(tallies map[string]tally) []check {
	var out []check
	for _, n := range simulate.Names() {
		if t := tallies[n]; len(t) > 0 {
			out = append(out, t.checks()...)
		}
	}

	if len(out) > 0 {
		out = append(out, overall(tallies)...)
	}

	return out
}

// bar says, for each row of the table, what a detector has to reach.
var bar = map[int]func(t tally) []check{
	0: func(t tally) []check { // shown, not asked for
		return []check{
			shown("recall", fmt.Sprintf("%.3f", t.recall()), "(none)"), shown("p95", fmt.Sprint(t.percentile(0.95)), "(none)"),
			shown("cases with a victim", fmt.Sprintf("%.3f", t.victims()), "(none)"),
		}
	},
	1: func(t tally) []check {
		return []check{t.noAlarm(), atMost("undecided", float64(t.cases((*outcome).undecided)), 0)}
	},
	2: func(t tally) []check {
		return append([]check{atLeast("recall", t.recall(), 0.95), soon("p95", t, limits[2])}, t.clean()...)
	},
	3: func(t tally) []check {
		return append([]check{atLeast("recall", t.recall(), 0.99), atLeast("precision", t.precision(), 0.99), soon("p95", t, limits[3])}, t.clean()...)
	},
	4: func(t tally) []check {
		return append([]check{atLeast("recall", t.recall(), 1), soon("p95", t, limits[4])}, t.clean()...)
	},
	5: func(t tally) []check { return append([]check{atLeast("recall", t.recall(), 0.99)}, t.clean()...) },
	6: func(t tally) []check {
		return append([]check{t.inTime(limits[6], 0.99), atLeast("recall", t.recall(), 0.99)}, t.clean()...)
	},
	7: func(t tally) []check {
		return append([]check{atLeast("both, nobody else", t.of((*outcome).exactly), 0.98)}, t.clean()...)
	},
	8: func(t tally) []check {
		return []check{
			atLeast("link recall", t.told(func(o *outcome) (int, int) { return o.links, len(o.truth.Links) }), 0.98),
			atMost("cases with a node accused", t.victims(), 0.01), none("other links accused", t.sum((*outcome).linksWrong)),
		}
	},
	9: func(t tally) []check {
		return []check{atLeast("recall", t.recall(), 0.99), atLeast("cause", t.cause(), 0.98), t.innocent()}
	},
	10: func(t tally) []check {
		return []check{atLeast("recall", t.recall(), 0.98), atLeast("cause", t.cause(), 0.95), t.innocent()}
	},
	11: func(t tally) []check {
		return []check{atLeast("recall", t.recall(), 0.98), atLeast("cause", t.cause(), 0.9), t.innocent()}
	},
	12: func(t tally) []check {
		events := func(o *outcome) (int, int) { return o.events, len(o.truth.Events) }
		return []check{t.nobody(), atLeast("events", t.told(events), 0.95)}
	},
	13: func(t tally) []check {
		return []check{atLeast("called intermittent", t.of(func(o *outcome) bool { return o.intermittent }), 0.9), t.innocent()}
	},
	14: jobFinding,
	15: jobFinding,
	16: func(t tally) []check { return []check{t.noAlarm()} },
	17: func(t tally) []check {
		same := t.cases((*outcome).sameAsTwin)
		return []check{{Demand: "same verdict as with right clocks", Reached: fmt.Sprintf("%d of %d", same, len(t)), Target: everything, OK: same == len(t)}}
	},
	18: func(t tally) []check {
		return []check{atMost("recall lost", max(0, t.twins().recall()-t.recall()), 0.05), t.noAlarm()}
	},
	19: func(t tally) []check {
		return []check{atLeast("the node, after the restart", t.recall(), 1), t.innocent()}
	},
	20: func(t tally) []check { return append([]check{t.inTime(limits[20], 0.99)}, t.clean()...) },
	21: jobFinding,
	22: func(t tally) []check { return []check{t.inTime(limits[22], 0.95), t.innocent()} },
}

// jobFinding asks for the finding and for no node.
func jobFinding(t tally) []check {
	findings := func(o *outcome) (int, int) { return o.findings, len(o.truth.Findings) }
	return []check{t.nobody(), atLeast("finding named", t.told(findings), 0.99)}
}

// noAlarm asks that nobody innocent is accused, node or link; nobody, that no node is.
func (t tally) noAlarm() check { return none("falsely accused", t.sum((*outcome).alarms)) }
func (t tally) nobody() check  { return none("nodes named", t.sum((*outcome).nodesWrong)) }

// innocent asks for no victims beside the culprits.
func (t tally) innocent() check { return atMost("cases with a victim", t.victims(), 0.005) }

// clean asks for right causes and no victims, as the whole bar does.
func (t tally) clean() []check { return []check{atLeast("cause", t.cause(), 0.95), t.innocent()} }

// inTime asks for a share of the culprits within some steps.
func (t tally) inTime(steps int, want float64) check {
	return atLeast(fmt.Sprintf("recall in %d steps", steps), t.within(steps), want)
}

// overall is the bar over all scenarios with a slowdown of x1.10 and more.
func overall(tallies map[string]tally) []check {
	var strong, weak, running, all tally
	for _, n := range simulate.Names() {
		t := tallies[n]
		all = append(all, t...)
		switch row, _ := simulate.Row(n); row {
		case 3, 4, 5, 7:
			running = append(running, t...)
			strong = append(strong, t...)
		case 20: // its own limit is 40 steps: the first ten of a process are warm-up
			strong = append(strong, t...)
		case 2:
			weak = append(weak, t...)
		}
	}

	out := []check{
		atLeast("node precision at x1.10 and more", strong.precision(), 0.99),
		atLeast("node recall at x1.10 and more", strong.recall(), 0.99),
		atLeast("node recall at x1.05", weak.recall(), 0.95),
		soon("p95 of the detection at x1.10 and more, faults of running jobs (rows 3, 4, 5, 7)", running, limits[3]),
		atMost("cases with a victim, all scenarios", all.victims(), 0.005),
		atLeast("cause right, all scenarios", all.cause(), 0.95),
	}
	for i := range out {
		out[i].Scenario = everything
	}

	return out
}
