package cost

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

const (
	// forwardShare: a backward pass takes about two forward passes.
	forwardShare = 1.0 / 3
	// recomputedShare: where forward passes are more of the own time than this, half of them
	// run again within the backward pass (activation recomputation).
	recomputedShare = 0.45
	// hiddenWait: a role whose own time is that much more than its forward time
	// lets expect waits somewhere that no range recorded.
	hiddenWait = 1.05
	// habitSample ranks of a role tell its habits.
	habitSample = 5
	// ownLimit bounds a rank's own time in one step the same way, where it may hold waits.
	ownLimit = 1.25
	// patchySpread is by how much of forward and backward passes own time is longer in one of ten steps where waits are missing from the
	// record here and there: optimizer, host and pauses made 0.03 of it at most in 60 jobs, one lost record of ten 0.12 and more. More than
	// patchyMost is no part of a step's waits. In one of ten steps none is missing, and passes are patchyPasses of own time.
	patchySpread = 0.06
	patchyMost   = 1
	patchyPasses = 0.75
	// lostShare of the rank-steps of those that are well have more own time than that where records are missing.
	lostShare = 0.1
)

// stepWork fills did with what each of the rows did by itself in the i-th analysed step:
// its own time; where that holds waits that nobody recorded, or was not measured,
// what its forward passes let expect. In the pipeline of somebody who is charged,
// what the others spend beyond that is a wait for them.
func (b *Book) stepWork(i int, rows []int32, victims bool) {
	if len(b.did.Passes) != len(b.layout.Node) {
		b.did.Passes, b.did.Before = make([]float64, len(b.layout.Node)), make([]float64, len(b.layout.Node))
	}

	h := &b.habits
	self, fp, bp, load := b.recent.At(frame.Self, i), b.recent.At(frame.FP, i), b.recent.At(frame.Backward, i), b.recent.At(frame.DataLoader, i)
	get := func(v []float32, r int) float64 {
		if v == nil {
			return math.NaN()
		}

		return float64(v[r])
	}
	for _, row := range rows {
		r := int(row)
		s, f, back := get(self, r), get(fp, r), get(bp, r)
		if s != s && f != f && holds(b.faults, r) { // its step did not arrive: it is as slow as in others
			usual := func(m frame.Metric) float64 { return b.recent.Median(m, r, threshold.Window) }
			s, f, back = usual(frame.Self), usual(frame.FP), usual(frame.Backward)
		}

		if back == back && h.Both {
			f += back
		}

		expect := h.Own * f
		switch {
		case s != s:
			s = expect
		case expect == expect && b.byForward(r) && !(victims && besideForward(b.charged, r)):
			s = expect
		case h.Patchy && !besideForward(b.charged, r) && expect == expect:
			s = expect
		case h.Lost && !b.blames(r):
			s = b.usually(r).without(s, get(fp, r))
		case expect == expect && s > ownLimit*expect && b.hides(r) && b.tests[history.Own].Healthy(r) && !besideForward(b.charged, r):
			s = ownLimit * expect
		case expect == expect && b.layout.Stages > 1 && b.layout.Role[r] >= 0:
			if s = max(0, s-h.Surplus[b.layout.Role[r]]*f); victims && !holds(b.charged, r) {
				s = min(s, expect)
			}
		}

		b.did.Passes[r] = s
		b.did.Before[r] = robust.Finite(get(load, r), 0)
	}

	b.did.Forward, b.did.Micro = h.Forward, b.micro(i)
}

// micro is how many micro-batches the i-th step had, 0 where it is not known.
func (b *Book) micro(i int) int {
	n := int(b.recent.Passes[i%threshold.Window])
	if b.habits.Recomputed {
		n /= 2
	}

	return n
}

// Micro is how many micro-batches the last step had, 0 where it is not known.
func (b *Book) Micro() int {
	defer b.learnedHere()()
	return b.micro(b.recent.Count - 1)
}

// hides reports whether a row's own time may hold waits: without a pipeline it does where those for the
// blamed are recorded nowhere. Else what is long in one step is a pause.
func (b *Book) hides(row int) bool {
	g := b.layout.Role[row]
	return b.layout.Stages > 1 || g < 0 || int(g) >= len(b.habits.Unseen) || b.habits.Unseen[g] > 0
}

// holds reports whether any of the faults is a row's.
func holds(faults []Fault, row int) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool { return f.Row == row })
}

// blames reports whether a row is blamed by itself, not only for its node.
func (b *Book) blames(row int) bool {
	return slices.ContainsFunc(b.faults, func(f Fault) bool { return f.Row == row && !f.Slight })
}

// besideForward reports whether one of the faults is a row's for what it does beside its forward passes, which
// tell nothing of it then.
func besideForward(faults []Fault, row int) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool {
		return f.Row == row && f.Has[history.Own] && !f.Has[history.Compute] && !f.Slight
	})
}

