package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// tally sums the outcomes of one scenario.
type tally struct {
	scenario  string
	cases     int
	positives int
	replayed  int
	large     int // cases of more than 256 ranks

	hit, missed  int // culprit nodes
	victims      int // nodes falsely accused
	victimCases  int
	alarms       int // nodes and groups falsely accused
	cause        int
	delays       []int
	allNodes     int // cases in which every culprit was named and nobody else
	links        int
	wantLinks    int
	wrongLinks   int
	findings     int
	wantFindings int
	events       int
	wantEvents   int
	blinking     int
	abstain      int
	provable     int // cases that the oracle can prove in the row's time
	asked        int
	same         int
	twinHit      int
	twinMissed   int
	hours        float64
	rules        []ruled
	ruleCases    []int // cases in which a rule falsely accused somebody
	others       map[string]int
	failures     []failure
}

// failure is a case that went wrong, with what to type to see it again.
type failure struct {
	task
	reasons []string
}

// add sums one outcome.
func (t *tally) add(o *outcome) {
	t.cases++
	t.hours += o.hours
	if o.positive {
		t.positives++
	}

	if o.trace != nil {
		t.replayed++
	}

	if o.ranks > 256 {
		t.large++
	}

	t.hit, t.missed = t.hit+o.hit, t.missed+o.missed
	t.victims += len(o.victims)
	t.alarms += len(o.victims) + len(o.wrong)
	t.wrongLinks += len(o.wrong)
	if o.wrongNode() {
		t.victimCases++
	}

	if o.missed == 0 && !o.wrongNode() {
		t.allNodes++
	}

	t.cause += o.cause
	t.delays = append(t.delays, o.delays...)
	t.links, t.wantLinks = t.links+o.links, t.wantLinks+len(o.truth.Links)
	t.findings, t.wantFindings = t.findings+o.findings, t.wantFindings+len(o.truth.Findings)
	t.events, t.wantEvents = t.events+o.events, t.wantEvents+len(o.truth.Events)
	t.blinking += count(o.blinking)
	t.abstain += count(o.abstain)
	t.provable, t.asked = t.provable+count(o.provable), t.asked+count(o.asked)
	t.same += count(o.same)
	t.twinHit, t.twinMissed = t.twinHit+o.twinHit, t.twinMissed+o.twinMissed
	if t.rules == nil {
		t.rules, t.ruleCases, t.others = make([]ruled, len(rules)), make([]int, len(rules)), map[string]int{}
	}

	for k, r := range o.rules {
		t.rules[k].hit += r.hit
		t.rules[k].missed += r.missed
		t.rules[k].victims += r.victims
		t.ruleCases[k] += count(r.victims > 0)
	}

	for _, f := range o.others {
		t.others[f]++
	}

	if reasons := o.reasons(); len(reasons) > 0 {
		t.failures = append(t.failures, failure{o.task, reasons})
	}
}

// sort puts the failures in the order of their seeds: cases end in any order.
func (t *tally) sort() {
	slices.SortFunc(t.failures, func(a, b failure) int { return cmp.Compare(a.seed, b.seed) })
	slices.Sort(t.delays)
}

// reasons says what is wrong with an outcome, nothing when it is right.
func (o *outcome) reasons() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if o.missed > 0 {
		say("missed %d of %v (ranks %v)", o.missed, o.truth.SlowNodes, o.truth.SlowRanks)
	}

	if o.wrongNode() {
		say("falsely accused: %s", strings.Join(o.victims, ", "))
	}

	if o.hit > o.cause {
		say("cause %s, want %v", o.causes(), o.truth.Cause)
	}

	if o.links < len(o.truth.Links) {
		say("link %v not found", o.truth.Links)
	}

	if len(o.wrong) > 0 {
		say("links falsely accused: %v", o.wrong)
	}

	if o.findings < len(o.truth.Findings) {
		say("finding missing of %v", o.truth.Findings)
	}

	if o.events < len(o.truth.Events) {
		say("event missing on %s", o.truth.Events[0].Node)
	}

	row, _ := simulate.Row(o.scenario)
	if limit := late[row]; limit > 0 && len(o.delays) > 0 && slices.Max(o.delays) > limit {
		say("detected after %d steps, want %d", slices.Max(o.delays), limit)
	}

	if row == 13 && o.hit > 0 && !o.blinking {
		say("not called intermittent")
	}

	if row == 17 && !o.same {
		say("verdict differs from the one with right clocks")
	}

	return out
}

// late is the number of steps within which a row's culprit is to be detected.
var late = map[int]int{2: 16, 3: 10, 4: 8, 6: 25, 20: 40, 22: 96}

// bounded are the rows of which the oracle tells the bound, with their steps.
var bounded = map[int]int{2: 16, 3: 10, 4: 8, 6: 25, 22: 96}

func (o *outcome) causes() string {
	var out []string
	for _, n := range o.verdict.Nodes {
		if slices.Contains(o.truth.SlowNodes, n.Node) {
			out = append(out, n.Cause)
		}
	}

	return strings.Join(out, ",")
}

// recall is the share of culprits named, precision the share of the named that
// are culprits; 1 where there is nothing to name.
func (t *tally) recall() float64    { return share(t.hit, t.hit+t.missed) }
func (t *tally) precision() float64 { return share(t.hit, t.hit+t.victims) }

// percentile returns the q-quantile of the delays, steps; -1 where nobody was detected.
func (t *tally) percentile(q float64) int {
	if len(t.delays) == 0 {
		return -1
	}

	return t.delays[min(len(t.delays)-1, int(q*float64(len(t.delays))))]
}

// within is the share of all culprits that were detected within n steps.
func (t *tally) within(n int) float64 {
	k := 0
	for _, d := range t.delays {
		k += count(d <= n)
	}

	return share(k, t.hit+t.missed)
}

// merge adds another scenario's sums, of the same row.
func (t *tally) merge(o *tally) {
	t.cases, t.positives, t.replayed, t.large = t.cases+o.cases, t.positives+o.positives, t.replayed+o.replayed, t.large+o.large
	t.hit, t.missed, t.victims, t.victimCases = t.hit+o.hit, t.missed+o.missed, t.victims+o.victims, t.victimCases+o.victimCases
	t.cause += o.cause
	t.delays = append(t.delays, o.delays...)
	slices.Sort(t.delays)
}

func share(a, of int) float64 {
	if of == 0 {
		return 1
	}

	return float64(a) / float64(of)
}

func count(b bool) int {
	if b {
		return 1
	}

	return 0
}
