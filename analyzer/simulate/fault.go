package simulate

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// kinds are what each kind of fault does to its ranks, by its factor and share in a step, and what causes
// of it are accepted. Of a slow backward that nobody recorded only the excess shows, as a delay.
var kinds = map[string]struct {
	strike func(r *rank, factor, share float64)
	causes []string
}{
	Compute:    {speed, []string{verdict.Compute}},
	Backward:   {func(r *rank, factor, _ float64) { r.backward *= factor }, []string{verdict.Compute, verdict.HostDelay}},
	Host:       {func(r *rank, _, share float64) { r.hostExtra += share }, []string{verdict.HostDelay}},
	DataLoader: {func(r *rank, _, share float64) { r.loadExtra += share }, []string{verdict.DataLoader}},
	SaveSlow:   {func(r *rank, factor, _ float64) { r.saveFactor *= factor }, []string{verdict.Checkpoint}},
	NIC:        {nil, []string{verdict.Communication}},
	Link:       {nil, []string{verdict.Communication}},
	Job:        {speed, nil},
}

func speed(r *rank, factor, _ float64) { r.speed *= factor }

// effect is a fault on its way: where its ranks are now and when it bursts.
type effect struct {
	Fault
	bursts [][2]int // [from, to) of executed steps; nil = without a break
	ranks  []int    // in the current attempt
	group  int      // Link: in the current attempt, -1 = gone
	onset  int      // number of the step it began with, -1 = not yet
	first  int      // index of that step among those executed
	past   int      // steps of the attempt before it
	out    bool     // left out, to see what it costs
	until  int      // number of the first step without it after its end, -1 = it lasts
}

// plan draws the bursts of the faults. A fault without an end has them until the job's.
func (j *job) plan() []effect {
	var out []effect
	for _, f := range j.cfg.Faults {
		e := effect{Fault: f, onset: -1, until: -1}
		if f.BurstShare > 0 || f.BurstEvery > 0 {
			if f.To == 0 {
				f.To = j.cfg.Steps
			}

			e.bursts = j.drawBursts(f)
		}

		out = append(out, e)
	}

	return out
}

// drawBursts places the bursts of a fault without overlap so that they fill its
// share, rounded up, of the steps From…To: one in each of as many equal parts, at a
// drawn place in it; or one at the start of each BurstEvery steps. The first comes
// with From.
func (j *job) drawBursts(f Fault) [][2]int {
	total := f.To - f.From
	mean := float64(f.BurstSteps+f.BurstMost) / 2
	count := max(1, int(math.Ceil(f.BurstShare*float64(total)/mean)))
	if f.BurstEvery > 0 {
		count = max(1, total/f.BurstEvery)
	}

	var out [][2]int
	for k := range count {
		a, b, n := f.From+k*total/count, f.From+(k+1)*total/count, f.BurstSteps
		if f.BurstMost > n {
			n += j.faults.IntN(f.BurstMost - n + 1)
		}

		at := a
		if k > 0 && b-a > n && f.BurstEvery == 0 {
			at += j.faults.IntN(b - a - n)
		}

		out = append(out, [2]int{at, min(at+n, f.To)})
	}

	return out
}

// size is how much of the fault there is at an executed step, 0…1.
func (e *effect) size(index int) float64 {
	if e.out || index < e.From || e.To > 0 && index >= e.To {
		return 0
	}

	if e.bursts != nil {
		if slices.ContainsFunc(e.bursts, func(b [2]int) bool { return b[0] <= index && index < b[1] }) {
			return 1
		}

		return 0
	}

	if e.Ramp > 0 {
		return min(1, float64(index-e.From+1)/float64(e.Ramp))
	}

	return 1
}

// computes reports whether a fault makes a rank compute longer, or pause between its operations.
func (f *Fault) computes() bool { return f.Kind == Compute || f.Kind == Backward || f.Kind == Host }

// hits reports whether a fault sits on a device.
func (f *Fault) hits(a *position) bool {
	return a.host == f.Node && (len(f.Locals) == 0 || slices.Contains(f.Locals, a.local))
}

// faulty reports whether any fault sits on a device.
func (j *job) faulty(a *position) bool {
	return slices.ContainsFunc(j.cfg.Faults, func(f Fault) bool { return f.Kind != Link && f.Kind != Job && f.hits(a) })
}

// resolve finds the ranks of the faults in the current attempt: a restart may have put others
// on the hardware, and made other groups.
func (j *job) resolve() {
	for k := range j.effects {
		e := &j.effects[k]
		e.ranks = nil
		for i := range j.lay.at {
			if e.Kind == Job || e.hits(&j.lay.at[i]) {
				e.ranks = append(e.ranks, i)
			}
		}

		e.group = j.lay.find(e.Group)
	}
}

// apply sets what the faults do to every rank and transfer in this step. Several on one multiply,
// or add up where they are shares.
func (j *job) apply() {
	for i := range j.r {
		r := &j.r[i]
		r.speed, r.backward, r.hostExtra, r.loadExtra, r.saveFactor = 1, 1, 0, 0, 1
	}

	for h := range j.hosts {
		j.hosts[h].slow = 1
	}

	for g := range j.meets {
		j.meets[g] = meet{factor: 1}
	}

	for k := range j.effects {
		e := &j.effects[k]
		if e.onset >= 0 && e.until < 0 && e.To > 0 && j.index >= e.To {
			e.until = j.step
		}

		size := e.size(j.index)
		if size == 0 {
			continue
		}

		if e.Kind != SaveSlow { // which begins with a save
			e.begin(j)
		}

		factor := 1 + (e.Factor-1)*size
		switch {
		case e.Kind == NIC:
			j.hosts[e.Node].slow *= factor
		case e.Kind == Link && e.group >= 0: // a fault of share x makes the step x longer
			j.slowLink(e.group, e.Share*size*j.nominal())
		case e.Kind == Job:
			for g := range j.meets {
				j.meets[g].factor *= factor
			}
		}

		for _, i := range e.ranks {
			if strike := kinds[e.Kind].strike; strike != nil {
				strike(&j.r[i], factor, e.Share*size)
			}
		}
	}
}

// begin notes that the fault shows in this step.
func (e *effect) begin(j *job) {
	if e.onset < 0 && (len(e.ranks) > 0 || e.group >= 0) {
		e.onset, e.first, e.past = j.step, j.index, j.done
	}
}

// slowLink adds ns a step to the transfers of group g that can be seen in the
// step time: where they overlap computing, what hides behind it comes on top.
func (j *job) slowLink(g int, ns float64) {
	m, s := &j.cfg.Model, j.lay.shape
	x := &j.meets[g]
	switch j.lay.groups[g].dim {
	case dimTP, dimCP:
		x.factor *= 1 + ns/(m.TPShare*j.unitStep())
		return
	case dimEP:
		x.factor *= 1 + ns/(expertShare*j.unitStep())
		return
	case dimPP:
		x.factor *= 1 + ns/(m.PPShare*j.unitStep())
		return
	}

	if m.Sharded { // two transfers share what the link adds: the gradients' and the parameters'
		x.gather += 0.3 * ns
		ns *= 0.7
	}

	if m.Overlap && m.Buckets > 1 {
		later := float64(m.Buckets-1) / float64(m.Buckets)
		last := j.passTime(task{stage: j.lay.at[j.lay.groups[g].ranks[0]].p, way: back, micro: s.MicroBatches - 1})
		ns += max(0, later*(last-m.gradients()*j.unitStep()))
	}

	x.grad += ns
}
