package simulate

import (
	"math/rand/v2"
	"slices"
)

// draw is a configuration in the making. Its methods draw from one source in the order they are
// called in.
type draw struct {
	*rand.Rand
	c     Config
	world int    // number of ranks, 0 = drawn
	trace *Trace // to be replayed, nil = none
}

// need is what a scenario asks of a shape.
type need func(l *layout) bool

func anyShape(*layout) bool { return true }

// flat shapes are data parallel alone.
func flat(l *layout) bool { return l.shape.DP == l.n }

// peers shapes have enough replicas that one of them is a minority.
func peers(l *layout) bool { return minorityOf(1, l.shape.DP) }

// replicas asks for a number of replicas, stages for one of pipeline stages.
func replicas(least int) need { return func(l *layout) bool { return l.shape.DP >= least } }
func stages(least int) need   { return func(l *layout) bool { return l.shape.PP >= least } }

// few shapes have two or three replicas.
func few(l *layout) bool { return l.shape.DP == 2 || l.shape.DP == 3 }

// links asks for a number of data-parallel groups between hosts.
func links(least int) need {
	return func(l *layout) bool { return len(l.wideNames((*group).gradients)) >= least }
}

// elastic shapes can do without one of their hosts.
func elastic(l *layout) bool {
	s := l.shape
	return s.DP >= 2 && (len(l.hosts)-1)*s.RanksPerNode >= s.World()/s.DP*s.EP
}

// some asks for a host of a kind.
func some(kind func(l *layout, host int) bool) need {
	return func(l *layout) bool {
		return slices.ContainsFunc(l.hosts, func(host int) bool { return kind(l, host) })
	}
}

// minorityOf reports whether n of all are few enough to be told from the rest.
func minorityOf(n, all int) bool { return 3*n <= all }

// minority reports whether the devices of a host are a minority in each stage they
// work on, and of the stages of each replica no more than one or a minority. What
// tensor or context parallelism couples counts once: of a coupled group all look
// alike. Whoever is half of a stage can't be told from the other half, a fault of all
// of a stage is an imbalance, and a slow replica looks like one with long sequences.
func (l *layout) minority(host int) bool {
	hit := make([]map[int]bool, l.shape.PP)
	for i := range l.at {
		if a := &l.at[i]; a.host == host {
			if hit[a.p] == nil {
				hit[a.p] = map[int]bool{}
			}

			hit[a.p][a.d] = true
		}
	}

	stages := map[int]int{}
	for _, replicas := range hit {
		if !minorityOf(len(replicas), l.shape.DP) {
			return false
		}

		for d := range replicas {
			stages[d]++
		}
	}

	for _, n := range stages {
		if n > 1 && !minorityOf(n, l.shape.PP) {
			return false
		}
	}

	return true
}

// loaders reports whether a host has a data loader and is a minority.
func (l *layout) loaders(host int) bool {
	loads := func(a position) bool { return a.host == host && a.p == 0 && a.t == 0 }
	return slices.ContainsFunc(l.at, loads) && l.minority(host)
}

// small shapes, of 8 to 64 ranks.
var small = []Shape{
	{DP: 8}, {DP: 16}, {DP: 32}, {DP: 64},
	{DP: 8, PP: 4}, {DP: 4, PP: 4}, {DP: 2, PP: 4}, {DP: 8, PP: 8}, {DP: 4, PP: 2}, {DP: 16, PP: 4}, {DP: 4, PP: 8}, {DP: 3, PP: 4},
	{TP: 2, DP: 8}, {TP: 4, DP: 8}, {TP: 8, DP: 8}, {TP: 4, DP: 4}, {TP: 8, DP: 4},
	{TP: 2, DP: 4, PP: 4}, {TP: 2, DP: 8, PP: 4}, {TP: 4, DP: 4, PP: 4}, {TP: 4, DP: 2, PP: 4}, {TP: 8, DP: 4, PP: 2}, {TP: 2, DP: 4, PP: 2},
	{TP: 2, CP: 2, DP: 4, PP: 2}, {CP: 2, DP: 8}, {TP: 2, CP: 2, DP: 4},
	{DP: 8, EP: 4, PP: 2}, {TP: 2, DP: 8, EP: 2}, {DP: 16, EP: 8, PP: 2},
}

// large shapes, of 512 and 8,192 ranks.
var large = []Shape{
	{DP: 512}, {TP: 8, DP: 64}, {TP: 8, DP: 16, PP: 4}, {TP: 4, DP: 16, PP: 8}, {DP: 64, PP: 8}, {TP: 8, CP: 2, DP: 8, PP: 4},
	{TP: 8, DP: 128, PP: 8}, {TP: 8, DP: 256, PP: 4}, {DP: 8192}, {TP: 8, DP: 1024},
}

// usual lists those of the shapes above that have about so many ranks, of which the
// ones with exactly as many are picked: a seed gives the job that it always gave.
func usual(world int) []Shape {
	return slices.DeleteFunc(append(slices.Clone(small), large...), func(s Shape) bool {
		w := s.World()
		return w <= world*2/3 || w >= world*3/2
	})
}

