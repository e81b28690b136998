package detect

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/cost"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// blame lists the faults of those who are accused, and of those who come and go.
func (e *Engine) blame(culprits []candidate) []cost.Fault {
	var out []cost.Fault
	add := func(f cost.Fault) {
		f.Node = e.nodeOf(f.Row)
		switch k := slices.IndexFunc(out, func(o cost.Fault) bool { return o.Row == f.Row }); {
		case k < 0:
			out = append(out, f)
		case out[k].Slight:
			out[k] = f
		default:
			for s := range signals {
				out[k].Has[s] = out[k].Has[s] || f.Has[s]
			}
		}
	}
	for i := range culprits {
		c := &culprits[i]
		f := cost.Fault{Row: c.row, From: e.recent.Count}
		for s := range signals {
			if f.Has[s] = c.has[s]; c.has[s] {
				f.From = max(0, min(f.From, e.recent.Count-e.tracks[s].Age(c.row)))
			}
		}

		add(f)
	}

	out = e.withMates(out)
	for _, u := range e.slowUnits(culprits) {
		for _, r := range u.rows {
			add(e.fault(u, r))
		}
	}

	return out
}

// slowUnits lists the replicas and the roles at home that are slow.
func (e *Engine) slowUnits(culprits []candidate) []unit {
	return append(e.slowWholes(), e.slowAlone(culprits)...)
}

// withMates adds the other ranks of the blamed nodes: what slows a host slows all of
// it, also those of whom it is not sure yet.
func (e *Engine) withMates(faults []cost.Fault) []cost.Fault {
	first := map[int32]cost.Fault{}
	rows := map[int]bool{}
	for _, f := range faults {
		rows[f.Row] = true
		n := e.layout.Node[f.Row]
		o, ok := first[n]
		if !ok {
			o = f
		}

		for s := range signals {
			o.Has[s] = o.Has[s] || f.Has[s]
		}

		o.From = min(o.From, f.From)
		first[n] = o
	}

	for r := range e.n {
		if f, ok := first[e.layout.Node[r]]; ok && len(first) > 0 && !rows[r] && e.layout.Present[r] {
			f.Row, f.Slight = r, true
			faults = append(faults, f)
		}
	}

	return faults
}

// spikes reports whether a rank is slow in the step at hand.
func (e *Engine) spikes(r int) bool {
	for s := range signals {
		if e.recent.Place[s][(e.recent.Count-1)%threshold.Window] > 0 && e.v[s][r] > sequential.SpikeEffect {
			return true
		}
	}

	return false
}
