package report

import (
	"fmt"
	"strings"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Explain writes the evidence of a verdict in words and numbers: what was
// compared with what, what was measured, what follows from it, and what can't be
// known.
func (p *Printer) Explain(v *verdict.Verdict) error {
	h := headlineOf(v)
	p.printf("%s\n", p.in(toneStyles[h.Tone]+bold, h.Title))
	p.wrapped("", h.More)
	p.printf("\n")
	p.wrapped("", scope(v))
	p.wrapped("", p.Made)
	for _, n := range v.Nodes {
		explainNode(p, n)
	}

	for _, l := range v.Links {
		explainLink(p, l)
	}

	for _, f := range v.Findings {
		p.printf("\n%s  %s\n", p.in(bold, findingTitle(f)), p.in(dim, plain(f.Kind)))
		p.wrapped("  ", sentence(capital(plain(f.Detail))))
		if f.Ratio > 0 {
			p.wrapped("  ", fmt.Sprintf("The heavy stages %s do %s the work of a median stage.", stages(f.Stages), times(f.Ratio)))
		}

		if len(f.Ranks) > 0 {
			p.wrapped("  ", "It concerns ranks "+rankList(f.Ranks, 12)+".")
		}

		p.wrapped("  ", costOfFinding(f)+" No node is blamed for it.")
	}

	for _, e := range v.Events {
		p.printf("\n%s\n", p.in(bold, "Passed by itself"))
		p.wrapped("  ", sentence(eventSentence(e)))
	}

	arrivalsTable(p, v.Arrivals)
	p.printf("\n%s\n", p.in(bold, "How sure is this"))
	for _, s := range limits(v, pictureOf(p.Frame)) {
		p.wrapped("  ", s)
	}

	return p.err
}

// explainNode writes what is wrong with a node, the evidence, its ranks over time, how sure that is, and
// what to do. A node that has recovered needs nothing done.
func explainNode(p *Printer, n verdict.Node) {
	p.printf("\n%s  %s, cause %s\n", p.in(bold, plain(n.Node)), p.in(stateStyles[n.State], plain(n.State)), plain(n.Cause))
	p.wrapped("  ", nodeSentence(n))
	if n.Devices > 0 && len(n.Ranks) > 0 {
		p.wrapped("  ", slowOf(n))
	}

	for _, e := range n.Evidence {
		p.wrapped("  - ", evidenceSentence(e))
	}

	sparkLines(p, n)
	p.wrapped("  ", fmt.Sprintf("The fault began at %s and was seen at %s; confidence %s.", stepAt(n.SinceStep, n.SinceTime), stepAt(n.DetectedStep, n.DetectedTime), sure(n.Confidence)))
	if n.Detail != "" {
		p.wrapped("  ", sentence(capital(plain(n.Detail))))
	}

	if a, ok := advice[n.Cause]; ok && n.State != verdict.Recovered {
		p.wrapped("  ", "What to do: "+a)
	}
}

// slowOf says how many of a node's ranks are slow and, of what a device does, what follows from it.
func slowOf(n verdict.Node) string {
	is := "are"
	if len(n.Ranks) == 1 {
		is = "is"
	}

	s := fmt.Sprintf("%d of its %d measured ranks %s slow", len(n.Ranks), n.Devices, is)
	switch {
	case n.Cause == verdict.Compute && len(n.Ranks) < n.Devices:
		s += ": the others keep pace, so look at a device rather than at the host"
	case n.Cause == verdict.Compute && n.Devices > 1:
		s += ": look at the host rather than at a device"
	}

	return s + "."
}

// evidenceSentence puts a rank's value beside that of its peers: both, their quotient, and how
// unusual it is.
func evidenceSentence(e verdict.Evidence) string {
	m := measureOf(e.Metric)
	s := fmt.Sprintf("rank %d spends %s %s (median) %s, its peers in the same role %s", e.Rank, seconds(e.Value), m.every, m.spent, seconds(e.Peers))
	if e.Metric == stepMetric {
		s = fmt.Sprintf("a step of rank %d takes %s (median), without the excess %s", e.Rank, seconds(e.Value), seconds(e.Peers))
	}

	if e.Peers > 0 && e.Value > 0 {
		more := e.Value - e.Peers
		word := "more"
		if more < 0 {
			more, word = -more, "less"
		}

		s += fmt.Sprintf(": %s, %s %s", times(e.Value/e.Peers), seconds(more), word)
	}

	if e.Z != 0 {
		s += fmt.Sprintf(" (z = %.1f: that many times the usual spread between such ranks)", finite(e.Z))
	}

	return s + "."
}

// explainLink writes what is slow about a group, and why the time that is compared is the wire's.
func explainLink(p *Printer, l verdict.Link) {
	p.printf("\n%s  %s\n", p.in(bold, "Group "+plain(l.Group)), p.in(stateStyles[l.State], plain(l.State)))
	p.wrapped("  ", linkSentence(l))
	p.wrapped("  ", "The time compared is the shortest in which any member was through with the same operation: it holds no waiting for late ranks.")
	if l.Detail != "" {
		p.wrapped("  ", sentence(capital(plain(l.Detail))))
	}
}

// stages names the stages of a finding, in brackets.
func stages(list []int) string {
	if len(list) == 0 {
		return "together"
	}

	return "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]") + ", counted from 0)"
}

// costOfFinding says what a finding costs the job; a cost of 0 is one that isn't known.
func costOfFinding(f verdict.Finding) string {
	if !(f.JobImpact > 0) {
		return "What it costs can't be told from what was recorded."
	}

	return cost(f.JobImpact, 0)
}

// limits are the sentences on what the verdict rests on, and what was not seen.
func limits(v *verdict.Verdict, p *picture) []string {
	if mixed(v) {
		return []string{"Nothing of it was used."}
	}

	list := []string{fmt.Sprintf("%s of the measurements expected (ranks × steps) are there.", percent(v.Coverage))}
	if s := worldSentence(v.WorldSizeFrom); s != "" {
		list = append(list, strings.TrimSpace(s))
	}

	if u := v.Unread; u != nil && u.Lines > 0 {
		list = append(list, fmt.Sprintf("%s of %s lines of the files were not understood and left out.", grouped(u.Lines), grouped(u.Of)))
	}

	if v.Attempts > 1 {
		list = append(list, fmt.Sprintf("The job was started %d times; each attempt was compared with itself.", v.Attempts))
	}

	if s := rolesSentence(v.Roles); s != "" {
		list = append(list, s)
	}

	return append(list, p.unmeasured()...)
}