// sized lists the shapes of exactly so many ranks: what divides the number.
func sized(world int) []Shape {
	var out []Shape
	for _, tp := range []int{1, 2, 4, 8} {
		for _, cp := range []int{1, 2} {
			for pp := 1; pp <= mostStages; pp++ {
				per := tp * cp * pp
				if world%per != 0 {
					continue
				}

				s := Shape{TP: tp, CP: cp, PP: pp, DP: world / per, EP: 1}
				out = append(out, s)
				for _, ep := range []int{2, 4, 8} {
					if s.EP = ep; cp == 1 && s.DP%ep == 0 {
						out = append(out, s)
					}
				}
			}
		}
	}

	return out
}

// mostStages bounds the pipelines of a job whose number of ranks is asked for.
const mostStages = 64

// shape draws a shape that fits the needs: the first of them, or where no shape of
// the number of ranks that is asked for does, a later one. Later ones ask for what
// the scenario can't be drawn without. A number that usual shapes have gets one of them.
func (d *draw) shape(needs ...need) {
	if d.trace != nil {
		d.replayShape(needs)
		return
	}

	if d.world == 0 {
		if !d.pick(small, needs[0]) {
			panic("BUG: no shape fits the scenario")
		}

		return
	}

	if d.pick(usual(d.world), needs[0]) {
		return
	}

	all := sized(d.world)
	for _, fits := range needs {
		for _, k := range d.Perm(len(all)) {
			for range 6 { // ways to put it on hosts
				if d.place(all[k], fits, true) {
					return
				}
			}
		}
	}

	panic(errSize)
}

// pick draws shapes until one fits, and says whether one does. A thousand draws of some thirty
// shapes miss none that fits.
func (d *draw) pick(from []Shape, fits need) bool {
	for n := 0; len(from) > 0 && n < 1000; n++ {
		s := from[d.IntN(len(from))]
		if (d.world == 0 || s.World() == d.world) && d.place(s, fits, false) {
			return true
		}
	}

	return false
}

// place puts a shape's ranks on hosts and takes it where it fits. To shrink the hosts
// is to have two of them in the smallest job.
func (d *draw) place(s Shape, fits need, shrink bool) bool {
	s.defaults()
	s.RanksPerNode = []int{8, 8, 8, 4, 2}[d.IntN(5)] // most hosts of accelerators have eight
	for shrink && s.World() < 2*s.RanksPerNode && s.RanksPerNode > 1 {
		s.RanksPerNode /= 2
	}

	if s.World() < 2*s.RanksPerNode || s.TP > s.RanksPerNode || s.World() > 256 && s.RanksPerNode < 8 {
		return false
	}

	if d.chance(0.2) {
		s.Order = "tp-cp-pp-dp"
	}

	// A pipeline is full with as many micro-batches as stages. Large jobs have no more: each is
	// one pass more to play on every rank.
	s.MicroBatches = 1 + d.IntN(3)
	if s.PP > 1 {
		s.MicroBatches = s.PP * (1 + d.IntN(3))
	}

	if s.World() > 256 {
		s.MicroBatches = s.PP
	}

	d.c.Shape = s
	d.c.defaults()
	return fits(newLayout(d.c.Shape, nil))
}

// replayShape puts one to eight copies of the trace side by side.
func (d *draw) replayShape(needs []need) {
	d.c.Replay = d.trace
	first := 1 + d.IntN(4)
	for _, fits := range needs {
		for n := first; n <= 8; n++ {
			d.c.Shape = Shape{DP: n * d.trace.Shape.DP, RanksPerNode: []int{2, 4, 8}[d.IntN(3)]}
			d.c.Replay.shape(&d.c)
			if d.c.Shape.hosts() >= 2 && fits(newLayout(d.c.Shape, nil)) {
				return
			}
		}
	}

	panic(errSize)
}