// habits is how a job's own time goes with its forward passes.
type habits struct {
	Own     float64 // own time / forward time, or forward and backward where Both
	Both    bool    // backward passes are recorded
	Forward float64 // share of own time that is forward, and not recomputed in the backward pass
	// Recomputed tells that of each two forward passes one runs within a backward pass.
	Recomputed bool
	// Surplus is by how much a role's own time exceeds that, per forward time: waits
	// that no range recorded, which grow towards the end of a pipeline.
	Surplus  []float64
	Expected []bool // roles whose own time is not known, or holds waits: it is Own times what they compute
	// Unseen is how many seconds of a step the others of a role wait for its blamed ranks where
	// no Communication says so: a trainer may wait in calls that nobody records.
	Unseen []float64
	// Lost tells that own times are long in many steps of ranks that are well: records of Communication are missing.
	Lost bool
	// Patchy tells that own times are long by parts of a step, now here, now there: forward and backward passes tell the work.
	Patchy bool
}

// byForward reports whether a row's own time is what its forward passes let expect.
func (b *Book) byForward(row int) bool {
	g := b.layout.Role[row]
	h := b.habits.Expected
	return g >= 0 && int(g) < len(h) && h[g]
}

// Learned reports whether the job's habits are those of this layout.
func (b *Book) Learned() bool { return len(b.habits.Expected) == len(b.layout.Roles) }

// learnedHere lets a question learn the job's habits without keeping them.
func (b *Book) learnedHere() (forget func()) {
	if b.Learned() {
		return func() {}
	}

	old := b.habits
	b.Learn()
	return func() { b.habits = old }
}

// Learn learns from the window how own time follows forward time, stage by stage, from those
// of its ranks that wait least for others inside their forward passes.
func (b *Book) Learn() {
	h := &b.habits
	*h = habits{Expected: make([]bool, len(b.layout.Roles)), Surplus: make([]float64, len(b.layout.Roles)), Unseen: make([]float64, len(b.layout.Roles)), Forward: forwardShare, Own: 1 / forwardShare}
	h.Both = b.recent.Has(frame.Backward) && b.recent.Has(frame.FP) && !b.backward.Waiting
	if h.Both {
		h.Own = 1
	}

	byStage := map[int][]float64{}
	var known, forward []float64
	for g := range b.layout.Roles {
		rows, stage := b.layout.Roles[g].Rows, b.layout.Roles[g].Stage
		for k := range min(len(rows), habitSample) {
			r := int(rows[k*len(rows)/min(len(rows), habitSample)])
			if besideForward(b.faults, r) {
				continue
			}

			fp, bp, self := b.recent.Median(frame.FP, r, threshold.Window), b.recent.Median(frame.Backward, r, threshold.Window), b.recent.Median(frame.Self, r, threshold.Window)
			if h.Both {
				forward = append(forward, fp/(fp+bp))
				fp += bp
			}

			if x := self / fp; x == x {
				byStage[stage] = append(byStage[stage], x)
			}
		}
	}

	ratios := map[int]float64{}
	for stage, v := range byStage {
		slices.Sort(v)
		ratios[stage] = v[3*(len(v)-1)/4]
		known = append(known, ratios[stage])
	}

	if x := robust.Median64(forward); x == x {
		h.Forward = x
	}

	if len(known) > 0 {
		slices.Sort(known)
		h.Own = known[(len(known)-1)/2]
		if !h.Both {
			h.Forward = min(0.5, max(0.2, 1/h.Own))
			if h.Recomputed = h.Forward > recomputedShare; h.Recomputed {
				h.Forward /= 2
			}
		}
	}

	for g := range b.layout.Roles {
		x, ok := ratios[b.layout.Roles[g].Stage]
		h.Expected[g] = x > hiddenWait*h.Own || !ok && !besideForward(b.faults, int(b.layout.Roles[g].Rows[0]))
		h.Surplus[g] = max(0, x-h.Own)
		h.Unseen[g] = b.unseen(g)
	}

	h.Lost, h.Patchy = b.lost(), b.patchy()
}

// patchy reports whether own time holds waits that are missing from the record here and there: it is far longer in some steps
// than forward and backward passes, which hold none, for they are no longer than it.
func (b *Book) patchy() bool {
	if !b.habits.Both {
		return false
	}

	var spreads, whole []float64
	shorter, all := 0, 0
	for _, r := range history.Sample(b.graph.All()) {
		if b.blames(int(r)) {
			continue
		}

		var beside []float32
		for i := max(0, b.recent.Count-threshold.Window); i < b.recent.Count; i++ {
			self, fp, bp := b.recent.At(frame.Self, i), b.recent.At(frame.FP, i), b.recent.At(frame.Backward, i)
			if self == nil || fp == nil || bp == nil {
				continue
			}

			if work := fp[r] + bp[r]; work > 0 && self[r] == self[r] {
				beside = append(beside, self[r]/work)
				all++
				if self[r] < work {
					shorter++
				}
			}
		}

		if len(beside) >= threshold.MinBold {
			whole = append(whole, float64(robust.Kth(beside, len(beside)/10)))
			spreads = append(spreads, float64(robust.Kth(beside, len(beside)*9/10)-robust.Median(beside)))
		}
	}

	spread := robust.Median64(spreads)
	return float64(shorter) < lostShare*float64(all) && robust.Median64(whole) < 1/patchyPasses && spread > patchySpread && spread < patchyMost
}

