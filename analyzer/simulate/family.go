package simulate

import "github.com/laggard-dev/laggard/schemas/verdict"

// families are jobs as the 22 injections don't have them: small ones, ones that
// change, faults that come and go or hide. Variants take turns by the seed, so any
// 15 seeds in a row hold all of a family in their shares. Among them are healthy ones.
var families = []scenario{
	{23, "small", drawnOnly, "2 and 4 ranks, one x1.3 with and without a past; x1.15 and x1.20 in a role of four", (*draw).smallJobs},
	{24, "regime", onTraces, "a lasting change of the step above 5x, two short validation steps first", (*draw).regime},
	{25, "warm-up", onTraces, "first steps of ten times the length, then x1.20", (*draw).warmUp},
	{26, "elastic", drawnOnly, "world 64 to 56, groups and ranks mapped anew", (*draw).elastic},
	{27, "elasticity", drawnOnly, "ranks follow their replica's work with exponents of 0.8 to 1.7, x1.05 to x1.2", (*draw).elasticity},
	{28, "absent-mates", drawnOnly, "pipeline mates that are not recorded", (*draw).absentMates},
	{29, "bursts-regular", onTraces, "bursts of 8 steps every 25; in every third job of one or two steps every 2 or 3", (*draw).regularBursts},
	{30, "bursts-5", onTraces, "5 % of the steps, in bursts of 1 to 3", func(d *draw) { d.bursts(Fault{BurstShare: 0.05, BurstSteps: 1, BurstMost: 3}) }},
	{31, "bursts-2", onTraces, "2 % of 600 steps, in bursts of 1 to 3", func(d *draw) { d.bursts(Fault{BurstShare: 0.02, BurstSteps: 1, BurstMost: 3}) }},
	{32, "mixed-hardware", drawnOnly, "half of the nodes 3 % slower", (*draw).mixedHardware},
	{33, "slow-saver", onTraces, "a slow saver on storage with heavy tails; in every fifth job its every second save", (*draw).slowSaver},
	{34, "transients", onTraces, "12 to 15 slow steps", (*draw).transients},
	{35, "long", onTraces, "x1.03 over 1,000 steps", (*draw).long},
	{36, "light", onTraces, "the light kinds alone: device times, or host times only", (*draw).light},
	{37, "few-replicas", drawnOnly, "2 and 3 replicas", (*draw).fewReplicas},
	{38, "evaluation", onTraces, "evaluation phases", (*draw).evaluation},
	{39, "curriculum", onTraces, "sequences grow through the job", (*draw).curriculum},
	{40, "recomputation", drawnOnly, "activations recomputed in the backward pass", (*draw).recomputation},
	{41, "interleaved", drawnOnly, "interleaved pipeline schedule", (*draw).interleaved},
	{42, "routing", drawnOnly, "skewed routing to experts", (*draw).routing},
	{43, "congestion", onTraces, "congestion that moves from node to node", (*draw).mobile},
	{44, "culprits", drawnOnly, "two or three at once, of several kinds and onsets", (*draw).culprits},
	{45, "compound", drawnOnly, "several of these at once, with and without groups that are told", (*draw).compound},
	{46, "whole-host", onTraces, "all of a host that has a stage, half of one and more, or whole replicas", (*draw).wholeHost},
	{47, "node-network", drawnOnly, "the network of a node x2 to x4, from the start or later, in pipelines", (*draw).nodeNetwork},
	{48, "standing-link", drawnOnly, "a slow link among few groups a stage, from the start or later, a step 3 to 25 % longer", (*draw).standingLink},
	{49, "uneven-replica", drawnOnly, "one replica has 5 to 25 % more work in all steps", (*draw).unevenReplica},
	{50, "standing-pair", drawnOnly, "two of a stage on different nodes x1.05 to x2, from the start or later", (*draw).standingPair},
	{51, "passed", onTraces, "x1.1 to x2 for 45 steps to half of the job, over long before its end", (*draw).passed},
	{52, "moving", onTraces, "a fault that moves to another node in mid-job", (*draw).moving},
	{53, "replica-drift", drawnOnly, "work of replicas that wanders slowly", (*draw).replicaDrift},
}

