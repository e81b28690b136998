package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// The short form of the families: all of them, some variants of each. What they have
// to reach is in the table; here nothing may be worse than useless.
func TestFamilies_ShortForm(t *testing.T) {
	t.Parallel()
	tr, err := recorded()
	if err != nil {
		t.Fatal(err)
	}

	x := &suite{n: shortCases(), seed: seed(t), parallel: 2, traces: tr}
	families, err := x.run(context.Background(), simulate.Families(), nil)
	if err != nil {
		t.Fatal(err)
	}

	before, err := familiesBefore()
	if err != nil || before == nil {
		t.Errorf("the state before: %v, %v", before, err)
	}

	var b bytes.Buffer
	printFamilies(&b, families, before)
	t.Logf("scale: %d jobs a family\n%s", shortCases(), b.String())
	var all tally
	for _, f := range families {
		all = append(all, f...)
	}

	exact, victims := all.cases((*outcome).exact), all.sum((*outcome).alarms)
	if len(all) != shortCases()*len(simulate.Families()) || float64(exact) < 0.5*float64(len(all)) || float64(victims) > 0.1*float64(len(all))+2 {
		t.Errorf("%d of %d jobs are exact, %d innocents accused", exact, len(all), victims)
	}
}

// A family's job is judged by its nodes: exact means the culprits and nobody else, in
// a state that fits, and an undecidable one must stay undecided.
func TestFamily_Exact(t *testing.T) {
	lasting, over := simulate.Culprit{Node: "a", Impact: 0.1, Cause: []string{verdict.Compute}}, simulate.Culprit{Node: "a", UntilStep: 50, Impact: 0.1}
	nobody := simulate.Culprit{Node: "a", Undecidable: true}
	for name, c := range map[string]struct {
		culprit *simulate.Culprit
		state   string // of node a, "" = not named
		other   string // of node b, which is innocent
		decided bool
		want    string
	}{
		"named":                   {&lasting, verdict.Degraded, "", true, ""},
		"intermittent":            {&lasting, verdict.Intermittent, "", true, ""},
		"missed":                  {&lasting, "", "", true, "missed a"},
		"suspect":                 {&lasting, verdict.Suspect, "", true, "a is called suspect"},
		"recovered too early":     {&lasting, verdict.Recovered, "", true, "a is called recovered"},
		"recovered":               {&over, verdict.Recovered, "", true, ""},
		"degraded long after":     {&over, verdict.Degraded, "", true, "a is called degraded, and was over 40 steps before"},
		"victim":                  {&lasting, verdict.Degraded, verdict.Recovered, true, "falsely accused: b"},
		"suspected innocent":      {&lasting, verdict.Degraded, verdict.Suspect, true, ""},
		"undecided":               {&lasting, verdict.Degraded, "", false, "undecided"},
		"healthy":                 {nil, "", "", true, ""},
		"healthy, undecided":      {nil, "", "", false, "undecided"},
		"healthy, accused":        {nil, verdict.Degraded, "", true, "falsely accused: a"},
		"nobody knows":            {&nobody, "", "", false, ""},
		"nobody knows, decided":   {&nobody, "", "", true, "decided, though nobody can"},
		"nobody knows, but named": {&nobody, verdict.Degraded, "", false, "a named, though nobody can know"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &outcome{truth: simulate.Truth{ExpectExit: []int{0}}, verdict: verdict.New("j")}
			if c.culprit != nil {
				o.truth.ExpectExit, o.truth.Culprits, o.truth.SlowNodes = []int{3}, []simulate.Culprit{*c.culprit}, []string{"a"}
				if c.culprit.Undecidable {
					o.truth.ExpectExit = []int{4}
				}
			}

			o.verdict.Decided, o.verdict.Steps.Last = c.decided, 90
			for node, state := range map[string]string{"a": c.state, "b": c.other} {
				if state != "" {
					o.verdict.Nodes = append(o.verdict.Nodes, verdict.Node{Node: node, State: state, Cause: verdict.Compute, JobImpact: 0.08})
				}
			}

			o.score()
			if got := strings.Join(o.inexact(), "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}

	o := &outcome{truth: simulate.Truth{Culprits: []simulate.Culprit{lasting}, SlowNodes: []string{"a"}}, verdict: verdict.New("j")}
	o.verdict.Roles, o.verdict.Nodes = "topology", []verdict.Node{{Node: "a", State: verdict.Degraded, JobImpact: 0.08}}
	if got := o.costs(); len(got) != 1 || !got[0].known || math.Abs(got[0].off()-0.2) > 1e-9 {
		t.Errorf("costs %+v, want one that is off by 0.2", got)
	}
}

// Jobs that were judged wrongly once, each for a reason of its own: healthy ones whose
// nodes were accused, and faulty ones with a culprit hidden or an innocent beside him.
func TestSeeds_OnceWrong(t *testing.T) {
	t.Parallel()
	families := "the families without their faults"
	for _, c := range []struct{ kind, name, seed string }{
		{"-healthy", "heavy-tailed", "74"},
		{"-healthy", "drifting", "41"},
		{"-healthy", "drifting", "240"},
		{"-healthy", families, "19"},
		{"-healthy", families, "41"},
		{"-healthy", families, "75"},
		{"-healthy", families, "151"},
		{"-healthy", families, "181"},
		{"-healthy", families, "239"},
		{"-healthy", families, "371"},
		{"-healthy", families, "383"},
		{"-healthy", families, "401"},
		{"-healthy", families, "770119"},
		{"-healthy", families, "20635873462"}, // noise that wanders makes passing times on every node
		{"-scenario", "routing", "1014"},
		{"-scenario", "mixed-hardware", "770007"},
		{"-scenario", "transients", "770010"},
		{"-scenario", "backward-1.2", "1034751073842"},
		{"-scenario", "host-delay", "1034751073878"},
		{"-scenario", "absent-10", "1034751073782"},
		{"-scenario", "absent-10", "790"},
		{"-scenario", "evaluation", "783"},
		{"-scenario", "interleaved", "777000835"},
		{"-scenario", "slow-from-start", "803"},
		{"-scenario", "two-culprits", "1034751073758"},
	} {
		t.Run(c.name+" "+c.seed, func(t *testing.T) {
			var out, words bytes.Buffer
			if err := command(t.Context(), []string{c.kind, c.name, "-seed", c.seed, "-v"}, &out, &words); err != nil {
				t.Fatal(err)
			}

			if _, judged, _ := strings.Cut(out.String(), "# judgement: "); strings.TrimSpace(judged) != "" {
				t.Errorf("%s\n%s", judged, out.String())
			}
		})
	}
}
