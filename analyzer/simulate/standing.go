package simulate

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// What a second generator, made without a look at this one, drew and the families before don't: faults that
// have always been there, in the network and in pairs, faults that end or move, and replicas with uneven work.

// since draws when a fault begins: in two jobs of five before the first step, so that no past tells it.
func (d *draw) since() int {
	if d.chance(0.4) {
		return 0
	}

	return d.onset()
}

// slowness draws a factor of at least 1 + least, at most 2: small ones are as many as large ones.
func (d *draw) slowness(least float64) float64 {
	return 1 + math.Exp(d.between(math.Log(least), 0))
}

// nodeNetwork slows all that goes from one host to others. In half of the jobs the groups of the gradients lie
// on several hosts; in the others each lies on one, and what crosses are the sends of pipelines. A host has ranks of one stage: of
// several it is not recorded which sends go to a neighbour on the same host.
func (d *draw) nodeNetwork() {
	turn := d.turn(5)
	fits := func(l *layout) bool {
		return l.shape.PP > 1 && links(1)(l) == (turn < 3) && oneStage(l) && some((*layout).ownNetwork)(l)
	}
	d.healthy(fits, some((*layout).ownNetwork), anyShape)
	d.c.Model.PPShare = d.between(0.05, 0.1) // a network that matters: elsewhere sends take 2 % at most
	if turn > 0 {
		d.c.Faults = []Fault{{Kind: NIC, Node: d.host((*layout).ownNetwork), Factor: d.between(2, 4), From: d.since()}}
	}
}

// oneStage reports whether each host has ranks of one pipeline stage.
func oneStage(l *layout) bool {
	stage := map[int]int{}
	for _, a := range l.at {
		if p, known := stage[a.host]; known && p != a.p {
			return false
		}

		stage[a.host] = a.p
	}

	return true
}

// standingLink slows one of few groups, one a stage, which there is little to compare with. A step is longer by 3
// to 25 %: what hides in the slack of a later stage comes on top.
func (d *draw) standingLink() {
	d.healthy(func(l *layout) bool { return l.shape.PP >= 4 && l.n == l.shape.PP*l.shape.DP && links(2)(l) }, links(1))
	d.c.Model.DPShare = d.between(0.03, 0.06) // the least of what is added is half of it
	if d.turn(5) == 0 {
		return
	}

	l := newLayout(d.c.Shape, nil)
	groups := l.wideNames((*group).gradients)
	name := groups[d.IntN(len(groups))]
	stage := l.at[l.groups[l.find(name)].ranks[0]].p
	d.c.Faults = []Fault{{Kind: Link, Group: name, Share: d.slack(stage) + d.between(0.03, 0.25), From: d.since()}}
}

// slack is how much longer the transfers of a stage may take, as a share of a step, before anybody waits for them:
// the first stage ends its backward passes later, and where no collective of all ranks follows begins earlier as well.
func (d *draw) slack(stage int) float64 {
	s, m := d.c.Shape, &d.c.Model
	pass := float64(stage) / float64(s.MicroBatches+s.PP-1) // forward and backward
	if m.Sharded || m.NoGlobalSync {
		return pass
	}

	return pass * m.BackwardRatio / (1 + m.BackwardRatio)
}

// pipelinesApart shapes have four replicas or more, each on several hosts, whose ranks are in the order in which a
// host has the same stage of several replicas.
func pipelinesApart(l *layout) bool {
	s := l.shape
	within := func(g group) bool { return g.dim == dimPP && !g.wide }
	return s.PP > 1 && s.DP >= 4 && s.EP == 1 && s.Order == "tp-cp-dp-pp" && !slices.ContainsFunc(l.groups, within)
}

// unevenReplica gives one replica more work than the others in all steps: it is slow on all its stages, wherever
// they are, and no host is.
func (d *draw) unevenReplica() {
	d.healthy(pipelinesApart, anyShape)
	d.c.Work.Replicas = slices.Repeat([]float64{1}, d.c.Shape.DP)
	d.c.Work.Replicas[d.IntN(d.c.Shape.DP)] = 1.05 + 0.04*(float64(d.turn(5))+d.Float64())
	d.c.Expect.Findings = []string{verdict.WorkloadImbalance}
}

