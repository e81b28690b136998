package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// toneStyles and toneMarks say how serious a verdict is, by tone. The mark says it where there are no
// colours.
var toneStyles = map[string]string{good: green, note: green, warn: yellow, bad: red, unknown: cyan}
var toneMarks = map[string]string{good: "✓", note: "✓", warn: "▲", bad: "●", unknown: "?"}

// Table writes a verdict for people at a terminal.
func (p *Printer) Table(v *verdict.Verdict) error {
	h := headlineOf(v)
	p.printf("%s  %s\n", p.in(toneStyles[h.Tone]+bold, toneMarks[h.Tone]+" "+strings.ToUpper(h.Label)), p.in(bold, h.Title))
	p.wrapped("  ", h.More)
	p.wrapped("  ", scope(v))
	p.wrapped("  ", p.Made)
	if len(v.Nodes) > 0 {
		nodesTable(p, v.Nodes)
	}

	if len(v.Links) > 0 {
		linksTable(p, v.Links)
	}

	if len(v.Findings) > 0 {
		p.printf("\n%s\n", p.in(dim, "FINDINGS ABOUT THE JOB"))
		for _, f := range v.Findings {
			p.printf("  %s  %s%s\n", p.in(yellow, "•"), p.in(bold, findingTitle(f)), p.in(dim, impactNote(f.JobImpact)))
			p.wrapped("     ", sentence(capital(plain(f.Detail))))
		}
	}

	if len(v.Events) > 0 {
		p.printf("\n%s\n", p.in(dim, "PASSED BY ITSELF"))
		for _, e := range v.Events {
			p.printf("  %s  %s\n", p.in(cyan, "•"), eventSentence(e))
		}
	}

	arrivalsTable(p, v.Arrivals)
	return p.err
}

// scope says what the verdict is about.
func scope(v *verdict.Verdict) string {
	s := fmt.Sprintf("Job %s: %s, %s", plain(v.Job), ranksOf(v), at(v.Steps.First, v.Steps.Last))
	if v.Steps.Analyzed > 0 {
		s += fmt.Sprintf(" (%s analyzed)", grouped(v.Steps.Analyzed))
	}

	if from, to := clock(v.Steps.FirstTime), clock(v.Steps.LastTime); from != "" && to != "" {
		s += ", " + from + " to " + to
	}

	if mixed(v) {
		return s + "."
	}

	if v.Attempts > 1 {
		s += ", " + count(v.Attempts, "attempt")
	}

	return s + ", coverage " + percent(v.Coverage) + ". " + worldSentence(v.WorldSizeFrom) + rolesSentence(v.Roles)
}

// ranksOf says how many ranks the job has, and how many of them were recorded.
func ranksOf(v *verdict.Verdict) string {
	if v.Recorded > 0 && v.Recorded < v.WorldSize {
		return fmt.Sprintf("%s of %s recorded", grouped(v.Recorded), count(v.WorldSize, "rank"))
	}

	return count(v.WorldSize, "rank")
}

// clock is a verdict's time for people: local, "" when it is unknown.
func clock(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return ""
	}

	return t.Local().Format("2006-01-02 15:04:05")
}

// stepAt is a step with its time where that is known: "step 12 (2026-11-22 14:03:20)".
func stepAt(step int64, stamp string) string {
	s := fmt.Sprintf("step %d", step)
	if c := clock(stamp); c != "" {
		s += " (" + c + ")"
	}

	return s
}

// Made says when an output was made, and by which version.
func Made(at time.Time, by string) string {
	return "Made " + at.Local().Format("2006-01-02 15:04:05 MST") + " by laggard " + by + "."
}

// impactNote follows a finding's title, "" where its cost is not known.
func impactNote(impact float64) string {
	if !(impact > 0) {
		return ""
	}

	return " " + percent(impact) + " of step time"
}

// stateStyles are the colours of a node's or link's state; a state that is new here has none.
var stateStyles = map[string]string{
	verdict.Degraded: red + bold, verdict.Intermittent: red, verdict.Suspect: yellow, verdict.Recovered: green,
}

// nodesTable prints a line a node, under it when it began, its evidence and its ranks over time.
func nodesTable(p *Printer, nodes []verdict.Node) {
	head := []string{"NODE", "STATE", "CAUSE", "RANKS", "SLOWDOWN", "COSTS", "SINCE", "SEEN AT", "SURE"}
	var lines [][]string
	for _, n := range nodes {
		ranks := rankList(n.Ranks, 4)
		if n.Devices > len(n.Ranks) {
			ranks += fmt.Sprintf(" (%d of %d)", len(n.Ranks), n.Devices)
		}

		lines = append(lines, []string{
			plain(n.Node), plain(n.State), plain(n.Cause), ranks, times(n.Slowdown), costCell(n.JobImpact, n.JobImpactMax),
			fmt.Sprint(n.SinceStep), fmt.Sprint(n.DetectedStep), sure(n.Confidence),
		})
	}

	aligned(p, head, lines, func(i, column int, cell string) string {
		if column == 1 {
			return p.in(stateStyles[nodes[i].State], cell)
		}

		if column == 0 {
			return p.in(bold, cell)
		}

		return cell
	}, func(i int) {
		n := nodes[i]
		clockLine(p, "began", n.SinceTime, "seen", n.DetectedTime, "ended", n.UntilTime)
		evidenceLines(p, n)
		sparkLines(p, n)
	})
}

