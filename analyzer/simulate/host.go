package simulate

import "slices"

// wholeHost slows all of a host that has a whole stage, half of one and more, or whole replicas: its devices,
// their backward passes, what lies between operations, or its loaders. Who does the same work is slow as
// well, most of them or all.
func (d *draw) wholeHost() {
	d.healthy(func(l *layout) bool {
		return l.shape.PP > 1 && l.shape.DP >= 3 && len(l.hosts) >= 3 && slices.ContainsFunc(l.hosts, func(h int) bool { return !l.minority(h) })
	}, anyShape)
	f := Fault{Node: d.host(func(l *layout, host int) bool { return !l.minority(host) }), From: d.onset()}
	switch d.turn(5) {
	case 0:
		return
	case 1:
		f.Kind, f.Factor = Compute, d.between(1.15, 1.6)
	case 2:
		f.Kind, f.Factor = Backward, d.between(1.2, 1.6)
	case 3:
		f.Kind, f.Share = Host, d.between(0.1, 0.3)
	case 4:
		f.Kind, f.Share = DataLoader, d.between(0.1, 0.3)
		d.c.Loader.Ranks = "all"
	}

	d.c.Faults = append(d.c.Faults, f)
}
