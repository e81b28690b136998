package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// reasons says what is wrong with an outcome, nothing when it is right: of a family's job also the
// costs, of a scenario's case what its row of the bar asks for beside.
func (o *outcome) reasons() []string {
	out := o.inexact()
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if o.hit > o.cause {
		say("cause %s, want %v", o.causes(), o.truth.Cause)
	}

	if o.family() {
		for _, c := range o.costs() {
			switch {
			case c.known && c.off() > costWorst:
				say("cost of %s: %.4f for %.4f", c.who, c.stated, c.truth)
			case !c.known && !c.bounded():
				say("cost of %s: at most %.4f for %.4f", c.who, c.most, c.truth)
			}
		}

		return out
	}

	if o.findings < len(o.truth.Findings) {
		say("finding missing of %v", o.truth.Findings)
	}

	if limit := limits[o.row()]; limit > 0 && len(o.delays) > 0 && slices.Max(o.delays) > limit {
		say("detected after %d steps, want %d", slices.Max(o.delays), limit)
	}

	if o.row() == 13 && o.hit > 0 && !o.intermittent {
		say("not called intermittent")
	}

	if o.row() == 17 && !o.sameAsTwin() {
		say("verdict differs from the one with right clocks")
	}

	return out
}

// exact reports whether exactly the culprits are named.
func (o *outcome) exact() bool { return len(o.inexact()) == 0 }

// undecidable reports whether nobody can decide the job: exact there is exit code 4 and nobody named.
func (o *outcome) undecidable() bool {
	return slices.Equal(o.truth.ExpectExit, []int{verdict.ExitUndecided})
}

// longOver is how many steps after the end of a fault it must be called recovered.
const longOver = 40

// inexact says in what the named nodes and links differ from the culprits, nothing
// where they are exactly those. It asks the verdict's nodes, not the exit code.
func (o *outcome) inexact() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	v, t := o.verdict, &o.truth
	if o.alarms() > 0 {
		say("falsely accused: %s", strings.Join(append(slices.Clone(o.victims), o.wrong...), ", "))
	}

	if v.Decided && o.undecidable() {
		say("decided, though nobody can")
	}

	if !v.Decided && !slices.Contains(t.ExpectExit, verdict.ExitUndecided) {
		say("undecided")
	}

	for i := range t.Culprits {
		c := &t.Culprits[i]
		state, _, _ := said(v, c)
		switch {
		case c.Undecidable && slices.Contains(named, state):
			say("%s%s named, though nobody can know", c.Node, c.Link)
		case c.Undecidable:
		case state != "" && state != verdict.Recovered && c.UntilStep > 0 && int(v.Steps.Last)-c.UntilStep >= longOver:
			say("%s%s is called %s, and was over %d steps before", c.Node, c.Link, state, int(v.Steps.Last)-c.UntilStep)
		case state == verdict.Degraded || state == verdict.Intermittent:
		case state == verdict.Recovered && c.UntilStep > 0:
		case state == "":
			say("missed %s%s (ranks %v)", c.Node, c.Link, c.Ranks)
		default:
			say("%s%s is called %s", c.Node, c.Link, state)
		}
	}

	if o.events < len(t.Events) {
		say("event missing on %s", t.Events[0].Node)
	}

	return out
}

// said is what a verdict says of a culprit, nothing where it doesn't name it; most is 0 where it
// knows the cost. A culprit is a node or a link, so one of its names is empty.
func said(v *verdict.Verdict, c *simulate.Culprit) (state string, cost, most float64) {
	for _, n := range v.Nodes {
		if n.Node == c.Node && c.Node != "" {
			return n.State, n.JobImpact, n.JobImpactMax
		}
	}

	for _, l := range v.Links {
		if l.Group == c.Link && c.Link != "" {
			return l.State, l.JobImpact, l.JobImpactMax
		}
	}

	return "", 0, 0
}

// cost is what a verdict says that a culprit costs, beside the truth.
type cost struct {
	who                 string
	stated, most, truth float64
	known               bool // it can be known, or the verdict says that it is: stated is no bound
}

// off is the relative error of a cost; what is below 2 % counts as 2 %.
func (c cost) off() float64 { return math.Abs(c.stated-c.truth) / max(0.02, c.truth) }

// bounded reports whether the truth is not above what the verdict says at most.
func (c cost) bounded() bool { return c.truth <= c.most+1e-9 }

// costs compares the costs of the culprits that are named, and of all together where
// all are and last: what is over is no part of what a verdict says that the job would save.
func (o *outcome) costs() (out []cost) {
	v := o.verdict
	add := func(who string, stated, most, truth float64) {
		out = append(out, cost{who: who, stated: stated, most: cmp.Or(most, stated), truth: truth, known: o.tellsWaits || most == 0})
	}
	for i := range o.truth.Culprits {
		c := &o.truth.Culprits[i]
		if state, stated, most := said(v, c); slices.Contains(named, state) {
			add(c.Node+c.Link, stated, most, c.Impact)
		}
	}

	over := slices.ContainsFunc(o.truth.Culprits, func(c simulate.Culprit) bool { return c.UntilStep > 0 })
	if len(out) > 1 && len(out) == len(o.truth.Culprits) && !over {
		add("all", v.JobImpact, v.JobImpactMax, o.truth.Impact)
	}

	return out
}