// times are what a rank usually takes for its own work, and for forward passes.
type times struct{ own, forward float64 }

// usually is what a row takes in the middle of the window.
func (b *Book) usually(r int) times {
	return times{b.recent.Median(frame.Self, r, threshold.Window), b.recent.Median(frame.FP, r, threshold.Window)}
}

// without is own time of a step without Communication that is not recorded: what is usual, as much longer as
// the forward passes are, where the own time is far longer.
func (t times) without(own, forward float64) float64 {
	if x := t.own * max(1, robust.Finite(forward/t.forward, 1)); own > ownLimit*x {
		return x
	}

	return own
}

// lost reports whether records of Communication are missing here and there: in many rank-steps of those that are not
// blamed their own time is far longer than usual, though the step isn't, and they are busy for as long as others of whom that is
// true, however unlike these usually are: for all of the step.
func (b *Book) lost() bool {
	long, all, alike, unlike := 0, 0, 0.0, 0.0
	rows := history.Sample(b.graph.All())
	usual := make([]times, len(rows))
	for k, r := range rows {
		usual[k] = b.usually(int(r))
	}

	step := b.recent.Over(frame.Step, rows, threshold.Window, nil)
	var busy, works []float32
	for i := max(0, b.recent.Count-threshold.Window); i < b.recent.Count; i++ {
		steps, self, fp, exposed := b.recent.At(frame.Step, i), b.recent.At(frame.Self, i), b.recent.At(frame.FP, i), b.recent.At(frame.Exposed, i)
		if steps == nil || self == nil || fp == nil || exposed == nil || !(float64(b.recent.Times[i%threshold.Window]) < ownLimit*step) {
			continue
		}

		busy, works = busy[:0], works[:0]
		for k, r := range rows {
			x := float64(self[r])
			if x != x || b.blames(int(r)) {
				continue
			}

			if all++; usual[k].without(x, float64(fp[r])) < x {
				busy, works = append(busy, steps[r]-exposed[r]), append(works, float32(usual[k].own))
			}
		}

		if len(busy) > 1 {
			long += len(busy)
			alike, unlike = alike+float64(robust.MAD(busy)), unlike+float64(robust.MAD(works))
		}
	}

	return float64(long) > lostShare*float64(all) && alike < unlike/2
}

// unseen is what the others of a role wait for those of it that are blamed for computing, and
// for nothing else: their own time is as long though they compute less. It is at most what the
// blamed compute more, and 0 where it isn't most of that.
func (b *Book) unseen(role int) float64 {
	type sample struct{ forward, rest []float64 }
	var blamed, others sample
	rows := b.layout.Roles[role].Rows
	add := func(t *sample, r int) {
		fp, self := b.recent.Median(frame.FP, r, threshold.Window), b.recent.Median(frame.Self, r, threshold.Window)
		if rest := self - fp; rest == rest {
			t.forward, t.rest = append(t.forward, fp), append(t.rest, rest)
		}
	}
	for _, f := range b.faults {
		if slices.Contains(rows, int32(f.Row)) {
			if f.Has[history.Own] || !f.Has[history.Compute] {
				return 0
			}

			add(&blamed, f.Row)
		}
	}

	if len(blamed.rest) == 0 {
		return 0
	}

	for k := 0; k < len(rows) && len(others.rest) < habitSample; k++ {
		if r := int(rows[k]); !holds(b.faults, r) {
			add(&others, r)
		}
	}

	wait := robust.Median64(others.rest) - robust.Median64(blamed.rest)
	if more := robust.Median64(blamed.forward) - robust.Median64(others.forward); wait >= more/2 {
		return min(wait, more)
	}

	return 0
}

// othersWait is what the ranks that are not blamed wait in the i-th step: the median
// of their exposed communication, and what nearly all wait no more than; NaN when none
// is recorded.
func (b *Book) othersWait(i int, faults []Fault) (mid, high float64) {
	v := b.recent.At(frame.Exposed, i)
	if v == nil {
		return math.NaN(), math.NaN()
	}

	b.buf = b.buf[:0]
	stride := len(b.layout.Node)/robust.SampleSize + 1
	for r := 0; r < len(b.layout.Node); r += stride {
		if x := v[r]; x == x && !holds(faults, r) {
			b.buf = append(b.buf, x)
		}
	}

	if len(b.buf) == 0 {
		return math.NaN(), math.NaN()
	}

	high = float64(robust.Kth(b.buf, len(b.buf)*9/10))
	return float64(robust.Median(b.buf)), high
}