// Families returns the names of the families.
func Families() []string { return names(families) }

// turn picks one of n variants: seeds take turns.
func (d *draw) turn(n int) int { return int(d.c.Seed % uint64(n)) }

// fixed is an ordinary job of one shape, or where another number of ranks was asked
// for of one that fits.
func (d *draw) fixed(s Shape, fits need) {
	if d.world > 0 && d.world != s.World() {
		d.shape(fits)
	} else {
		d.c.Shape = s
		d.c.defaults()
	}

	d.ordinary()
}

// onRank slows the device of a rank for good, from a step on.
func (d *draw) onRank(rank int, factor float64, from int) {
	k := d.c.Shape.RanksPerNode
	d.c.Faults = append(d.c.Faults, Fault{Kind: Compute, Node: rank / k, Locals: []int{rank % k}, Factor: factor, From: from})
}

// sometimes puts a visible fault into two of three jobs.
func (d *draw) sometimes() {
	if d.turn(3) < 2 {
		d.compute([]float64{1.1, 1.15, 1.2, 1.3, 1.5}[d.IntN(5)])
	}
}

// smallJobs slows a rank that has one peer: it can be named by its own past alone, of which two
// variants of five leave it none. The fifth slows two ranks of a role of four.
func (d *draw) smallJobs() {
	past := enoughPast + 5 + d.IntN(40)
	turn := d.turn(5)
	if turn == 1 || turn == 3 {
		past = 0
	}

	switch turn {
	case 0, 1:
		d.fixed(Shape{TP: 2, DP: 2, RanksPerNode: 1 + d.IntN(2)}, anyShape)
	case 2, 3:
		d.fixed(Shape{DP: 2, RanksPerNode: 1}, anyShape)
	default:
		d.fixed(Shape{DP: 4, PP: 4, MicroBatches: 8, RanksPerNode: 1}, replicas(2))
		stage, at := d.IntN(d.c.Shape.PP), d.Perm(d.c.Shape.DP)
		l := newLayout(d.c.Shape, nil)
		d.onRank(l.stages[stage][at[0]], 1.15, 70+d.IntN(30))
		d.onRank(l.stages[stage][at[1%len(at)]], 1.20, 70+d.IntN(30))
		return
	}

	d.c.Work, d.c.FirstStep = Work{}, 0
	d.c.Noise.WarmSteps = min(d.c.Noise.WarmSteps, 3)
	d.onRank(d.IntN(d.c.Shape.World()), 1.3, past)
}

// regime begins with two short steps, as Lightning's sanity check makes them, and changes to
// much longer ones later: neither is anybody's fault.
func (d *draw) regime() {
	d.comparable()
	d.c.FirstStep = 0
	at := 30 + d.IntN(60)
	d.c.Work.Phases = []Phase{{To: 2, Factor: d.between(0.05, 0.2)}, {From: at, Factor: d.between(5.2, 9)}}
	d.sometimes()
	for i := range d.c.Faults {
		d.c.Faults[i].From = at + 20 + d.IntN(80)
		if d.chance(0.3) {
			d.c.Faults[i].From = 12 + d.IntN(at-12)
		}
	}
}

// warmUp begins with steps that are ten times as long on all ranks. A culprit may be slow
// from the first normal step on.
func (d *draw) warmUp() {
	d.comparable()
	d.c.FirstStep = 0
	warm := 10 + d.IntN(16)
	d.c.Work.Phases = []Phase{{To: warm, Factor: d.between(9, 11)}}
	if d.turn(5) > 0 {
		d.compute(1.2)
		d.c.Faults[0].From = warm + []int{0, 10, 20, 40}[d.IntN(4)]
	}
}

