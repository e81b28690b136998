package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// tally is the judged cases of a scenario or a family, or of several.
type tally []*outcome

// sum adds up what a case has of something.
func (t tally) sum(f func(*outcome) int) int {
	n := 0
	for _, o := range t {
		n += f(o)
	}

	return n
}

// cases is how many cases are so.
func (t tally) cases(is func(*outcome) bool) int {
	return t.sum(func(o *outcome) int { return count(is(o)) })
}

// of is the share of cases that are so.
func (t tally) of(is func(*outcome) bool) float64 { return share(t.cases(is), len(t)) }

// What a tally asks of each case.
func (o *outcome) positive() bool  { return len(o.truth.SlowNodes)+len(o.truth.Links) > 0 }
func (o *outcome) wrongNode() bool { return len(o.victims) > 0 }
func (o *outcome) undecided() bool { return !o.verdict.Decided }
func (o *outcome) replayed() bool  { return o.trace != nil }
func (o *outcome) culprits() int   { return len(o.truth.SlowNodes) }
func (o *outcome) found() int      { return o.hit }
func (o *outcome) rightCause() int { return o.cause }
func (o *outcome) nodesWrong() int { return len(o.victims) }
func (o *outcome) linksWrong() int { return len(o.wrong) }
func (o *outcome) alarms() int     { return len(o.victims) + len(o.wrong) }
func (o *outcome) exactly() bool   { return o.hit == o.culprits() && !o.wrongNode() }
func (o *outcome) sameAsTwin() bool {
	return o.twin != nil && slices.Equal(essence(o.verdict), essence(o.twin.verdict))
}

// recall is the share of culprits named, precision the share of the named that
// are culprits; 1 where there is nothing to name.
func (t tally) recall() float64 { return share(t.sum((*outcome).found), t.sum((*outcome).culprits)) }

func (t tally) precision() float64 {
	found := t.sum((*outcome).found)
	return share(found, found+t.sum((*outcome).nodesWrong))
}

// cause is the share of the culprits named whose cause is an accepted one.
func (t tally) cause() float64 { return share(t.sum((*outcome).rightCause), t.sum((*outcome).found)) }

// victims is the share of cases in which an innocent node is accused.
func (t tally) victims() float64 { return t.of((*outcome).wrongNode) }

// told is the share of what verdicts have to tell that they do tell.
func told(f func(*outcome) (told, wanted int)) func(tally) float64 {
	return func(t tally) float64 {
		told, wanted := 0, 0
		for _, o := range t {
			a, b := f(o)
			told, wanted = told+a, wanted+b
		}

		return share(told, wanted)
	}
}

// twins are the same jobs without what the scenario is about.
func (t tally) twins() tally {
	var out tally
	for _, o := range t {
		out = append(out, o.twin)
	}

	return out
}

// delays are the steps to detection of every culprit named, shortest first.
func (t tally) delays() []int {
	var out []int
	for _, o := range t {
		out = append(out, o.delays...)
	}

	slices.Sort(out)
	return out
}

// percentile returns the q-quantile of the delays, steps; -1 where nobody was detected.
func (t tally) percentile(q float64) int {
	d := t.delays()
	if len(d) == 0 {
		return -1
	}

	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// within is the share of all culprits that were detected within n steps.
func (t tally) within(n int) float64 {
	k := 0
	for _, d := range t.delays() {
		k += count(d <= n)
	}

	return share(k, t.sum((*outcome).culprits))
}

// shownFailures bounds the failing cases that are printed per scenario.
const shownFailures = 12

// failures lists the cases that went wrong, those with a false alarm first, as what to
// type to see them.
func (t tally) failures(w io.Writer, name, what string) {
	t = slices.Clone(t)
	slices.SortStableFunc(t, func(a, b *outcome) int { return cmp.Compare(b.alarms(), a.alarms()) })
	var lines []string
	for _, o := range t {
		if reasons := o.reasons(); len(reasons) > 0 {
			lines = append(lines, fmt.Sprintf("  %v  # %s\n", o.task, strings.Join(reasons, "; ")))
		}
	}

	if len(lines) == 0 {
		return
	}

	fmt.Fprintf(w, "\n%s: %d of %d %s\n", name, len(lines), len(t), what)
	for _, l := range lines[:min(len(lines), shownFailures)] {
		fmt.Fprint(w, l)
	}

	if more := len(lines) - shownFailures; more > 0 {
		fmt.Fprintf(w, "  … and %d more\n", more)
	}
}

// causes are those that the verdict gives the culprits.
func (o *outcome) causes() string {
	var out []string
	for _, n := range o.verdict.Nodes {
		if slices.Contains(o.truth.SlowNodes, n.Node) {
			out = append(out, n.Cause)
		}
	}

	return strings.Join(out, ",")
}

// share is a part of a whole; of nothing it is all, so that a demand on no cases is met.
func share(a, of int) float64 {
	if of == 0 {
		return 1
	}

	return float64(a) / float64(of)
}

// count is 1 for true.
func count(b bool) int {
	if b {
		return 1
	}

	return 0
}
