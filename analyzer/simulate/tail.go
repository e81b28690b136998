package simulate

import (
	"math"
	"math/rand/v2"
)

// gradients reduces the gradients bucket by bucket, as PyTorch's DDP does: a bucket is ready when its
// part of the last backward is done (all at its end without overlap), its
// transfer begins when the last member's is, and a rank's buckets go one after
// the other. What runs past the backward's end is exposed.
func (j *job) gradients() {
	m := &j.cfg.Model
	ns := m.gradients() * j.unitStep() / float64(m.Buckets)
	for i := range j.r {
		j.r[i].free = 0
	}

	for g := range j.lay.groups {
		gr := &j.lay.groups[g]
		if !gr.gradients() {
			continue
		}

		extra := j.meets[g].grad / float64(m.Buckets)
		for b := range m.Buckets {
			j.bucket(gr.ranks, float64(b+1)/float64(m.Buckets), j.transfer(g, ns)+extra)
		}
	}

	for i := range j.r {
		r := &j.r[i]
		r.t = max(r.t, r.free)
	}
}

// gradients is the share of all gradient transfers of a step: a reduce-scatter
// moves half of what an all-reduce does, less efficiently.
func (m *Model) gradients() float64 {
	if m.Sharded {
		return 0.6 * m.DPShare
	}

	return m.DPShare
}

// bucket reduces one bucket of a group of ranks, whose gradients are there after a part of the last
// backward.
func (j *job) bucket(ranks []int, part, ns float64) {
	begin := 0.0
	for _, i := range ranks {
		begin = max(begin, j.r[i].bucketReady(part, j.cfg.Model.Overlap))
	}

	end := begin + ns
	for _, i := range ranks {
		r := &j.r[i]
		from := r.bucketReady(part, j.cfg.Model.Overlap)
		exposed := end - max(from, r.backTo)
		r.free = end
		j.communicated(i, slotGrad, from, end, max(0, exposed), -1)
	}
}

// bucketReady is when a rank has a bucket's gradients and its stream is free for them.
func (r *rank) bucketReady(part float64, overlap bool) float64 {
	at := r.backTo
	if overlap {
		at = r.backFrom + part*(r.backTo-r.backFrom)
	}

	return max(at, r.free)
}

// optimize is the optimizer, which no range covers.
func (j *job) optimize() {
	if j.cfg.Model.Optimizer < 0 {
		return
	}

	ns := j.cfg.Model.Optimizer * j.unitStep()
	for i := range j.r {
		j.r[i].t += j.own(i, ns) + j.r[i].gap
	}
}

// checkpoint saves, and all ranks meet when it is done.
func (j *job) checkpoint() {
	c := &j.cfg.Checkpoint
	if c.Every <= 0 || (j.step+1)%c.Every != 0 {
		return
	}

	for i := range j.r {
		a := &j.lay.at[i]
		if c.Ranks != "all" && a.d != 0 {
			continue
		}

		r := &j.r[i]
		ns := c.Share * j.nominal() * lognormal(j.physics, c.SD) * r.saveFactor
		if c.HeavyShare > 0 && j.physics.Float64() < c.HeavyShare {
			ns *= min(20, math.Pow(1-j.physics.Float64(), -1/c.HeavyIndex))
		}

		// Between saves a slow saver shows nowhere: its fault begins with the first one.
		for k := range j.effects {
			if e := &j.effects[k]; e.Kind == SaveSlow && e.hits(a) && e.size(j.index) > 0 {
				e.begin(j)
			}
		}

		from := r.t
		r.t += ns
		j.saved(i, from, r.t)
	}

	if j.lay.n > 1 {
		j.meetGroups(j.lay.everybody(), slotSave, tinyShare)
	}
}

// congest slows the transfers of groups between hosts in this step.
func (j *job) congest() {
	n := &j.cfg.Network
	if n.Congestion > 0 {
		j.episode(n)
	}

	for g := range j.meets {
		gr := &j.lay.groups[g]
		f := 1.0
		if gr.wide {
			for _, i := range gr.ranks {
				h := j.lay.at[i].host
				if j.congested > 0 && j.jammed[h] {
					f = max(f, n.CongestionFactor)
				}

				if gr.dim != dimPP { // a pipeline's sends go between two of its hosts, see apart
					f = max(f, j.hosts[h].slow)
				}
			}
		}

		j.meets[g].factor *= f
	}
}

// episode begins, continues or ends an episode of congestion.
func (j *job) episode(n *Network) {
	if j.congested > 0 {
		j.congested--
	}

	if j.congested > 0 || j.physics.Float64() >= n.Congestion {
		return
	}

	// Episodes have no memory, so their lengths are exponential.
	j.congested = 1 + int(j.physics.ExpFloat64()*max(0, n.CongestionSteps-1))
	j.jammed = make([]bool, len(j.hosts))
	if n.CongestionMobile {
		j.jammed[j.physics.IntN(len(j.hosts))] = true
		return
	}

	for range max(2, int(n.CongestionNodes*float64(len(j.hosts)))) {
		j.jammed[j.physics.IntN(len(j.hosts))] = true
	}
}

// lognormal draws a factor with mean 1 whose logarithm has the standard deviation sd. Where that
// is 0 it is 1, and nothing is drawn.
func lognormal(chance *rand.Rand, sd float64) float64 {
	if sd <= 0 {
		return 1
	}

	return math.Exp(sd*chance.NormFloat64() - sd*sd/2)
}