// replicaDrift lets the work of each replica wander so slowly that one is ahead of the others for many steps.
func (d *draw) replicaDrift() {
	d.healthy(pipelinesApart, anyShape)
	memory := 10 + 8*(float64(d.turn(5))+d.Float64()) // steps
	d.c.Work = Work{SequenceSD: d.between(0.04, 0.12), SequenceRho: math.Exp(-1 / memory), Elasticity: d.stretch()}
	if d.chance(0.5) {
		d.c.Work.MicroBatchSD = d.between(0, 0.08)
	}
}

// pairs are shapes whose stages lie on four hosts or more.
var pairs = []Shape{
	{DP: 8, RanksPerNode: 1}, {DP: 8, RanksPerNode: 2}, {DP: 16, RanksPerNode: 2}, {DP: 16, RanksPerNode: 4},
	{DP: 4, PP: 4, MicroBatches: 8, RanksPerNode: 1}, {DP: 4, PP: 4, MicroBatches: 8, RanksPerNode: 4, Order: "tp-cp-pp-dp"},
	{TP: 4, DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 4}, {TP: 4, DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 8, Order: "tp-cp-pp-dp"},
	{TP: 4, DP: 8, RanksPerNode: 4},
}

// standingPair slows two devices of one stage on different hosts alike, and of larger roles now and then all of
// two hosts. Of every third job no groups are told. Two that are half of their stage's hosts or more than a fifth of the job's
// may be another model of hardware: they get slow in mid-job, or are far slower and less than half of the job's.
func (d *draw) standingPair() {
	d.fixed(pairs[d.IntN(len(pairs))], anyShape)
	untold := d.turn(3) == 1
	d.c.Record.NoGroups, d.c.Record.NoTopology = untold, untold
	if d.turn(5) == 0 {
		return
	}

	l := newLayout(d.c.Shape, nil)
	stage := l.stages[d.IntN(len(l.stages))]
	first := stage[d.IntN(len(stage))]
	elsewhere := slices.DeleteFunc(slices.Clone(stage), func(r int) bool { return l.at[r].host == l.at[first].host })
	if len(elsewhere) == 0 { // a stage within a host, as a small job that is asked for has it
		elsewhere = []int{(first + d.c.Shape.RanksPerNode) % l.n}
	}

	factor, from := d.slowness(0.05), d.since()
	hosts := len(l.hosts)
	many := 2 > max(1, hosts/5) || 2*2 >= d.c.Shape.DP
	if from == 0 && many && (factor < 1.15 || hosts <= 4) {
		from = d.onset()
	}

	for _, r := range []int{first, elsewhere[d.IntN(len(elsewhere))]} {
		d.onRank(r, factor, from)
	}

	// Two hosts are a minority where each is a sixth of the stage at most.
	if k := d.c.Shape.RanksPerNode; d.c.Shape.PP == 1 && minorityOf(2*k, l.n) && d.chance(0.5) {
		d.c.Faults[0].Locals, d.c.Faults[1].Locals = nil, nil
	}
}

// passed ends a fault long before the job does: who was slow has recovered.
func (d *draw) passed() {
	d.comparable()
	if d.turn(5) == 0 {
		return
	}

	d.compute(d.slowness(0.1))
	f, steps := &d.c.Faults[0], d.c.Steps
	lasts := 45 + d.IntN(steps/2-44)
	f.From = 21 + d.IntN(steps-40-lasts-20)
	f.To = f.From + lasts
	d.c.Expect.Exit = []int{verdict.ExitHealthy}
}

// moving takes a fault from one device to one of another host in mid-job.
func (d *draw) moving() {
	d.healthy(func(l *layout) bool { return replicas(4)(l) && peers(l) }, anyShape)
	if d.turn(5) == 0 {
		return
	}

	k := d.c.Shape.RanksPerNode
	first := d.IntN(d.c.Shape.World())
	second := first
	for second/k == first/k {
		second = d.IntN(d.c.Shape.World())
	}

	factor, from := d.slowness(0.08), 0
	if d.chance(0.6) {
		from = d.c.Steps * 15 / 100
	}

	at := int(float64(d.c.Steps) * d.between(0.45, 0.65))
	d.onRank(first, factor, from)
	d.c.Faults[0].To = at
	d.onRank(second, factor, at)
}