// clockLine prints words, each with its time, where that is known.
func clockLine(p *Printer, words ...string) {
	text := ""
	for i := 0; i < len(words); i += 2 {
		if c := clock(words[i+1]); c != "" && text == "" {
			text = "    " + p.in(dim, pad(words[i], 13)) + " " + c
		} else if c != "" {
			text += ", " + words[i] + " " + c
		}
	}

	if text != "" {
		p.printf("%s\n", text)
	}
}

// sure returns a confidence, which is never all.
func sure(confidence float64) string {
	if confidence > 0.995 {
		return ">99%"
	}

	return percent(confidence)
}

// evidenceLines prints the first pieces of evidence, and the detector's own words.
func evidenceLines(p *Printer, n verdict.Node) {
	const most = 4 // lines a node; explain has all
	for i, e := range n.Evidence {
		if i == most {
			p.printf("    %s\n", p.in(dim, fmt.Sprintf("and %d more measurements (laggard explain shows them)", len(n.Evidence)-most)))
			break
		}

		other, against := "peers", ""
		if e.Metric == stepMetric {
			other = "without it"
		}

		if e.Peers > 0 {
			against = " = " + times(e.Value/e.Peers)
		}

		m := measureOf(e.Metric)
		p.printf("    %s rank %-5d %9s %s, %s %9s%s\n", p.in(dim, pad(m.name, 13)), e.Rank, seconds(e.Value), m.every, other, seconds(e.Peers), against)
	}

	if n.Detail != "" {
		p.wrapped("    ", sentence(capital(plain(n.Detail))))
	}
}

// sparkLines draws the first ranks of a node over the steps, against peers.
func sparkLines(p *Printer, n verdict.Node) {
	picture := pictureOf(p.Frame)
	measures := picture.chosen(&verdict.Verdict{Nodes: []verdict.Node{n}})
	if len(measures) == 0 {
		return
	}

	const most = 2 // ranks a node; the page has all
	for _, number := range n.Ranks[:min(most, len(n.Ranks))] {
		i := picture.rowOf(number)
		if i < 0 {
			continue
		}

		r := picture.drawn[i]
		line, low, high := spark(picture.relative(measures[0].of, r)[r.row], max(8, min(60, p.width()-40)))
		if line != "" {
			p.printf("    %s %s %s\n", p.in(dim, pad(fmt.Sprintf("rank %d", number), 13)), p.in(stateStyles[n.State], line), p.in(dim, times(low)+"…"+times(high)+" of peers"))
		}
	}
}

// linksTable prints a line a link, under it when it began and the detector's own words.
func linksTable(p *Printer, links []verdict.Link) {
	head := []string{"LINK (GROUP)", "STATE", "NODES", "RANKS", "SLOWDOWN", "COSTS", "SINCE"}
	var lines [][]string
	for _, l := range links {
		on := names(l.Nodes, 4)
		if on == "" {
			on = "–"
		}

		lines = append(lines, []string{plain(l.Group), plain(l.State), on, rankList(l.Ranks, 6), times(l.Slowdown), costCell(l.JobImpact, l.JobImpactMax), fmt.Sprint(l.SinceStep)})
	}

	aligned(p, head, lines, func(i, column int, cell string) string {
		if column == 1 {
			return p.in(stateStyles[links[i].State], cell)
		}

		return cell
	}, func(i int) {
		clockLine(p, "began", links[i].SinceTime)
		p.wrapped("    ", sentence(capital(plain(links[i].Detail))))
	})
}

// eventSentence says who was slower for a while, and when. It has no full stop.
func eventSentence(e verdict.Event) string {
	who := "the job"
	if e.Node != "" {
		who = plain(e.Node)
	}

	switch {
	case len(e.Ranks) == 1:
		who += ", rank " + rankList(e.Ranks, 6)
	case len(e.Ranks) > 1:
		who += ", ranks " + rankList(e.Ranks, 6)
	}

	s := fmt.Sprintf("%s: slower in %s, %s", who, at(e.FirstStep, e.LastStep), plain(e.Cause))
	if from, to := clock(e.FirstTime), clock(e.LastTime); from != "" && to != "" {
		s += ", " + from + " to " + to
	}

	return s
}
