package link

import (
	"github.com/laggard-dev/laggard/analyzer/detect/state"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// State is what a later step asks of earlier ones.
func (w *Watch) State() state.Fields {
	w.settle()
	f := state.Fields{
		"ring": &w.ring, "base": &w.base, "base_n": &w.baseN, "noise": &w.noise, "jitter": &w.jitter, "slow": &w.slow,
		"passes": &w.passes, "since": &w.since, "found": &w.found, "normal": &w.normal,
		"gusts": &w.gusts, "gusting": &w.gusting, "risen": &w.risen, "gust": &w.gust, "cur": &w.cur, "rise": &w.rise, "cost": &w.cost,
		"labels": &w.labels, "count": state.Counts(&w.count), "classes": &w.classes, "busy": &w.busy,
		"wires": &w.wires, "sends": &w.sends, "usual": &w.usual, "volumes": &w.volumes,
	}
	for m := range w.seen {
		f["seen_"+frame.Metric(m).String()] = &w.seen[m]
	}

	return f
}
