package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// job is a simulation under way.
type job struct {
	cfg  *Config
	take func(*row.Rows) // nil for nobody
	rows row.Rows        // to be handed over, kept for their memory
	rec  *files          // nil for none
	unit float64         // model time → time: the factor that gives a quiet step Model.Seconds

	physics, clocks, losses, faults *rand.Rand

	lay     *layout
	order   []task
	r       []rank
	hosts   []host
	meets   []meet         // per group
	metas   []*record.Meta // of the attempt's processes, nil of absent ones
	now     float64
	elapsed float64 // ns of all steps
	attempt int
	step    int // number of the step
	index   int // executed steps so far
	done    int // steps of this attempt

	effects []effect
	seq     []float64 // sequence factor per replica, log: an AR(1) state
	work    []float64 // [replica*micro + m] factor of the work
	phase   float64   // factor of all ranks' work in this step
	drawn   []int     // replayed steps

	inBackward bool   // a backward pass is being played
	congested  int    // steps that the episode of congestion lasts
	jammed     []bool // the hosts that it hits

	off        [record.KindCount]bool
	windowAt   int
	inTopology map[string][]int // ranks of groups by the topology file, where no identity tells groups

	lengths []float64          // of every step in the mean of the ranks, ns; nil = nobody asks
	popular map[[2]int]float64 // AR(1) state of each expert's load, by stage and position
}

// rank is the state of one rank within a step. Times are ns since the job's start.
type rank struct {
	t, start   float64
	backFrom   float64 // start and end of the last backward
	backTo     float64
	free       float64 // the communication stream is free
	speed      float64 // factor of all compute in this step
	backward   float64 // and of backward passes
	gap        float64 // ns between operations
	gc         float64
	gcAt       int
	ops        int
	passFrom   float64      // start of the pass under way
	ready      [2][]float64 // per way, micro-batch and chunk: when its pass was done
	drop       bool         // this rank-step does not arrive
	absent     bool         // no rank-step does
	losing     bool         // within a run of losses
	load       float64      // factor of the experts' load
	expert     float64      // its AR(1) state
	wave       float64      // AR(1) state of the noise
	device     float64      // log of the device's own factor
	warm       float64
	hostExtra  float64 // faults: share of the step between operations
	loadExtra  float64 // in the loader
	saveFactor float64
	out        row.Step
	tokens     float64
	transfers  []transfer
	sums       [slots]row.Communication // of the current window; StepTo is the step of the last call
	windowFrom int64                    // start of the first step in the window of sums
	inc        record.ID
	host       *host
}

// host is the hardware that ranks run on.
type host struct {
	name    string
	model   string
	factor  float64
	devices []float64 // log factor of each device
	drift   float64
	slow    float64 // NIC factor of this step
	skew    int64   // ns
	rate    float64
	boot    string
}

// meet is one group's transfers in a step.
type meet struct {
	factor       float64 // congestion and faults
	grad, gather float64 // ns more for the gradients and the parameters
}

// newJob draws the hosts and the bursts of faults. cfg is complete.
func newJob(cfg *Config, take func(*row.Rows), rec *files) *job {
	j := &job{
		cfg: cfg, take: take, rec: rec, step: cfg.FirstStep,
		physics: source(cfg.Seed, forPhysics), clocks: source(cfg.Seed, forClocks),
		losses: source(cfg.Seed, forLosses), faults: source(cfg.Seed, forFaults), popular: map[[2]int]float64{},
	}
	for _, k := range cfg.Record.Off {
		j.off[record.KindOf(k)] = true
	}

	if cfg.Record.NoGroups {
		j.inTopology = map[string][]int{}
		if f := Topology(*cfg); f != nil {
			for _, g := range f.Groups {
				j.inTopology[g.Name] = g.Ranks
			}
		}
	}

	j.hosts = make([]host, cfg.Shape.hosts())
	for i := range j.hosts {
		h := &j.hosts[i]
		h.name, h.factor = nodeName(i), 1
		h.boot = fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(cfg.Seed), i)
		h.devices = make([]float64, cfg.Shape.RanksPerNode)
		for d := range h.devices {
			h.devices[d] = j.physics.NormFloat64() * cfg.Noise.DeviceSD
		}

		h.drift = j.physics.NormFloat64() * cfg.Noise.DriftSD
		h.skew = int64((2*j.clocks.Float64() - 1) * cfg.Clock.Skew * 1e9)
		h.rate = (2*j.clocks.Float64() - 1) * cfg.Clock.DriftPPM * 1e-6
	}

	for _, d := range cfg.Devices {
		for _, n := range d.Nodes {
			if n >= 0 && n < len(j.hosts) {
				j.hosts[n].model, j.hosts[n].factor = d.Name, d.Factor
			}
		}
	}

	j.effects = j.plan()
	return j
}

