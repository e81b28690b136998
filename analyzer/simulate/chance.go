package simulate

import (
	"math"

	"github.com/laggard-dev/laggard/schemas/row"
)

// prepare draws what this step brings to every rank: work, noise, faults. A fault takes nothing
// from the source of chance, so that the job without it is the same job.
func (j *job) prepare() {
	j.apply()
	j.congest()
	j.sequences()
	j.phase = 1
	for i := range j.cfg.Work.Phases {
		j.phase *= j.cfg.Work.Phases[i].at(j.index)
	}

	j.route()
	n := &j.cfg.Noise
	if n.DriftSD > 0 {
		j.wander(n)
	}

	gap := 0.0
	passes := j.lay.shape.passes()
	parts := float64(2*passes + 1) // the passes, and the optimizer
	if j.cfg.Model.HostGap > 0 {
		gap = j.cfg.Model.HostGap * j.unitStep() / parts
	}

	for i := range j.r {
		r, a := &j.r[i], &j.lay.at[i]
		j.begin(i)
		x := r.device + r.host.drift + j.noise(r, n)
		r.speed = math.Exp(x) * r.host.factor * j.heavy(n) * j.warmth(r, n) * r.speed
		r.gap = gap + r.hostExtra*j.nominal()/parts
		r.gc = 0
		if n.GCShare > 0 && j.physics.Float64() < n.GCShare {
			r.gc, r.gcAt = n.GCPause*j.nominal(), j.physics.IntN(2*passes)
		}

		j.experts(r, a)
		j.lose(r)
	}

	j.pause()
}

// loopNs is what a training loop does before the first range of a step, ns.
const loopNs = 5000

// begin clears what was of rank i's last step.
func (j *job) begin(i int) {
	r := &j.r[i]
	r.start = r.t
	r.t += loopNs
	r.ops = 0
	r.transfers = r.transfers[:0]
	r.out = row.Step{
		Job: j.cfg.Job, Rank: uint32(i), Incarnation: uint64(r.inc), Node: r.host.name, Step: uint64(j.step),
		FPNs: -1, CommNs: -1, ExposedNs: -1, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
		DataLoaderNs: -1, CheckpointNs: -1, SelfNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1,
	}
	if j.cfg.Record.HostOnly {
		r.out.Flags = row.FlagHostOnly
	}

	if j.cfg.Record.Backward {
		r.out.BackwardNs = 0
	}
}

// noise is the log factor of a rank's compute in this step.
func (j *job) noise(r *rank, n *Noise) float64 {
	x := 0.0
	if n.StepSD > 0 {
		x += n.StepSD * j.physics.NormFloat64()
	}

	if n.WaveSD > 0 {
		r.wave = j.walk(r.wave, n.WaveRho, 1)
		x += n.WaveSD * r.wave
	}

	return x
}

// walk is the next value of an AR(1) process with a step-to-step correlation and a spread: the
// new part is scaled so that the spread stays what it was, whatever rho is.
func (j *job) walk(x, rho, sd float64) float64 {
	return rho*x + math.Sqrt(1-rho*rho)*sd*j.physics.NormFloat64()
}

// heavy is the factor of a rare long step, 9 at most: a Pareto tail alone has no end.
func (j *job) heavy(n *Noise) float64 {
	if n.HeavyShare <= 0 || j.physics.Float64() >= n.HeavyShare {
		return 1
	}

	pareto := math.Pow(1-j.physics.Float64(), -1/n.HeavyIndex) // by its inverse distribution function; 1 or more
	return 1 + min(8, n.HeavyScale*pareto)
}

// warmth is the factor of a young process: the excess falls with the square of the steps left,
// and each rank draws how much of it, the half to all, it has.
func (j *job) warmth(r *rank, n *Noise) float64 {
	if j.done >= n.WarmSteps || j.cfg.FirstStep > 0 && j.attempt == 0 {
		return 1
	}

	left := 1 - float64(j.done)/float64(n.WarmSteps)
	return 1 + (n.WarmFactor-1)*left*left*(0.5+0.5*r.warm)
}

// wander moves each node's slow drift.
func (j *job) wander(n *Noise) {
	rho := math.Exp(-1 / n.DriftSteps)
	for h := range j.hosts {
		j.hosts[h].drift = j.walk(j.hosts[h].drift, rho, n.DriftSD)
	}
}

