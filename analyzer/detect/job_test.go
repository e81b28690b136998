package detect

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// job is a synthetic training job for tests: a model of who waits for whom, not
// of a machine. Times are seconds. It makes what a detector meets in the field:
// heavy and autocorrelated noise, drift, work that replicas share, waits that no
// range records, pauses, checkpoints, missing and absent ranks.
type job struct {
	rng          *rand.Rand
	pp, dp, tp   int
	perNode      int
	steps        int
	firstStep    int
	micro        float64 // forward seconds of a step and rank
	sigma        float64 // noise of a step
	rho          float64 // its lag-1 correlation
	heavy        bool    // Student-t tails
	drift        float64 // size of a slow wander of each rank
	spread       float64 // lasting difference between devices
	seq          float64 // work that a replica shares
	tokens       bool    // record them
	gc           float64 // share of rank-steps with a pause of 10 %
	unrecorded   float64 // largest share of a rank's pipeline wait that no range covers
	jitter       float64 // noise of transfers
	congestion   bool    // bursts in which several ranks' communication is slow
	stage        []float64
	elastic      []float64 // how strongly each stage follows the work that a replica shares; nil = all 1
	begin        float64   // factor on the first ten steps of the job; 0 = 1
	heavySave    float64   // tail of the time to save: standard deviation of its logarithm, t with 3 degrees; 0 = uniform
	loader       float64   // usual loading, share of a step
	saveEvery    int
	missing      float64
	absent       map[int]bool
	noFP, noComm bool
	lightFrom    int // step from which Communication is not recorded; 0 never
	noTopology   bool
	skew         bool
	tpShared     bool    // the forward of a tensor group takes as long as its slowest
	covered      bool    // nobody told that a rank is blocked in its tensor group, as TaskD's lines don't
	sharded      bool    // with tpShared: all ranks, for the parameters that they gather in their passes
	untold       bool    // with tpShared: tensor groups are seen in Communication alone
	lost         float64 // share of rank-steps without a record of the gradient reduction, beside another one that is there
	restart      int     // step of a restart with ranks mapped anew; 0 none
	restartWorld int
	restartLeave int // node that leaves at the restart

	// fault returns what is wrong with a rank in a step.
	fault func(rank, node, step int) effect
	// link returns the factor on the transfers of one data-parallel group.
	link func(stage, tp, step int) float64
	// whole slows all ranks.
	whole func(step int) float64
}

// effect is a fault of one rank in one step: factors and added shares of a step.
type effect struct {
	forward, backward float64 // factors, 0 = 1
	host, load        float64 // shares of a usual step, added
	save              float64 // factor on saves, 0 = 1
}

func newJob(seed uint64) *job {
	rng := rand.New(rand.NewPCG(seed, 7))
	j := &job{
		rng: rng, steps: 200, firstStep: 1, micro: 0.3 + rng.Float64(), sigma: 0.006 + 0.012*rng.Float64(), rho: 0.5 * rng.Float64(),
		heavy: rng.IntN(2) == 0, spread: 0.004, drift: 0.003, unrecorded: 0.5 * rng.Float64(), jitter: 0.1, loader: 0.01,
	}
	shapes := [][3]int{{1, 16, 1}, {1, 32, 1}, {4, 8, 1}, {4, 4, 2}, {2, 8, 4}, {8, 4, 2}, {4, 16, 1}, {1, 8, 8}}
	s := shapes[rng.IntN(len(shapes))]
	j.pp, j.dp, j.tp = s[0], s[1], s[2]
	j.perNode = []int{4, 8}[rng.IntN(2)]
	return j
}

func (j *job) world() int { return j.pp * j.dp * j.tp }

// place of a rank: pipeline outermost, then data, tensor innermost.
func (j *job) place(r int) (stage, q, t int) { return r / (j.dp * j.tp), r / j.tp % j.dp, r % j.tp }

func (j *job) rank(stage, q, t int) int { return (stage*j.dp+q)*j.tp + t }

func (j *job) node(r int) int { return r / j.perNode }

func nodeName(n int) string { return fmt.Sprintf("host-%02d", n) }

