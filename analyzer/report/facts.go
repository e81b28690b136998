package report

import (
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fact is one figure at the top of the page.
type fact struct {
	Value, Unit, Label, Note string
}

// facts are the figures at the top: what it costs first.
func facts(v *verdict.Verdict, p *picture, stepTimes []float64) []fact {
	typical := median(known(stepTimes))
	var list []fact
	nodes, links := convicted(v)
	impact := v.Most()
	if hours, ok := nodeHours(p, impact, stepTimes, nodes, links); ok && impact > 0 {
		most := "" // a bound is said to be one
		if v.JobImpactMax > v.JobImpact {
			most = "≤"
		}

		list = append(list, fact{Value: most + hoursText(hours), Unit: "node-hours", Label: "lost so far", Note: "in " + seconds(total(stepTimes)) + " of steps"})
		list = append(list, fact{Value: most + hoursText(impact*24*float64(p.nodes())), Unit: "node-hours", Label: "lost a day, if it goes on", Note: "on " + count(p.nodes(), "node")})
	}

	if impact > 0 {
		list = append(list, fact{Value: costCell(v.JobImpact, v.JobImpactMax), Label: "of step time waits for it", Note: stepNote(typical, impact)})
	}

	if len(nodes) > 0 {
		n := nodes[0]
		list = append(list, fact{Value: times(n.Slowdown), Label: "against its peers", Note: plain(n.Node) + ", " + plain(n.Cause)})
	} else if len(links) > 0 {
		list = append(list, fact{Value: times(links[0].Slowdown), Label: "transfer time against like groups", Note: plain(links[0].Group)})
	}

	if len(nodes) > 0 && nodes[0].DetectedStep >= nodes[0].SinceStep && !v.Healthy {
		return append(list, fact{Value: fmt.Sprint(nodes[0].SinceStep), Label: "is the step it began at", Note: fmt.Sprintf("seen at step %d", nodes[0].DetectedStep)})
	}

	if typical > 0 && len(list) == 0 {
		list = append(list, fact{Value: seconds(typical), Label: "a step (median)"})
	}

	list = append(list, fact{Value: grouped(v.WorldSize), Label: "ranks", Note: nodesNote(p)})
	if mixed(v) {
		return list
	}

	list = append(list, fact{Value: grouped(v.Steps.Analyzed), Label: "steps analyzed", Note: at(v.Steps.First, v.Steps.Last)})
	list = append(list, fact{Value: percent(v.Coverage), Label: "of the measurements are there", Note: "ranks × steps"})
	return list
}

// nodesNote says on how many nodes the job runs, "" where nothing is drawn.
func nodesNote(p *picture) string {
	if len(p.drawn) == 0 {
		return ""
	}

	return "on " + count(p.nodes(), "node")
}

// stepNote says what an impact is of a step, in seconds.
func stepNote(t, impact float64) string {
	if !(t > 0) {
		return ""
	}

	return fmt.Sprintf("%s of every %s", seconds(t*impact), seconds(t))
}

// nodeHours is what the culprits have cost: their share of the time since they
// began, on all nodes of the job.
func nodeHours(p *picture, impact float64, stepTimes []float64, nodes []verdict.Node, links []verdict.Link) (float64, bool) {
	if len(p.drawn) == 0 {
		return 0, false
	}

	all, at := total(stepTimes), p.stepIndex(earliest(nodes, links))
	share := float64(len(p.Columns)-at) / float64(len(p.Columns))
	return impact * all * share * float64(p.nodes()) / 3600, all > 0
}

// hoursText returns hours with about two digits, large ones as whole numbers.
func hoursText(h float64) string {
	switch {
	case h >= 99.5:
		return grouped(int(math.Round(h)))
	case h >= 9.95:
		return fmt.Sprintf("%.0f", h)
	case h >= 0.0995:
		return fmt.Sprintf("%.1f", h)
	}

	return fmt.Sprintf("%.2g", h)
}