// elastic drops a host of eight and gives the rest other groups.
func (d *draw) elastic() {
	shapes := []Shape{{TP: 2, DP: 8, PP: 4, MicroBatches: 8}, {DP: 8, PP: 8}, {TP: 4, DP: 8, PP: 2, MicroBatches: 4}, {DP: 16, PP: 4, MicroBatches: 8}}
	d.fixed(shapes[d.IntN(4)], elastic)
	after := []Shape{{DP: 14, PP: 4, MicroBatches: 4}, {TP: 2, PP: 4, MicroBatches: 8}, {PP: 2, MicroBatches: 4}, {TP: 4, PP: 2, MicroBatches: 8, Order: "tp-cp-pp-dp"}}
	layout := after[d.IntN(4)]
	layout.DP = 0
	d.c.FirstStep = 0
	if d.chance(0.6) { // a rank that is taken for another stage's looks slow
		d.c.Model.Stages = d.perStage(0.8, 1.4)
	}

	at := 80 + d.IntN(60)
	d.c.Steps = at + 120 + d.IntN(80)
	hosts := d.c.Shape.hosts()
	slow := d.IntN(hosts)
	d.c.Restarts = []Restart{{At: at, Redo: d.IntN(15), Drop: []int{(slow + 1 + d.IntN(hosts-1)) % hosts}, Shuffle: true}}
	if d.chance(0.7) && d.c.Shape.World() == 64 {
		d.c.Restarts[0].Layout = &layout
	}

	if d.turn(2) == 0 { // identities say nothing of groups, a file only what holds at the end
		d.c.Record.LastTopology, d.c.Record.NoGroups = true, true
	}

	if d.turn(3) < 2 {
		d.c.Faults = []Fault{{Kind: Compute, Node: slow, Locals: []int{d.IntN(d.c.Shape.RanksPerNode)}, Factor: d.between(1.15, 1.5), From: at - 20 - d.IntN(40)}}
	}
}

// elasticity makes stages follow their replica's work by different powers: what explains the
// noise of one stage explains another one's only in part.
func (d *draw) elasticity() {
	d.healthy(func(l *layout) bool { return l.shape.PP >= 4 && l.shape.DP >= 4 }, anyShape)
	d.c.Work = Work{SequenceSD: d.between(0.05, 0.2), SequenceRho: d.between(0, 0.2), Elasticity: d.perStage(0.8, 1.7)}
	d.c.Expect.Findings = nil
	d.compute([]float64{1.05, 1.1, 1.2}[d.turn(3)])
}

// absentMates leaves out whole stages of some replicas, never the culprit.
func (d *draw) absentMates() {
	d.healthy(func(l *layout) bool { return l.shape.PP >= 4 && l.shape.DP >= 4 && l.shape.TP == 1 }, flat)
	d.c.Work = Work{SequenceSD: d.between(0.05, 0.15), Elasticity: d.stretch()}
	l := newLayout(d.c.Shape, nil)
	d.sometimes()
	keep := -1
	for i := range d.c.Faults { // one device: a host may hold several replicas
		if len(d.c.Faults[i].Locals) == 0 {
			d.c.Faults[i].Locals = []int{0}
		}
	}

	for r := range l.at {
		if len(d.c.Faults) > 0 && d.c.Faults[0].hits(&l.at[r]) {
			keep = l.at[r].d
		}
	}

	// The replica of the culprit stays whole; of a quarter one stage alone is recorded.
	for n, q := range d.Perm(d.c.Shape.DP) {
		if q == keep || n >= max(1, d.c.Shape.DP/4) {
			continue
		}

		stays := d.IntN(d.c.Shape.PP)
		for p := range d.c.Shape.PP {
			if p != stays {
				d.c.Loss.Absent = append(d.c.Loss.Absent, l.rank(0, 0, q, p))
			}
		}
	}

	d.c.Expect.Exit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
}

