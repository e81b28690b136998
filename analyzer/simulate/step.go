package simulate

import (
	"math"
	"slices"
)

// Ops of a rank that are summed apart: one (group, op) each.
const (
	slotLoad   = iota // broadcast of the batch in the TP group
	slotTP            // all-reduce within a layer
	slotCP            // exchange of a sequence's parts
	slotEP            // exchange of tokens between experts
	slotSend          // to the next or previous stage
	slotRecv          // from there
	slotGrad          // gradients
	slotGather        // parameters
	slotEmbd          // first and last stage
	slotNorm          // all ranks
	slotSave          // barrier after a checkpoint
	slots
)

// Transfers that no setting changes, as shares of a step or of the gradients' transfers.
const (
	expertShare    = 0.04   // of a step: the exchange of tokens
	loadShare      = 0.001  // of a step: a batch is small beside what its layers exchange
	embeddingShare = 0.1    // of the gradients': the weights that first and last stage both hold
	gatherShare    = 0.4    // of the gradients': what a reduce-scatter leaves of an all-reduce, see Model.gradients
	tinyShare      = 0.0005 // of a step: one number a rank, the latency alone
)

// tensorSyncs is how many collectives a tensor-parallel group has in one pass of a micro-batch.
const tensorSyncs = 2

// playStep plays one step of all ranks, in the order of a training loop: load, passes, gradients,
// optimizer, checkpoint. Each part leaves in rank.t when the rank is through with it.
func (j *job) playStep() {
	j.prepare()
	j.load()
	for _, t := range j.order {
		j.task(t)
	}

	everybody := j.lay.everybody()
	j.gradients()
	j.meetGroups(everybody, slotEmbd, j.cfg.Model.DPShare*embeddingShare)
	if j.lay.shape.World() > 1 && !j.cfg.Model.NoGlobalSync && j.lay.shape.PP*j.lay.shape.TP > 1 {
		j.meetGroups(everybody, slotNorm, tinyShare)
	}

	j.optimize()
	if j.cfg.Model.Sharded {
		j.meetGroups(everybody, slotGather, j.cfg.Model.DPShare*gatherShare)
	}

	j.checkpoint()
	end, sum := 0.0, 0.0
	for i := range j.r {
		end, sum = max(end, j.r[i].t), sum+j.r[i].t-j.r[i].start
	}

	j.elapsed += end - j.now
	if j.lengths != nil {
		j.lengths = append(j.lengths, sum/float64(len(j.r)))
	}

	j.now = end
}

// nominal is the length of a quiet step, ns.
func (j *job) nominal() float64 { return j.cfg.Model.Seconds * 1e9 }

// unitStep is what the shares of Model are shares of, ns: scaled so that a quiet
// step, with its pipeline bubbles and waits, is as long as nominal.
func (j *job) unitStep() float64 { return j.cfg.Model.Seconds * 1e9 * j.unit }

// own is how long an operation of rank i takes that nominally needs ns. A draw of the noise
// far out leaves a fifth of it: no operation takes no time, or less.
func (j *job) own(i int, ns float64) float64 {
	if sd := j.cfg.Noise.OpSD; sd > 0 {
		ns *= max(0.2, 1+sd*j.physics.NormFloat64())
	}

	return ns * j.r[i].speed
}

// transfer is how long a transfer in group g takes that nominally needs ns, in the median: jitter
// is lognormal.
func (j *job) transfer(g int, ns float64) float64 {
	if sd := j.cfg.Network.JitterSD; sd > 0 {
		ns *= math.Exp(sd * j.physics.NormFloat64())
	}

	return ns * j.meets[g].factor
}

// load is the data loader and the broadcast of the batch.
func (j *job) load() {
	c := &j.cfg.Loader
	if c.Ranks == "none" {
		return
	}

	loaders := slices.DeleteFunc(slices.Clone(j.lay.everybody()), func(i int) bool { return !j.loads(i) })
	for _, i := range loaders {
		r := &j.r[i]
		ns := c.Share * j.unitStep() * lognormal(j.physics, c.SD)
		ns += r.loadExtra * j.nominal()
		from := r.t
		r.t += ns
		j.loaded(i, from, r.t)
	}

	if j.lay.shape.TP > 1 && c.Ranks == "first" {
		j.meetGroups(j.lay.everybody(), slotLoad, loadShare)
	}
}

// loads reports whether rank i has a data loader.
func (j *job) loads(i int) bool {
	a := &j.lay.at[i]
	return j.cfg.Loader.Ranks == "all" || a.p == 0 && a.t == 0
}