func (j *job) topology() *topology.File {
	f := &topology.File{WorldSize: j.world(), Nodes: map[string][]int{}}
	for r := range j.world() {
		f.Nodes[nodeName(j.node(r))] = append(f.Nodes[nodeName(j.node(r))], r)
	}

	add := func(dim string, i int, ranks []int) {
		f.Groups = append(f.Groups, topology.Group{Name: fmt.Sprintf("%s-%d", dim, i), Dim: dim, Ranks: ranks})
	}
	for s := range j.pp {
		for t := range j.tp {
			var g []int
			for q := range j.dp {
				g = append(g, j.rank(s, q, t))
			}

			add("dp", s*j.tp+t, g)
		}

		for q := range j.dp {
			var g []int
			for t := range j.tp {
				g = append(g, j.rank(s, q, t))
			}

			if j.tp > 1 && !j.untold {
				add("tp", s*j.dp+q, g)
			}
		}
	}

	for q := range j.dp {
		for t := range j.tp {
			var g []int
			for s := range j.pp {
				g = append(g, j.rank(s, q, t))
			}

			if j.pp > 1 {
				add("pp", q*j.tp+t, g)
			}
		}
	}

	return f
}

// frame runs the job and returns what would have been recorded.
func (j *job) frame() *frame.Frame {
	b := &feed.History{}
	w := j.world()
	cut := j.steps + 1
	if j.restart > 0 {
		cut = j.restart
	}

	first := &run{job: j, world: w, node: j.node, inc: 1}
	first.play(b, j.firstStep, cut)
	if j.restart > 0 {
		second := j.remapped()
		second.play(b, j.restart, j.steps+1)
	}

	var topo *topology.File
	if !j.noTopology && j.restart == 0 {
		topo = j.topology()
	}

	f, err := b.Frame(topo)
	if err != nil {
		panic(err)
	}

	return f
}

// remapped is the second attempt: one node left, the ranks are dealt anew.
func (j *job) remapped() *run {
	var nodes []int
	for n := range (j.world() + j.perNode - 1) / j.perNode {
		if n != j.restartLeave {
			nodes = append(nodes, n)
		}
	}

	j.rng.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
	k := *j
	k.dp = j.restartWorld / (j.pp * j.tp)
	return &run{job: &k, world: j.restartWorld, node: func(r int) int { return nodes[r/j.perNode] }, inc: 1000}
}

// run is one attempt of a job.
type run struct {
	*job
	world int
	node  func(int) int
	inc   uint64

	ar, walk, dev, hide, skewNs []float64
	tpWait                      []float64 // in the step at hand
}

func (a *run) play(b *feed.History, from, to int) {
	a.ar, a.walk, a.dev, a.hide, a.skewNs = zeros(a.world), zeros(a.world), zeros(a.world), zeros(a.world), zeros(a.world)
	for r := range a.world {
		a.dev[r] = a.spread * a.rng.NormFloat64()
		a.hide[r] = a.unrecorded * a.rng.Float64()
		if s, _, _ := a.place(r); s != a.pp-1 && a.rng.IntN(3) > 0 {
			a.hide[r] = 0
		}

		if a.skew {
			a.skewNs[r] = (a.rng.Float64() - 0.5) * 10e9
		}
	}

	begin := int64(1_753_000_000e9) + int64(from)*10e9
	for r := range a.world {
		m := row.Rank{Job: "j", Rank: uint32(r), Incarnation: a.inc + uint64(r), WorldSize: uint32(a.world), Node: nodeName(a.node(r)),
			StartedNs: begin - 60e9 + int64(a.skewNs[r])}
		a.groups(&m, r)
		if !a.absent[r] {
			b.AddRank(&m)
		}
	}

	for s := from; s < to; s++ {
		a.step(b, s, from, begin+int64(s-from)*10e9)
	}
}

func zeros(n int) []float64 { return make([]float64, n) }

