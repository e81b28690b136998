package report

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// wait is the metric of exposed communication: the time a rank was blocked.
const wait = "wait"

// measure is a metric of evidence in words.
type measure struct {
	metric, name string
	of           frame.Metric // that it is drawn of; MetricCount for none
	every        string       // what its figures are of: saves are rare, and a step's mean would hide them
	spent        string       // follows "rank 3 spends 1.2 s"
	layer, title string       // of the matrix of ratios that it makes: on its button and above it; "" for none
}

// measures are the metrics, those that make a layer in the order they are chosen.
var measures = []measure{
	{"fp", "forward", frame.FP, perStep, "on its forward passes", "Forward", "Forward time against peers of the same role"},
	{"self", "own time", frame.Self, perStep, "on its own work", "Own time", "Own time (the step without waiting) against peers of the same role"},
	{"backward", "backward", frame.Backward, perStep, "on its backward passes", "Backward", "Backward time against peers of the same role"},
	{"dataloader", "data loading", frame.DataLoader, perStep, "on loading data", "Data loading", "Time to load data against peers of the same role"},
	{"checkpoint", "checkpoint", frame.Checkpoint, "a save", "on saving", "Checkpoint", "Time to save against peers of the same role"},
	{stepMetric, "step", frame.Step, perStep, "in all", "Step", "Step time against peers of the same role; in synchronous training it names nobody"},
	{"transfer", "transfer", frame.MetricCount, perStep, "on transfers", "", ""},
	{wait, "waiting", frame.Exposed, perStep, "on waiting", "", ""},
}

// perStep is what the figures of most metrics are of.
const perStep = "a step"

// stepMetric is the step itself. As evidence of slow loading it stands beside what the step would
// take without the excess, not beside the peers': their steps are as long.
const stepMetric = "step"

// measureOf returns a metric in words, one that a newer detector knows by its own name, without a layer.
func measureOf(metric string) measure {
	for _, m := range measures {
		if m.metric == metric {
			return m
		}
	}

	return measure{metric: metric, name: plain(metric), of: frame.MetricCount, every: perStep, spent: "on " + plain(metric)}
}

// evidenceName is what was measured, as a line of a table has it.
func evidenceName(e verdict.Evidence) string {
	m := measureOf(e.Metric)
	switch {
	case e.Metric == stepMetric:
		return m.name + ", beside the same without the excess"
	case m.every != perStep:
		return m.name + ", " + m.every
	}

	return m.name
}

// maxLayers bounds the matrices of a page, the one of waiting aside: all of them share its budget
// of bytes.
const maxLayers = 3

// chosen returns what layers are made of: what the verdict rests on
// first, then what tells most of the rest.
func (p *picture) chosen(v *verdict.Verdict) []measure {
	var list []measure
	add := func(metric string) {
		m := measureOf(metric)
		if p.has(m) && len(list) < maxLayers && !slices.Contains(list, m) && m.layer != "" {
			list = append(list, m)
		}
	}
	for _, n := range v.Nodes {
		for _, e := range n.Evidence {
			if e.Metric != stepMetric { // it names nobody
				add(e.Metric)
			}
		}
	}

	for _, metric := range []string{"fp", "self", "backward"} {
		add(metric)
	}

	if len(list) == 0 {
		add(stepMetric)
	}

	return list
}

// layers returns the matrices of a page, the most telling first.
func (p *picture) layers(v *verdict.Verdict) []layer {
	list := []layer{}
	if p.empty() {
		return list
	}

	for _, m := range p.chosen(v) {
		list = append(list, layer{Name: m.layer, Title: m.title, Ratio: true, values: p.relative(m.of, p.drawn...)})
	}

	if p.Has(frame.Exposed) && p.Has(frame.Step) {
		list = append(list, layer{Name: "Waiting", Title: "Share of the step spent in exposed communication: a culprit waits least, its victims most", values: p.waits()})
	}

	return list
}

// waits are the shares of the steps that were exposed communication, NaN where either was not measured.
func (p *picture) waits() [][]float32 {
	out := make([][]float32, len(p.Ranks))
	for row := range out {
		out[row] = slices.Repeat([]float32{frame.NaN}, len(p.Columns))
		for s := range p.Columns {
			if x, of := p.At(frame.Exposed, row, s), p.At(frame.Step, row, s); x >= 0 && of > 0 {
				out[row][s] = x / of
			}
		}
	}

	return out
}
