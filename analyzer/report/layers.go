package report

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// wait is the metric of exposed communication: the time a rank was blocked.
const wait = "wait"

// layerTitles are the metrics that make a layer of ratios, with what is written on
// its button and above it, in the order they are chosen.
var layerTitles = []struct{ metric, name, title string }{
	{"fp", "Forward", "Forward time against peers of the same role"},
	{"self", "Own time", "Own time (the step without waiting) against peers of the same role"},
	{"backward", "Backward", "Backward time against peers of the same role"},
	{"dataloader", "Data loading", "Time to load data against peers of the same role"},
	{"checkpoint", "Checkpoint", "Time to save against peers of the same role"},
	{"step", "Step", "Step time against peers of the same role; in synchronous training it names nobody"},
}

// maxLayers bounds the matrices of a page, the one of waiting aside.
const maxLayers = 3

// chosen returns the metrics that layers are made of: what the verdict rests on
// first, then what tells most of the rest.
func (p *Picture) chosen(v *verdict.Verdict) []string {
	var list []string
	add := func(metric string) {
		if len(list) < maxLayers && p.metric(metric) != nil && !slices.Contains(list, metric) && titleOf(metric) >= 0 {
			list = append(list, metric)
		}
	}
	for _, n := range v.Nodes {
		for _, e := range n.Evidence {
			add(e.Metric)
		}
	}

	for _, metric := range []string{"fp", "self", "backward"} {
		add(metric)
	}

	if len(list) == 0 {
		add("step")
	}

	return list
}

func titleOf(metric string) int {
	for i, t := range layerTitles {
		if t.metric == metric {
			return i
		}
	}

	return -1
}

// layers returns the matrices of a page, the most telling first.
func (p *Picture) layers(v *verdict.Verdict) []layer {
	var list []layer
	if p.empty() {
		return list
	}

	for _, metric := range p.chosen(v) {
		t := layerTitles[titleOf(metric)]
		list = append(list, layer{name: t.name, title: t.title, ratio: true, values: p.relative(p.metric(metric))})
	}

	if part, whole := p.metric(wait), p.metric("step"); part != nil && whole != nil {
		list = append(list, layer{name: "Waiting", title: "Share of the step spent in exposed communication: a culprit waits least, its victims most", values: p.shares(part, whole)})
	}

	return list
}

// shares are the values of one metric as shares of another.
func (p *Picture) shares(part, whole [][]float32) []float32 {
	n := len(p.Steps)
	out := make([]float32, len(p.Ranks)*n)
	for i := range p.Ranks {
		for s := range n {
			out[i*n+s] = share(cell(part, i, s), cell(whole, i, s))
		}
	}

	return out
}