// task plays one pass of one micro-batch on all ranks of a stage.
func (j *job) task(t task) {
	ranks := j.lay.stages[t.stage]
	ns := j.passTime(t)
	for _, i := range ranks {
		j.receive(i, t)
		r := &j.r[i]
		r.t += r.gap
		if r.ops == r.gcAt {
			r.t += r.gc
		}

		r.ops++
		r.passFrom = r.t
	}

	s := j.lay.shape
	// Tensor-parallel ranks wait for each other several times within a pass: it is as slow as
	// the slowest of each part, not as the slowest sum.
	syncs := 1
	if s.TP > 1 {
		syncs = tensorSyncs
	}

	parts := float64(2 * s.passes())
	j.inBackward = t.way == back
	for k := range syncs {
		for _, i := range ranks {
			j.r[i].t += j.passOwn(i, t, ns) / float64(syncs)
		}

		j.meetGroups(ranks, slotTP, j.cfg.Model.TPShare/parts/float64(syncs))
		if k == 0 {
			j.meetGroups(ranks, slotCP, j.cfg.Model.TPShare/parts)
			j.meetGroups(ranks, slotEP, expertShare/parts)
		}
	}

	j.inBackward = false
	last := t.way == back && t.micro == s.MicroBatches-1 && t.chunk == 0
	at := t.micro*s.Chunks + t.chunk
	for _, i := range ranks {
		r := &j.r[i]
		j.passed(i, t.way, r.passFrom, r.t)
		if last {
			r.backFrom, r.backTo = r.passFrom, r.t
		}

		r.ready[t.way][at] = r.t
	}
}

// passTime is the nominal time of a pass on a stage, ns, in this run's scale.
func (j *job) passTime(t task) float64 {
	s, m := j.lay.shape, &j.cfg.Model
	ns := j.unitStep() / float64(s.MicroBatches+s.PP-1) / (1 + m.backward()) / float64(s.Chunks)
	if t.way == back {
		ns *= m.backward()
	}

	if len(m.Stages) > 0 {
		ns *= m.Stages[t.stage%len(m.Stages)]
	}

	return ns
}

// backward is how long a backward pass takes against a forward one.
func (m *Model) backward() float64 {
	if m.Recompute {
		return m.BackwardRatio + 1
	}

	return m.BackwardRatio
}

// passOwn is the own time of rank i in a pass.
func (j *job) passOwn(i int, t task, ns float64) float64 {
	r, a := &j.r[i], &j.lay.at[i]
	if j.cfg.Replay != nil {
		ns = j.cfg.Replay.pass(j.drawn, a, t) * 1e9
	} else {
		w := j.work[a.d*j.lay.shape.MicroBatches+t.micro]
		if e := j.cfg.Work.Elasticity; len(e) > 0 && w != 1 {
			w = math.Pow(w, e[t.stage%len(e)]) // a restart may have brought more stages
		}

		ns *= w * r.load
	}

	ns *= j.phase
	if t.way == back {
		ns *= r.backward
	}

	return j.own(i, ns)
}

// receive waits for what the pass needs from a neighbouring stage. The send is noted on the other
// side then: it lasts to the same end, and blocks nobody.
func (j *job) receive(i int, t task) {
	a, s := &j.lay.at[i], j.lay.shape
	need, some := t.needs(s.PP, s.Chunks)
	if !some {
		return
	}

	from := j.lay.rank(a.t, a.c, a.d, need.stage)
	r, f := &j.r[i], &j.r[from]
	at := need.micro*s.Chunks + need.chunk
	ready := f.ready[t.way][at]
	post := r.t
	begin := max(post, ready)
	end := begin + j.transfer(a.groups[dimPP], j.cfg.Model.PPShare*j.unitStep()/float64(2*s.passes()))*j.apart(from, i)
	r.t = end
	j.communicated(from, slotSend, ready, end, 0, t.stage)
	if t.stage == s.PP-1 {
		post += j.cfg.Record.UnrecordedWait * (begin - post)
	}

	j.communicated(i, slotRecv, post, end, end-post, need.stage)
}

// apart is the factor of a send between two ranks by the networks of their hosts.
func (j *job) apart(a, b int) float64 {
	x, y := j.r[a].host, j.r[b].host
	if x == y {
		return 1
	}

	return max(x.slow, y.slow)
}

// meetGroups is a collective of every group of a slot that is led by one of the ranks: all
// of them are in its group, or stand on the same stage.
func (j *job) meetGroups(ranks []int, slot int, share float64) {
	for _, i := range ranks {
		g := j.lay.groupOf(i, slot)
		if g >= 0 && j.lay.groups[g].ranks[0] == i {
			j.meet(slot, g, j.lay.groups[g].ranks, share*j.unitStep())
		}
	}
}

// meet is a collective: everybody waits for the last, then the transfer runs.
func (j *job) meet(slot, g int, ranks []int, ns float64) {
	last := 0.0
	for _, i := range ranks {
		last = max(last, j.r[i].t)
	}

	end := last + j.transfer(g, ns)
	if slot == slotGather {
		end += j.meets[g].gather
	}

	for _, i := range ranks {
		from := j.r[i].t
		j.r[i].t = end
		j.communicated(i, slot, from, end, end-from, -1)
	}
}
