package simulate

// compound puts together what the other families have one at a time: two kinds of schedule and of
// hardware, work that changes, routing, congestion, clocks, losses, a restart, groups that nobody told, long
// tails; with no culprit, one or two.
func (d *draw) compound() {
	d.healthy(func(l *layout) bool { return l.shape.DP >= 4 && len(l.hosts) >= 6 }, anyShape)
	d.c.Steps = 300 + d.IntN(300)
	d.schedule()
	d.changes()
	d.surroundings()
	d.recording()
	d.slowDevices()
	d.tails()
}

// schedule is how the passes of a step go, and how the model is split.
func (d *draw) schedule() {
	if s := &d.c.Shape; s.PP > 1 && d.chance(0.2) {
		s.Chunks, s.MicroBatches = 2+d.IntN(2), s.PP*(1+d.IntN(2))
	}

	if d.c.Shape.PP > 1 && d.chance(0.2) {
		d.c.Model.Stages = d.perStage(0.8, 1.3)
	}

	d.c.Model.Recompute = d.chance(0.25)
	if d.c.Shape.EP > 1 && d.chance(0.5) {
		d.c.Work.RoutingSD, d.c.Work.ExpertSD, d.c.Work.ExpertRho = d.between(0.02, 0.06), d.between(0.002, 0.01), d.between(0.9, 0.99)
	}
}

// changes is work that is not the same in all steps.
func (d *draw) changes() {
	switch d.IntN(7) {
	case 0:
		d.c.Work.Phases = []Phase{{To: 2, Factor: d.between(0.05, 0.2)}, {From: 30 + d.IntN(30), Factor: d.between(5.2, 9)}}
	case 1:
		d.c.Work.Phases = []Phase{{To: 10 + d.IntN(16), Factor: d.between(9, 11)}}
	case 2:
		d.c.Work.Phases = []Phase{{From: 30 + d.IntN(20), Every: 25 + d.IntN(40), Steps: 2 + d.IntN(6), Factor: d.between(0.15, 0.4)}}
	case 3:
		d.c.Work.Phases = []Phase{{From: 20, Ramp: d.c.Steps - 40, Factor: d.between(2, 4)}}
	}
}

// surroundings are the hardware, the network and the storage.
func (d *draw) surroundings() {
	if d.chance(0.2) {
		n := &d.c.Noise
		n.DeviceSD, n.DriftSD, n.OpSD = min(n.DeviceSD, 0.002), min(n.DriftSD, 0.001), min(n.OpSD, 0.004)
		d.c.Devices = []Device{{Factor: d.between(1.03, 1.045), Nodes: d.Perm(d.c.Shape.hosts())[:d.c.Shape.hosts()/2]}}
	}

	if d.chance(0.2) {
		d.c.Network = Network{JitterSD: 0.1, Congestion: d.between(0.02, 0.1), CongestionSteps: d.between(5, 25), CongestionFactor: d.between(1.5, 4), CongestionMobile: true}
	}

	if d.chance(0.2) {
		d.c.Checkpoint = Checkpoint{Every: 25 + d.IntN(20), Ranks: "all", Share: d.between(0.3, 1.5), SD: d.between(0.03, 0.2), HeavyShare: d.between(0, 0.15)}
	}

	if d.chance(0.15) {
		d.c.Restarts = []Restart{{At: 120 + d.IntN(80), Redo: d.IntN(15), Shuffle: d.chance(0.5)}}
	}
}

// recording is what arrives of it all.
func (d *draw) recording() {
	if d.chance(0.2) {
		d.c.Clock = Clock{Skew: 5, DriftPPM: 50}
	}

	if d.chance(0.15) {
		d.c.Loss = Loss{RankSteps: d.between(0.02, 0.2), Keep: true, Run: d.between(1, 6)}
	}

	if d.chance(0.15) {
		d.c.Record.NoGroups, d.c.Record.NoTopology = true, true
	}
}

// slowDevices slows a device each of no host, one or two. One alone may be slow beside its forward passes: of two
// in one pipeline nobody can tell such a one from a wait that is not recorded.
func (d *draw) slowDevices() {
	n := []int{0, 0, 1, 1, 1, 2}[d.turn(6)]
	for _, h := range d.Perm(d.c.Shape.hosts())[:min(n, d.c.Shape.hosts())] {
		f := Fault{Kind: Compute, Node: h, Locals: []int{d.IntN(d.c.Shape.RanksPerNode)}, Factor: d.between(1.15, 1.6), From: d.onset()}
		if d.chance(0.2) {
			f.Ramp = 20 + d.IntN(80)
		}

		switch beside := d.IntN(5); {
		case n > 1:
		case beside == 0:
			f.Kind = Backward
		case beside == 1 && len(d.c.Work.Phases) == 0: // a share of the nominal step
			f.Kind, f.Share = Host, d.between(0.08, 0.25)
		}

		d.c.Faults = append(d.c.Faults, f)
	}
}

// tails are steps that take a multiple, on every rank, or pauses.
func (d *draw) tails() {
	if !d.chance(0.15) {
		return
	}

	n := &d.c.Noise
	if d.chance(0.5) {
		n.HeavyShare, n.HeavyScale, n.HeavyIndex = d.between(0.05, 0.25), d.between(0.1, 0.5), d.between(2, 3)
	} else {
		n.GCShare, n.GCPause = d.between(0.05, 0.3), d.between(0.1, 1)
	}
}