// play runs all steps of all attempts.
func (j *job) play() error {
	if err := j.start(newLayout(j.cfg.Shape, nil)); err != nil {
		return err
	}

	next := 0
	for j.index = 0; j.index < j.cfg.Steps; j.index++ {
		if next < len(j.cfg.Restarts) && j.cfg.Restarts[next].At == j.index {
			if err := j.restart(j.cfg.Restarts[next]); err != nil {
				return err
			}

			next++
		}

		j.newWindow()
		j.playStep()
		if err := j.emit(); err != nil {
			return err
		}

		j.step++
		j.done++
	}

	return j.finish()
}

// start begins an attempt on a layout.
func (j *job) start(l *layout) error {
	j.lay, j.order = l, schedule(l.shape.PP, l.shape.MicroBatches, l.shape.Chunks)
	j.r = make([]rank, l.n)
	j.meets = make([]meet, len(l.groups))
	j.seq = make([]float64, l.shape.DP)
	j.work = make([]float64, l.shape.DP*l.shape.MicroBatches)
	j.done = 0
	for i := range j.seq {
		j.seq[i] = j.physics.NormFloat64() * j.cfg.Work.SequenceSD
	}

	j.metas = make([]*record.Meta, l.n)
	for i := range j.r {
		r, a := &j.r[i], &l.at[i]
		h := &j.hosts[a.host]
		r.t, r.start = j.now, j.now
		r.device = h.devices[a.local]
		r.wave, r.load = j.physics.NormFloat64(), j.physics.NormFloat64()
		r.warm = j.physics.Float64()
		r.host = h
		r.ready = [2][]float64{make([]float64, l.shape.passes()), make([]float64, l.shape.passes())}
		r.absent = j.losses.Float64() < j.cfg.Loss.Ranks && !(j.cfg.Loss.Keep && j.faulty(a)) || slices.Contains(j.cfg.Loss.Absent, i)
		j.metas[i] = j.meta(i)
		r.inc = j.metas[i].Incarnation
		if r.absent {
			j.metas[i] = nil
		}
	}

	j.resolve()
	j.identify(func(int) int64 { return 0 })
	if j.rec != nil {
		return j.rec.begin(j.metas)
	}

	return nil
}

// meta is the identity of rank i's process in this attempt.
func (j *job) meta(i int) *record.Meta {
	a, r := &j.lay.at[i], &j.r[i]
	pid := 4000 + 100*j.attempt + a.local // another one in each attempt, as a real restart gives
	// Processes begin half a minute before the first step of their attempt.
	m := &record.Meta{
		Format: record.Format, Job: j.cfg.Job, Rank: i, WorldSize: j.lay.n, LocalRank: a.local,
		Node: r.host.name, Device: r.host.model, PID: pid, BootID: r.host.boot, Writer: "simulate/1",
		StartedNs: j.local(i, j.now) - 30e9,
	}
	m.Incarnation = record.IncarnationOf(m.BootID, pid, uint64(1000*j.attempt+a.local))
	for _, g := range j.named(i) {
		m.Groups = append(m.Groups, record.Group{
			Dim: dimNames[g.dim], Name: g.name, Index: slices.Index(g.ranks, i), Size: len(g.ranks), Ranks: g.ranks,
		})
	}

	return m
}