// mixedHardware has two generations of devices; one job in three has a culprit.
func (d *draw) mixedHardware() {
	wide := func(l *layout) bool { return len(l.hosts) >= 6 && peers(l) }
	if d.turn(2) == 0 { // a host is a tensor-parallel group: half of each role is slow as one
		d.fixed([]Shape{{TP: 8, DP: 8, RanksPerNode: 8}, {TP: 4, DP: 8, RanksPerNode: 4}, {TP: 4, DP: 16, RanksPerNode: 4}}[d.IntN(3)], anyShape)
	} else {
		d.healthy(wide, anyShape)
	}

	n := &d.c.Noise
	n.DeviceSD, n.DriftSD, n.OpSD = min(n.DeviceSD, 0.002), min(n.DriftSD, 0.001), min(n.OpSD, 0.004) // the generations stand out
	old := Device{Name: "old", Factor: d.between(1.03, 1.045)}
	old.Nodes = append(old.Nodes, d.Perm(d.c.Shape.hosts())[:d.c.Shape.hosts()/2]...)
	if d.chance(0.5) {
		old.Name = "" // nobody wrote down which is which
	}

	d.c.Devices = []Device{old}
	if d.turn(3) == 0 {
		d.compute(d.between(1.15, 1.4))
	}
}

// slowSaver is a saver on storage whose saves are long now and then for everybody.
func (d *draw) slowSaver() {
	d.saver()
	d.c.Checkpoint.HeavyShare, d.c.Checkpoint.HeavyIndex = d.between(0.05, 0.2), d.between(1.5, 2.5)
	d.c.Checkpoint.SD = d.between(0.1, 0.3)
	d.c.Faults[0].Factor = d.between(2, 3)
	switch d.turn(5) {
	case 0:
		d.c.Faults = nil
	case 3: // slow as long as it is from one save to the next
		every := 10
		d.c.Checkpoint.Every, d.c.Steps = every, 36*every
		f := &d.c.Faults[0]
		f.Factor, f.From, f.BurstEvery, f.BurstSteps = d.between(3, 8), 6*every, 2*every, every
	}
}

func (d *draw) transients() {
	d.transient()
	f := &d.c.Faults[0]
	f.Factor, f.To = d.between(1.2, 1.5), f.From+12+d.turn(4)
}

// long has a fault so small that it needs a thousand steps.
func (d *draw) long() {
	d.healthy(func(l *layout) bool { return l.n <= 32 && l.shape.DP >= 8 }, anyShape)
	d.c.Work = Work{}
	d.c.Noise.DriftSD, d.c.Noise.DeviceSD = min(d.c.Noise.DriftSD, 0.001), min(d.c.Noise.DeviceSD, 0.003)
	d.compute(1.03)
	d.c.Steps = d.c.Faults[0].From + 1000
	d.c.Expect.Exit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
}

// light records no Communication. Of 15 jobs 10 have device times (4 healthy), 5
// host times alone: two with a fault that shows all the same, three that hide
// whatever there is.
func (d *draw) light() {
	turn := d.turn(15)
	switch turn {
	case 8, 10:
		d.loader()
	case 9, 11, 13:
		d.saver()
	default:
		d.comparable()
		if turn >= 4 && turn < 8 || turn == 14 {
			d.compute([]float64{1.1, 1.2, 1.3, 1.5}[d.IntN(4)])
		}
	}

	d.c.Record.Off = []string{"Communication"}
	d.c.Record.UnrecordedWait = 0
	if turn >= 10 {
		d.c.Record.HostOnly, d.c.Record.Enqueued, d.c.Record.Backward = true, true, false
		d.c.Expect.Exit = []int{verdict.ExitUndecided}
		if len(d.c.Faults) > 0 {
			d.c.Expect.Exit = []int{verdict.ExitDegraded, verdict.ExitHealthy, verdict.ExitUndecided}
		}
	}
}

// fewReplicas leaves the culprit one or two peers: of two ranks only their pasts tell which one
// is slow.
func (d *draw) fewReplicas() {
	if d.world == 0 {
		shapes := []Shape{{DP: 2, PP: 4, MicroBatches: 8}, {DP: 3, PP: 4, MicroBatches: 8}, {TP: 4, DP: 2, PP: 2, MicroBatches: 4}, {TP: 4, DP: 3}, {DP: 3}, {TP: 2, DP: 2, PP: 4, MicroBatches: 4}, {TP: 8, DP: 2}}
		s := shapes[d.turn(len(shapes))]
		s.RanksPerNode = []int{1, 2, 4}[d.IntN(3)]
		d.fixed(s, few)
	} else {
		d.healthy(few, anyShape)
	}

	d.onRank(d.IntN(d.c.Shape.World()), []float64{1.1, 1.2, 1.3, 1.5}[d.IntN(4)], d.onset())
	if d.turn(5) == 0 {
		d.c.Faults = nil
	}
}