// groups tells the identity lines' groups, where no topology file is given.
func (a *run) groups(m *row.Rank, r int) {
	if a.noTopology || a.restart == 0 {
		return
	}

	s, q, t := a.place(r)
	var dp, pp, tp []uint32
	for k := range a.dp {
		dp = append(dp, uint32(a.rank(s, k, t)))
	}

	for k := range a.pp {
		pp = append(pp, uint32(a.rank(k, q, t)))
	}

	for k := range a.tp {
		tp = append(tp, uint32(a.rank(s, q, k)))
	}

	m.Groups = []string{fmt.Sprintf("dp:dp-%d-%d:%d:%d", s, t, q, a.dp), fmt.Sprintf("pp:pp-%d-%d:%d:%d", q, t, s, a.pp), fmt.Sprintf("tp:tp-%d-%d:%d:%d", s, q, t, a.tp)}
	m.GroupRanks = [][]uint32{dp, pp, tp}
}

// draw is one step's noise of a rank, a factor's logarithm.
func (a *run) draw(r int) float64 {
	z := a.rng.NormFloat64()
	if a.heavy { // t with 4 degrees of freedom, scaled to the same middle
		c := 0.0
		for range 4 {
			g := a.rng.NormFloat64()
			c += g * g
		}

		z = 0.9 * z / math.Sqrt(c/4)
	}

	a.ar[r] = a.rho*a.ar[r] + math.Sqrt(1-a.rho*a.rho)*z
	a.walk[r] = 0.995*a.walk[r] + a.drift*0.1*a.rng.NormFloat64()
	return a.sigma*a.ar[r] + a.walk[r] + a.dev[r]
}

// step plays one step: everybody works, then everybody waits for the slowest.
func (a *run) step(b *feed.History, step, from int, start int64) {
	w := a.world
	f, work, self, load, save := zeros(w), zeros(w), zeros(w), zeros(w), zeros(w)
	seq := zeros(a.dp)
	for q := range seq {
		seq[q] = a.seq * a.rng.NormFloat64()
	}

	usual := 3.2 * a.micro
	whole := 1.0
	if a.whole != nil {
		whole = a.whole(step)
	}

	saving := a.saveEvery > 0 && step%a.saveEvery == 0
	for r := range w {
		s, q, _ := a.place(r)
		e := effect{}
		if a.fault != nil {
			e = a.fault(r, a.node(r), step)
		}

		heavy := 1.0
		if a.stage != nil {
			heavy = a.stage[s]
		}

		follows := 1.0
		if a.elastic != nil {
			follows = a.elastic[s]
		}

		n := math.Exp(a.draw(r) + follows*seq[q])
		if a.begin > 0 && step-from < 10 {
			n *= a.begin * (1 + 0.5*a.rng.Float64())
		}

		if step-from < 5 {
			n *= 1 + 0.3*a.rng.Float64() // first steps
		}

		f[r] = a.micro * heavy * n * one(e.forward) * whole
		back := 2 * a.micro * heavy * n * one(e.backward) * whole
		pause := e.host * usual
		if a.rng.Float64() < a.gc {
			pause += 0.1 * usual
		}

		work[r] = back + 0.2*a.micro*whole + pause
		load[r] = usual * (a.loader*(0.7+0.6*a.rng.Float64()) + e.load)
		if saving {
			save[r] = 0.8 * usual * a.saveTail() * one(e.save)
		}
	}

	a.tpWait = zeros(w)
	for r := range w {
		self[r] = f[r] + work[r]
	}

	if a.tpShared {
		size := a.tp
		if a.sharded {
			size = w
		}

		for r := 0; r < w; r += size {
			top, end := 0.0, 0.0
			for k := range size {
				top, end = max(top, f[r+k]), max(end, self[r+k])
			}

			for k := range size { // and the backward pass takes as long for all of them
				f[r+k], a.tpWait[r+k] = top, end-self[r+k]
			}
		}
	}

	a.record(b, step, start, usual, seq, f, self, load, save)
}

// saveTail is the factor on the time of one save that chance draws.
func (a *run) saveTail() float64 {
	if a.heavySave == 0 {
		return 0.9 + 0.2*a.rng.Float64()
	}

	c := 0.0
	for range 3 {
		g := a.rng.NormFloat64()
		c += g * g
	}

	return math.Exp(a.heavySave * a.rng.NormFloat64() / math.Sqrt(c/3))
}

func one(x float64) float64 {
	if x == 0 {
		return 1
	}

	return x
}