// ordinary draws the rest of a job in which nothing is wrong: noise, network,
// work, loading and saving, each within what real jobs show.
func (d *draw) ordinary() {
	c := &d.c
	c.Steps = 260 + d.IntN(160)
	if d.world > 1000 {
		c.Steps = 180
	}

	c.Model = Model{
		Seconds: d.between(0.5, 12), BackwardRatio: d.between(1.8, 2.2), Optimizer: d.between(0.01, 0.04), HostGap: d.between(0.003, 0.02),
		TPShare: d.between(0.02, 0.08), PPShare: d.between(0.003, 0.02), DPShare: d.between(0.03, 0.12),
		Buckets: 1 + d.IntN(4), Overlap: d.chance(0.5), Sharded: d.chance(0.5),
	}
	d.chance(0.5) // for what every job has now: a seed keeps the job that it always gave
	c.Model.NoGlobalSync = d.chance(0.1)
	if d.trace != nil {
		c.Model.Seconds = d.trace.Seconds
	}

	c.Noise = Noise{
		// The recorded jobs show 0.2 to 0.7 % of a rank's forward time from step to
		// step and 0.1 to 0.6 % between devices; a third one is reported with 0.9 %.
		OpSD: d.between(0.002, 0.008), StepSD: d.between(0.001, 0.006), WaveSD: d.between(0, 0.003), WaveRho: d.between(0.3, 0.8),
		DriftSD: d.between(0, 0.003), DriftSteps: d.between(300, 3000), DeviceSD: d.between(0.001, 0.006),
		HeavyShare: d.between(0, 0.01), HeavyScale: d.between(0.02, 0.3), GCShare: d.between(0, 0.02), GCPause: d.between(0.01, 0.08),
		WarmSteps: d.IntN(9), WarmFactor: d.between(1, 4),
	}
	c.Network = Network{JitterSD: d.between(0.02, 0.15)}
	if d.chance(0.5) {
		c.Network.Congestion, c.Network.CongestionNodes = d.between(0, 0.03), d.between(0.2, 0.6)
		c.Network.CongestionSteps, c.Network.CongestionFactor = d.between(1, 8), d.between(1.3, 3)
	}

	c.Loader = Loader{Share: d.between(0.001, 0.015), SD: d.between(0.05, 0.4)}
	c.Checkpoint.SD = d.between(0.03, 0.2)
	if d.chance(0.4) {
		c.Checkpoint.Every, c.Checkpoint.Share = 20+d.IntN(80), d.between(0.2, 2)
		c.Checkpoint.Ranks = []string{"replica0", "all"}[d.IntN(2)]
	}

	if d.chance(0.15) {
		c.Pause = Pause{Every: 50 + d.IntN(60), Share: d.between(2, 20), Inside: d.chance(0.3)}
	}

	if c.Shape.PP > 1 && d.chance(0.4) {
		c.Record.UnrecordedWait = d.between(0.2, 1)
	}

	if d.chance(0.3) {
		c.FirstStep = 16 + d.IntN(5000)
	}

	d.work()
}

// work draws sequence lengths: freely where a pipeline lets the stages of a
// replica be compared, else small or with tokens recorded.
func (d *draw) work() {
	c := &d.c
	if d.chance(0.4) {
		c.Work.Tokens = 0
		return
	}

	c.Work = Work{SequenceSD: d.between(0.01, 0.1), Quadratic: d.between(0, 0.2), SequenceRho: d.between(0, 0.3), Elasticity: d.stretch()}
	if d.chance(0.5) {
		c.Work.MicroBatchSD = d.between(0, 0.08)
	}

	switch {
	case c.Shape.PP == 1:
		if d.chance(0.6) {
			c.Work.Tokens = int64(2048 << d.IntN(4))
		} else {
			c.Work.SequenceSD, c.Work.MicroBatchSD = d.between(0.002, 0.008), 0
		}
	case d.chance(0.3):
		c.Work.Tokens = int64(2048 << d.IntN(4))
	}

	if c.Shape.EP > 1 && d.chance(0.7) {
		c.Work.ExpertSD, c.Work.ExpertRho = d.between(0.005, 0.02), d.between(0, 0.5)
	}
}

// stretch draws how strongly each stage follows the sequence length.
func (d *draw) stretch() []float64 {
	if d.c.Shape.PP == 1 {
		return nil
	}

	return d.perStage(0.9, 1.1)
}

// perStage draws a number for each pipeline stage.
func (d *draw) perStage(low, high float64) []float64 {
	out := make([]float64, d.c.Shape.PP)
	for p := range out {
		out[p] = d.between(low, high)
	}

	return out
}

func (d *draw) chance(p float64) bool { return d.Float64() < p }

func (d *draw) between(a, b float64) float64 { return a + (b-a)*d.Float64() }

// device puts a fault on the device of some rank, or now and then on its whole
// host where that is a minority of its roles.
func (d *draw) device(f Fault) Fault {
	r := d.IntN(d.c.Shape.World())
	f.Node = r / d.c.Shape.RanksPerNode
	if d.chance(0.75) || !newLayout(d.c.Shape, nil).minority(f.Node) {
		f.Locals = []int{r % d.c.Shape.RanksPerNode}
	}

	return f
}

// onset draws when a fault begins: after the warm-up of a process and some healthy steps, and
// with time to be seen.
func (d *draw) onset() int {
	if d.c.Steps < 200 {
		return 60 + d.IntN(40)
	}

	return 70 + d.IntN(80)
}

// host draws a host of a kind, any where there is none.
func (d *draw) host(kind func(l *layout, host int) bool) int {
	l := newLayout(d.c.Shape, nil)
	hosts := slices.DeleteFunc(slices.Clone(l.hosts), func(host int) bool { return !kind(l, host) })
	if len(hosts) == 0 {
		hosts = l.hosts
	}

	return hosts[d.IntN(len(hosts))]
}