// sequences draws the work of every replica and micro-batch, with mean 1, and
// the tokens that go with it.
func (j *job) sequences() {
	w, s := &j.cfg.Work, j.lay.shape
	if j.cfg.Replay != nil {
		j.drawn = j.cfg.Replay.draw(j.physics, j.cfg.Shape.DP/j.cfg.Replay.Shape.DP)
	}

	if w.SequenceSD <= 0 && w.MicroBatchSD <= 0 {
		if j.done == 0 {
			for k := range j.work {
				j.work[k] = w.replica(k / s.MicroBatches)
			}

			for i := range j.r {
				j.r[i].tokens = float64(w.Tokens) * w.replica(j.lay.at[i].d)
			}
		}

		return
	}

	mean := make([]float64, s.DP) // tokens of a replica
	for d := range s.DP {
		j.seq[d] = j.walk(j.seq[d], w.SequenceRho, w.SequenceSD)
		for m := range s.MicroBatches {
			tokens := math.Exp(j.seq[d] - w.SequenceSD*w.SequenceSD/2) // less half the variance: the mean is 1
			if w.MicroBatchSD > 0 {
				tokens *= lognormal(j.physics, w.MicroBatchSD)
			}

			mean[d] += tokens / float64(s.MicroBatches)
			j.work[d*s.MicroBatches+m] = ((1-w.Quadratic)*tokens + w.Quadratic*tokens*tokens) * w.replica(d)
		}
	}

	for i := range j.r {
		d := j.lay.at[i].d
		j.r[i].tokens = float64(w.Tokens) * mean[d] * w.replica(d)
	}
}

// replica is the constant factor of a replica's work. A restart may have brought more replicas.
func (w *Work) replica(d int) float64 {
	if len(w.Replicas) == 0 {
		return 1
	}

	return w.Replicas[d%len(w.Replicas)]
}

// experts draws the load of a rank's experts: how popular they are, and this step's tokens.
func (j *job) experts(r *rank, a *position) {
	w := &j.cfg.Work
	r.load = 1
	if j.lay.shape.EP < 2 {
		return
	}

	if w.RoutingSD > 0 {
		r.load = math.Exp(w.RoutingSD * j.popular[[2]int{a.p, a.d % j.lay.shape.EP}])
	}

	if w.ExpertSD <= 0 {
		return
	}

	r.expert = j.walk(r.expert, w.ExpertRho, 1)
	r.load *= math.Exp(w.ExpertSD*r.expert - w.ExpertSD*w.ExpertSD/2)
}

// route moves the popularity of every expert. The first value is drawn at full spread, as if
// the job had run before.
func (j *job) route() {
	w, s := &j.cfg.Work, j.lay.shape
	if w.RoutingSD <= 0 || s.EP < 2 {
		return
	}

	for p := range s.PP {
		for e := range s.EP {
			k := [2]int{p, e}
			rho := w.ExpertRho
			if _, ok := j.popular[k]; !ok {
				rho = 0
			}

			j.popular[k] = j.walk(j.popular[k], rho, 1)
		}
	}
}

// at is the factor of the work in an executed step.
func (p *Phase) at(index int) float64 {
	if index < p.From || p.To > 0 && index >= p.To || p.Every > 0 && (index-p.From)%p.Every >= p.Steps {
		return 1
	}

	if p.Ramp > 0 {
		return 1 + (p.Factor-1)*min(1, float64(index-p.From+1)/float64(p.Ramp))
	}

	return p.Factor
}

// lose decides whether this rank-step arrives.
func (j *job) lose(r *rank) {
	l := &j.cfg.Loss
	r.drop = r.absent
	if l.RankSteps <= 0 {
		return
	}

	// A two-state chain (Gilbert's channel) with mean run length Run and share RankSteps.
	// It enters as often as it leaves: enter·(1 - share) = leave·share.
	leave := 1 / l.Run
	enter := leave * l.RankSteps / (1 - l.RankSteps)
	u := j.losses.Float64()
	if r.losing {
		r.losing = u >= leave
	} else {
		r.losing = u < enter
	}

	r.drop = r.drop || r.losing
}

// pause is an evaluation before this step.
func (j *job) pause() {
	p := &j.cfg.Pause
	if p.Every <= 0 || j.index == 0 || j.index%p.Every != 0 {
		return
	}

	ns := p.Share * j.nominal()
	for i := range j.r {
		r := &j.r[i]
		r.t += ns * (0.98 + 0.04*j.physics.Float64()) // ranks evaluate as equal batches, within 2 %
		if !p.Inside {
			r.start = r.t
		}
	}
}