// record turns the work of a step into rows: waits in the pipeline, then in the
// gradient reduction.
func (a *run) record(b *feed.History, step int, start int64, usual float64, seq, f, self, load, save []float64) {
	ready := zeros(a.dp) // when the slowest stage of a replica is done
	for r := range self {
		_, q, _ := a.place(r)
		ready[q] = max(ready[q], self[r]+a.tpWait[r]+load[r]+save[r])
	}

	bubble := 0.05 * usual * float64(a.pp-1)
	last := 0.0
	for _, x := range ready {
		last = max(last, x)
	}

	burst := 1.0
	if a.congestion && step/16%5 == 2 {
		burst = 1.5 + a.rng.Float64()
	}

	for r := range self {
		if a.absent[r] || a.rng.Float64() < a.missing {
			continue
		}

		s, q, t := a.place(r)
		transfer := 0.04 * usual * math.Exp(a.jitter*a.rng.NormFloat64())
		if a.congestion && (s+t)%2 == 0 {
			transfer *= burst
		}

		if a.link != nil {
			transfer += a.link(s, t, step) * usual
		}

		wait := ready[q] - self[r] - a.tpWait[r] - load[r] - save[r] + bubble
		hidden := a.hide[r] * wait
		pp := wait - hidden
		dp := last - ready[q] + transfer
		total := last + bubble + transfer
		sr := row.Step{
			Job: "j", Rank: uint32(r), Incarnation: a.inc + uint64(r), Node: nodeName(a.node(r)), Step: uint64(step), StartNs: start + int64(a.skewNs[r]),
			StepNs: ns(total), FPNs: ns(f[r]), FPCount: 8, CommNs: ns(pp + dp + a.tpWait[r]), ExposedNs: ns(pp + dp + a.tpWait[r]), CommTPNs: -1, CommPPNs: -1, CommDPNs: ns(dp),
			CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1, DataLoaderNs: ns(load[r]), CheckpointNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1,
		}
		if a.pp > 1 {
			sr.CommPPNs = ns(pp)
		}

		if a.tpShared {
			a.inPasses(b, &sr, ns(a.tpWait[r]+0.01*usual), ns(0.01*usual))
		}

		if a.rng.Float64() < a.lost {
			x := ns(dp)
			sr.CommNs, sr.ExposedNs, sr.CommDPNs = sr.CommNs-x, sr.ExposedNs-x, ns(0.001*usual)
		}

		if save[r] > 0 {
			sr.CheckpointNs, sr.CheckpointCount = ns(save[r]), 1
		}

		if a.tokens {
			sr.Tokens = int64(8192 * math.Exp(seq[q]))
		}

		sr.SelfNs = sr.StepNs - sr.ExposedNs - sr.DataLoaderNs - max(0, sr.CheckpointNs)
		if a.noFP {
			sr.FPNs = -1
		}

		if a.noComm || a.lightFrom > 0 && step >= a.lightFrom {
			sr.CommNs, sr.ExposedNs, sr.CommPPNs, sr.CommDPNs, sr.SelfNs = -1, -1, -1, -1, -1
		}

		b.AddStep(&sr)
	}
}

// inPasses records what a rank was in communication for during its passes, its share of the transfers included.
func (a *run) inPasses(b *feed.History, sr *row.Step, whole, wire int64) {
	sr.CommNs, sr.ExposedNs = sr.CommNs+wire, sr.ExposedNs+wire
	if a.covered {
		sr.ExposedNs -= whole
	}

	c := row.Communication{Rank: sr.Rank, Incarnation: sr.Incarnation, StepFrom: sr.Step / 16 * 16, StepTo: sr.Step, Steps: 16, Calls: 16 * 32, TotalNs: 16 * whole, Bytes: 1 << 30}
	switch {
	case a.sharded:
		sr.CommDPNs += whole
		c.Group, c.Dim, c.Op = "dp-0", "dp", "allgather"
	case a.untold:
		sr.CommOtherNs = whole
		c.Group, c.Op = fmt.Sprint("t", int(sr.Rank)/a.tp), "allreduce"
	default:
		sr.CommTPNs = whole
		return
	}

	if sr.Step%16 == 15 {
		b.AddCommunication(&c)
	}
}

func ns(s float64) int64 { return int64(s * 1e9) }
