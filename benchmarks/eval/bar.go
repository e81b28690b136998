package main

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// check is one demand of the bar: what is asked, what was reached.
type check struct {
	scenario string // "all" of the demands on all together
	demand   string
	target   string
	reached  string
	ok       bool
}

// String is the demand in a line.
func (c *check) String() string {
	if c.scenario == everything {
		return fmt.Sprintf("%s: %s (target %s)", c.demand, c.reached, c.target)
	}

	return fmt.Sprintf("%s: %s %s (target %s)", c.scenario, c.demand, c.reached, c.target)
}

// everything is the scenario of the demands on all scenarios together.
const everything = "all"

// demand is what the bar asks of the cases of a scenario.
type demand func(t tally) check

// atLeast and atMost ask that a figure of all cases reaches a target.
func atLeast(what string, of func(tally) float64, want float64) demand {
	return func(t tally) check {
		got := of(t)
		return check{demand: what, reached: fmt.Sprintf("%.3f", got), target: fmt.Sprintf(">= %.3g", want), ok: got >= want}
	}
}

func atMost(what string, of func(tally) float64, want float64) demand {
	return func(t tally) check {
		got := of(t)
		return check{demand: what, reached: fmt.Sprintf("%.4g", got), target: fmt.Sprintf("<= %.3g", want), ok: got <= want}
	}
}

// soon asks that 95 of 100 culprits are detected within some steps.
func soon(what string, want int) demand {
	return func(t tally) check {
		c := check{demand: what, reached: "nobody detected", target: fmt.Sprintf("<= %d steps", want)}
		if got := t.percentile(0.95); got >= 0 {
			c.reached, c.ok = fmt.Sprint(got), got <= want
		}

		return c
	}
}

// none asks that something happens in no case.
func none(what string, of func(*outcome) int) demand {
	return func(t tally) check {
		got := t.sum(of)
		return check{demand: what, reached: fmt.Sprint(got), target: "0", ok: got == 0}
	}
}

// shown is a figure of which nothing is asked.
func shown(what, format string, got any) check {
	return check{demand: what, reached: fmt.Sprintf(format, got), target: "(none)", ok: true}
}

// limits are the steps within which a row's culprit is to be detected. In as many the
// oracle is asked whether it can be.
var limits = map[int]int{2: 16, 3: 10, 4: 8, 6: 25, 20: 40, 22: 96}

// checks are the demands of the bar on the cases of one scenario, of which there are some, and
// beside them what nobody could do better in as many steps.
func (t tally) checks() (out []check) {
	row := t[0].row()
	for _, d := range bar[row] {
		out = append(out, d(t))
	}

	if asked := t.cases(func(o *outcome) bool { return o.asked }); asked > 0 {
		provable := t.cases(func(o *outcome) bool { return o.provable })
		bound := shown(fmt.Sprintf("bound: provable in %d steps by who knows place and start", limits[row]), "%.3f", share(provable, asked))
		bound.target = "(bound)"
		out = append(out, bound)
	}

	for i := range out {
		out[i].scenario = t[0].scenario
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
var bar = map[int][]demand{
	0: { // shown, not asked for
		func(t tally) check { return shown("recall", "%.3f", t.recall()) },
		func(t tally) check { return shown("p95", "%d", t.percentile(0.95)) },
		func(t tally) check { return shown("cases with a victim", "%.3f", t.victims()) },
	},
	1: {noAlarm, atMost("undecided", func(t tally) float64 { return float64(t.cases((*outcome).undecided)) }, 0)},
	2: {recall(0.95), soon("p95", limits[2]), cause(0.95), innocent},
	3: {recall(0.99), atLeast("precision", tally.precision, 0.99), soon("p95", limits[3]), cause(0.95), innocent},
	4: {recall(1), soon("p95", limits[4]), cause(0.95), innocent},
	5: {recall(0.99), cause(0.95), innocent},
	6: {inTime(limits[6], 0.99), recall(0.99), cause(0.95), innocent},
	7: {atLeast("both, nobody else", func(t tally) float64 { return t.of((*outcome).exactly) }, 0.98), cause(0.95), innocent},
	8: {
		atLeast("link recall", told(func(o *outcome) (int, int) { return o.links, len(o.truth.Links) }), 0.98),
		atMost("cases with a node accused", tally.victims, 0.01), none("other links accused", (*outcome).linksWrong),
	},
	9:  {recall(0.99), cause(0.98), innocent},
	10: {recall(0.98), cause(0.95), innocent},
	11: {recall(0.98), cause(0.9), innocent},
	12: {nobody, atLeast("events", told(func(o *outcome) (int, int) { return o.events, len(o.truth.Events) }), 0.95)},
	13: {atLeast("called intermittent", func(t tally) float64 { return t.of(func(o *outcome) bool { return o.intermittent }) }, 0.9), innocent},
	14: {nobody, finding},
	15: {nobody, finding},
	16: {noAlarm},
	17: {func(t tally) check {
		same := t.cases((*outcome).sameAsTwin)
		return check{demand: "same verdict as with right clocks", reached: fmt.Sprintf("%d of %d", same, len(t)), target: everything, ok: same == len(t)}
	}},
	18: {atMost("recall lost", func(t tally) float64 { return max(0, t.twins().recall()-t.recall()) }, 0.05), noAlarm},
	19: {atLeast("the node, after the restart", tally.recall, 1), innocent},
	20: {inTime(limits[20], 0.99), cause(0.95), innocent},
	21: {nobody, finding},
	22: {inTime(limits[22], 0.95), innocent},
}

var (
	// noAlarm asks that nobody innocent is accused, node or link; nobody, that no node is.
	noAlarm = none("falsely accused", (*outcome).alarms)
	nobody  = none("nodes named", (*outcome).nodesWrong)

	// innocent asks for no victims beside the culprits.
	innocent = atMost("cases with a victim", tally.victims, 0.005)

	finding = atLeast("finding named", told(func(o *outcome) (int, int) { return o.findings, len(o.truth.Findings) }), 0.99)
)

func recall(want float64) demand { return atLeast("recall", tally.recall, want) }
func cause(want float64) demand  { return atLeast("cause", tally.cause, want) }

// inTime asks for a share of the culprits within some steps.
func inTime(steps int, want float64) demand {
	return atLeast(fmt.Sprintf("recall in %d steps", steps), func(t tally) float64 { return t.within(steps) }, want)
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
		atLeast("node precision at x1.10 and more", tally.precision, 0.99)(strong),
		atLeast("node recall at x1.10 and more", tally.recall, 0.99)(strong),
		atLeast("node recall at x1.05", tally.recall, 0.95)(weak),
		soon("p95 of the detection at x1.10 and more, faults of running jobs (rows 3, 4, 5, 7)", limits[3])(running),
		atMost("cases with a victim, all scenarios", tally.victims, 0.005)(all),
		atLeast("cause right, all scenarios", tally.cause, 0.95)(all),
	}
	for i := range out {
		out[i].scenario = everything
	}

	return out
}