// named are the groups that rank i's identity names, none where it names none. A large job's identities
// don't list all ranks: they would be longer than the records.
func (j *job) named(i int) (groups []*group) {
	for dim, g := range j.lay.at[i].groups {
		if g >= 0 && !j.cfg.Record.NoGroups && (dim != dimWorld || j.lay.n >= 2 && j.lay.n <= 64) {
			groups = append(groups, &j.lay.groups[g])
		}
	}

	return groups
}

// local turns a time into what rank i's host's clock shows, ns since the Unix epoch.
func (j *job) local(i int, t float64) int64 { return j.epoch(i) + j.tick(i, t) }

// epoch is what rank i's host's clock shows at the job's start, ns since the Unix epoch.
func (j *job) epoch(i int) int64 { return j.cfg.StartUnix*1e9 + j.r[i].host.skew }

// tick is a time since the job's start as the host's clock counts it. Durations are differences
// of ticks: with the epoch in it a float64 would not hold nanoseconds.
func (j *job) tick(i int, t float64) int64 { return int64(t + t*j.r[i].host.rate) }

// finish ends an attempt: the ranks' rows are handed over again, now with their end.
func (j *job) finish() error {
	j.flushWindow()
	j.identify(func(i int) int64 { return j.local(i, j.r[i].t) })
	if j.rec != nil {
		return j.rec.end()
	}

	return nil
}

// identify hands over the ranks' rows, with when each has ended; 0 = it runs.
func (j *job) identify(ended func(i int) int64) {
	for i, m := range j.metas {
		if j.take != nil && m != nil {
			j.rows.Ranks = append(j.rows.Ranks, j.rankRow(m, ended(i)))
		}
	}

	j.hand()
}

// restart ends the processes and begins again, on other hosts and with other
// sizes where the restart says so.
func (j *job) restart(x Restart) error {
	if err := j.finish(); err != nil {
		return err
	}

	j.attempt++
	j.step = max(j.cfg.FirstStep, j.step-x.Redo)
	j.now += 60e9 * (1 + j.physics.Float64()) // a restart takes one to two minutes
	shape, hosts, err := moved(j.lay, x, placement(j.cfg.Seed, j.attempt))
	if err != nil {
		return err
	}

	return j.start(newLayout(shape, hosts))
}

// placement is the chance by which an attempt's ranks are put on hosts.
func placement(seed uint64, attempt int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, forPlacement<<8+uint64(attempt)))
}

// moved returns shape and hosts after a restart. Without the hosts that left there are fewer
// replicas, as elastic training has it. It is an error when there is no room for one.
func moved(l *layout, x Restart, chance *rand.Rand) (Shape, []int, error) {
	keep := slices.DeleteFunc(slices.Clone(l.hosts), func(h int) bool { return slices.Contains(x.Drop, h) })
	if x.Shuffle {
		chance.Shuffle(len(keep), func(a, b int) { keep[a], keep[b] = keep[b], keep[a] })
	}

	s := l.shape
	if n := x.Layout; n != nil {
		s.TP, s.CP, s.PP, s.EP, s.Order, s.MicroBatches, s.Chunks = n.TP, n.CP, n.PP, n.EP, n.Order, n.MicroBatches, n.Chunks
		s.DP = len(keep) * s.RanksPerNode
		s.defaults()
	}

	per := s.TP * s.CP * s.PP
	s.DP = min(s.DP, len(keep)*s.RanksPerNode/per)
	for s.DP > 0 && s.DP%s.EP != 0 {
		s.DP--
	}

	if s.DP < 1 || s.hosts() > len(keep) {
		return s, nil, fmt.Errorf("restart: %d hosts are left for %d replicas of %d ranks", len(keep), s.DP, per)
	}

	return s, keep[:s.hosts()], nil
}