// evaluation has steps of less work now and then, or a pause within a step.
func (d *draw) evaluation() {
	d.comparable()
	d.c.Pause = Pause{}
	p := Phase{From: 30 + d.IntN(20), Every: 25 + d.IntN(40), Steps: 2 + d.IntN(6), Factor: d.between(0.15, 0.4)}
	d.c.Work.Phases = []Phase{p}
	if d.chance(0.3) { // or in the step's own range
		d.c.Work.Phases, d.c.Pause = nil, Pause{Every: p.Every, Share: d.between(1, 8), Inside: true}
	}

	d.sometimes()
}

// curriculum makes the work grow, evenly or in stairs: a job that is slower than its past and
// still healthy.
func (d *draw) curriculum() {
	d.comparable()
	grow := d.between(2, 4)
	d.c.Work.Phases = []Phase{{From: 20, Ramp: d.c.Steps - 40, Factor: grow}}
	if d.chance(0.5) { // in stairs
		d.c.Work.Phases = nil
		for k := range 3 {
			d.c.Work.Phases = append(d.c.Work.Phases, Phase{From: (k + 1) * d.c.Steps / 4, Factor: d.between(1.2, 1.6)})
		}
	}

	d.sometimes()
}

func (d *draw) recomputation() {
	d.comparable()
	d.c.Model.Recompute = true
	d.sometimes()
}

func (d *draw) interleaved() {
	d.shape(func(l *layout) bool { return l.shape.PP >= 2 && peers(l) }, stages(2))
	s := &d.c.Shape
	s.Chunks, s.MicroBatches = 2+d.IntN(2), s.PP*(1+d.IntN(2))
	d.ordinary()
	d.sometimes()
}

// routing has experts that stay popular: their ranks are slow for a long time, in all groups
// alike, and through no fault of a device.
func (d *draw) routing() {
	d.healthy(func(l *layout) bool { return l.shape.EP >= 2 && l.shape.DP/l.shape.EP >= 2 }, anyShape)
	d.c.Work.RoutingSD, d.c.Work.ExpertSD, d.c.Work.ExpertRho = d.between(0.02, 0.06), d.between(0.002, 0.01), d.between(0.9, 0.99)
	if d.turn(3) < 2 {
		d.compute(d.between(1.2, 1.5))
	}
}

// culprits slows two or three hosts, each in its own way.
func (d *draw) culprits() {
	d.healthy(func(l *layout) bool { return l.shape.DP >= 8 && len(l.hosts) >= 8 }, anyShape)
	d.c.Loader.Ranks = "all"
	n := 2 + d.turn(2)
	for k, h := range d.Perm(d.c.Shape.hosts())[:min(n, d.c.Shape.hosts())] {
		f := Fault{Kind: Compute, Node: h, Locals: []int{d.IntN(d.c.Shape.RanksPerNode)}, Factor: d.between(1.12, 1.5), From: d.onset()}
		if k == 0 && d.chance(0.5) {
			f.Kind, f.Share = DataLoader, d.between(0.1, 0.25)
		}

		if k == 1 && d.chance(0.3) {
			f.To = f.From + 60 + d.IntN(40)
		}

		d.c.Faults = append(d.c.Faults, f)
	}
}

// mobile has congestion that hits another node each time: no node is slow for long enough.
func (d *draw) mobile() {
	d.healthy(func(l *layout) bool { return len(l.hosts) >= 4 && peers(l) }, anyShape)
	d.c.Network = Network{JitterSD: 0.1, Congestion: d.between(0.02, 0.1), CongestionSteps: d.between(5, 25), CongestionFactor: d.between(1.5, 4), CongestionMobile: true}
	if d.turn(3) == 0 {
		d.compute(d.between(1.1, 1.4))
	}
}
