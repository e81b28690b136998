package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// outcome is one window test of one unit.
type outcome struct {
	valid  int
	effect float64 // log ratio to the peers, or to the own past
	z      float64
	slow   float64 // share of steps that are slow by themselves
	pass   bool
}

// Values returns the valid residuals of the last k steps of unit r, none where it had none.
func (t *Test) Values(r, k int) []float32 {
	k = min(k, threshold.Window, t.count-max(0, int(t.first[r])))
	t.buf = t.buf[:0]
	for i := t.count - k; i < t.count; i++ {
		if x := t.window(r)[i%threshold.Window]; x == x {
			t.buf = append(t.buf, x)
		}
	}

	return t.buf
}

// try tests the last k steps of unit r: against its peers, whose spread is known
// from the other ranks, and against its own healthy past.
func (t *Test) try(r, k int) outcome {
	v := t.Values(r, k)
	o := outcome{valid: len(v)}
	if o.valid < threshold.MinBold {
		return o
	}

	var m32 float32
	slowFrom := float32(t.cfg.Effect / 2)
	m32, t.hl = robust.HodgesLehmann(v, t.hl)
	m, sigma := float64(m32), float64(t.Noise(r))
	if t.SelfOnly { // units differ: what others vary by says little of one
		t.hl = append(t.hl[:0], v...)
		sigma = max(sigma, float64(percentileSpread(t.hl)))
	}

	rho := t.rho()
	steps := float64(o.valid) * (1 - rho) / (1 + rho) // as many independent ones
	se := robust.HodgesLehmannLoss * sigma / math.Sqrt(steps)
	freedom := min(tailFreedom, leastFreedom+steps)
	se = math.Hypot(se, t.Load)
	o.effect, o.z = m-t.skew[0], (m-t.skew[0])/math.Hypot(se, t.unsure*t.tau)
	if t.SelfOnly {
		o.effect, o.z = 0, 0
	}

	if mates := float64(t.beside(r)); mates == mates && m >= peerGain {
		if z := (m - mates) / math.Hypot(se, t.unsure*t.tauHost); z > o.z {
			o.effect, o.z = m-mates, z
			slowFrom += float32(max(0, mates))
		}
	}

	if past, n, tau := t.past(r, t.began(r, k)); n >= minBase {
		se2 := math.Hypot(se, robust.MedianLoss*sigma/math.Sqrt(float64(n*threshold.BlockSteps)))
		if z := (m - past) / math.Hypot(se2, tau); z > o.z && (m >= peerGain || t.SelfOnly) {
			o.effect, o.z = m-past, z
			slowFrom += float32(past)
		}
	}

	slow := 0
	for _, x := range v {
		if x > slowFrom {
			slow++
		}
	}

	o.slow = float64(slow) / float64(o.valid)
	enough := o.valid >= threshold.MinValid || math.Expm1(o.effect) >= boldEffects*t.cfg.Effect
	least := t.cfg.MinEffect
	if t.SelfOnly {
		least = t.cfg.Effect // without peers a small change may be anything
	}

	o.pass = enough && o.slow >= threshold.SlowShare && math.Expm1(o.effect) >= least && t.significant(o.z, t.cfg.Alarm, freedom)
	return o
}

// significant compares z with the alarm budget of one rank and, with Benjamini
// and Hochberg, with the number of ranks and signals that are tested at once.
func (t *Test) significant(z, alarm, freedom float64) bool {
	if z < alarm {
		return false
	}

	found := 1
	if t.Together > 64 {
		for _, p := range t.phase {
			if p == degraded {
				found++
			}
		}
	}

	return robust.Tail(z, freedom) <= t.cfg.Discovery*float64(found)/float64(t.Together)
}

// FromStart reports whether unit r was slow from its first step on.
func (t *Test) FromStart(r int) bool { return t.sinceAt[r] <= t.first[r]+2 }

// Age is the number of steps since the episode of unit r began.
func (t *Test) Age(r int) int { return t.count - int(t.sinceAt[r]) }

// Recent is how many of the last steps tell how slow unit r is now: those of its episode,
// as far as a window goes and no fewer than a bold decision takes.
func (t *Test) Recent(r int) int {
	return min(threshold.Window, max(threshold.MinBold, t.Age(r)))
}

// evaluate tests unit r after a step: suspects often, the others in turn.
func (t *Test) evaluate(r int) {
	if t.first[r] < 0 {
		return
	}

	switch {
	case t.phase[r] == suspect && (t.count-int(t.sinceAt[r]))%suspectEvery == 0:
		t.evaluateSuspect(r)
	case t.phase[r] == degraded && (t.count+r)%threshold.EvaluateEvery == 0:
		if o := t.try(r, min(threshold.Window, t.Age(r))); o.pass {
			t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
		}
	}

	if (t.count+r)%threshold.EvaluateEvery == 0 {
		t.evaluateQuiet(r)
	}
}

// need is how many evaluations in a row unit r must fail.
func (t *Test) need(r int) uint8 {
	if t.few[r] {
		return 2 * threshold.Confirmations
	}

	return threshold.Confirmations
}

// evaluateSuspect confirms a suspicion or lets it wait.
func (t *Test) evaluateSuspect(r int) {
	age := t.Age(r)
	ripe := age >= settledSteps || t.FromStart(r) && age-int(t.warmed[r]) >= threshold.MinBold
	var o outcome
	if ripe {
		o = t.try(r, min(age, threshold.Window))
	}

	if !o.pass {
		t.passes[r] = 0
		if age > suspectLasts { // it teaches the noise again
			t.endEpisode(r)
		}

		return
	}

	// Suspected of noise, and slow only since: of what is small and wanders nobody can tell when it began.
	if t.passes[r] == 0 && age > threshold.Window && math.Expm1(o.effect) >= t.cfg.Effect {
		t.sinceWithin(r, float32(o.effect)/2)
	}

	t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
	t.passes[r] = min(t.passes[r]+1, 100)
	if t.passes[r] < t.need(r) || t.count-int(t.first[r]) < threshold.Window {
		return
	}

	if whole := t.try(r, threshold.Window); whole.slow >= threshold.SlowShare || age >= threshold.Window {
		t.confirm(r)
	}
}

// confirm makes a suspect degraded. Whether so many are slow that the cause must be
// a common one is asked of the whole job, when somebody is accused.
func (t *Test) confirm(r int) {
	t.phase[r] = degraded
	t.confirmed = append(t.confirmed, int32(r))
}

// Convict confirms a suspect by other evidence than its windows, though all units go as far from their past: effect is what it
// is slow by. z is what its own noise leaves of that.
func (t *Test) Convict(r int, effect float64) {
	if t.phase[r] == suspect {
		se := robust.HodgesLehmannLoss * float64(t.Noise(r)) / math.Sqrt(threshold.Window)
		t.effect[r], t.z[r] = float32(effect), float32(effect/se)
		t.confirm(r)
	}
}

// evaluateQuiet tests a unit that the CUSUM has not caught: the window, then the
// slow lanes.
func (t *Test) evaluateQuiet(r int) {
	t.mid[r] = t.level(r)
	if t.mid[r] != t.mid[r] || t.phase[r] == degraded {
		return
	}

	if t.phase[r] == ok && t.count-int(t.first[r]) >= threshold.Window && (t.SelfOnly || t.mid[r] >= float32(t.cfg.MinEffect)*0.8) {
		if o := t.try(r, threshold.Window); o.pass {
			t.passes[r]++
			t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
			if t.passes[r] == 1 {
				t.detected[r] = t.label(t.count - 1)
				if t.climb[r] == 0 {
					t.since[r], t.sinceAt[r] = t.label(t.count-threshold.Window), int32(t.count-threshold.Window)
				}
			}

			if t.passes[r] >= t.need(r) {
				t.caught(r)
			}

			return
		}

		t.passes[r] = 0
	}

	t.evaluateLanes(r)
}

// level is the mean of the last blocks that make a window, cheap enough for every
// rank; NaN when half of them are missing. It only screens: who stands out is
// tested with the full window.
func (t *Test) level(r int) float32 {
	const n = threshold.Window / threshold.BlockSteps
	var sum float32
	k := 0
	for i := 1; i <= n && i <= int(t.block[r]); i++ {
		if x := t.kept(r)[(int(t.block[r])-i)%maxBlocks]; x == x {
			sum += x
			k++
		}
	}

	if 2*k < n {
		return robust.NaN
	}

	return sum / float32(k)
}

// caught makes a unit that only a window caught degraded.
func (t *Test) caught(r int) {
	if t.phase[r] == ok {
		if t.lanePasses[r] == 0 {
			t.detected[r] = t.label(t.count - 1)
		}

		t.fall[r], t.until[r], t.fallAt[r] = 0, t.label(t.count-1), int32(t.count)
	}

	t.confirm(r)
}

// evaluateLanes tests the slow lanes: what noise hides in 32 steps shows in 64 to
// 256. Persistence is asked of blocks, for single steps are mostly noise here.
func (t *Test) evaluateLanes(r int) {
	if t.SelfOnly || t.Intermittent(r) {
		return
	}

	for i, l := range lanes {
		m, from := float64(t.laneMean[r][i])-t.skew[1+i], float32(t.cfg.Effect/2+t.skew[1+i])
		switch {
		case m >= float64(t.least):
		case l >= LongBlocks && m >= LongShare*float64(t.least): // small, but for long and in every block
			from = float32(longEach*m + t.skew[1+i])
		default:
			continue
		}

		if t.comesAndGoes(r, m) {
			continue
		}

		z := m / t.lanesApart(r, i)
		if l >= LongBlocks {
			z = max(z, t.laneRise(r, i))
		}

		if t.tauLane[i] == 0 || !t.significant(z, t.cfg.LongAlarm, float64(tailFreedom*l*threshold.BlockSteps)/threshold.Window) {
			continue
		}

		slow, n := 0, 0
		for k := 1; k <= l; k++ {
			x := t.kept(r)[(int(t.block[r])-k)%maxBlocks]
			if x != x {
				continue
			}

			n++
			if x > from {
				slow++
			}
		}

		if float64(slow) < threshold.SlowShare*float64(n) {
			continue
		}

		if t.lanePasses[r] == 0 && t.phase[r] == ok {
			t.detected[r] = t.label(t.count - 1)
			t.sinceBlock(r, l, from)
		}

		t.z[r], t.effect[r] = float32(z), float32(m)
		t.lanePasses[r] = min(t.lanePasses[r]+1, 100)
		if t.lanePasses[r] >= t.need(r) {
			t.slow[r] = t.phase[r] == ok
			t.caught(r)
		}

		return
	}

	t.lanePasses[r] = 0
}

// comesAndGoes reports whether single steps of unit r, where noise lets them show its
// mean m, are not slow as often as lasting slowness would make them.
func (t *Test) comesAndGoes(r int, m float64) bool {
	if m < 2*float64(t.Noise(r)) {
		return false
	}

	v, slow := t.Values(r, threshold.Window), 0
	for _, x := range v {
		if float64(x) > m/2 {
			slow++
		}
	}

	return float64(slow) < threshold.SlowShare*float64(len(v))
}

// laneRise is how many standard errors the i-th lane of unit r, a long one, is above its own past.
func (t *Test) laneRise(r, i int) float64 {
	if t.blockSD == 0 {
		return 0
	}

	past, n, tau := t.past(r, t.count-lanes[i]*threshold.BlockSteps)
	rise := float64(t.laneMean[r][i]) - past
	if n < minBase || rise < LongShare*float64(t.least) {
		return 0
	}

	if tau <= tauFloor {
		tau = laneFloor
	}

	noise := math.Hypot(t.blockSD, robust.MedianLoss*float64(t.Left[r])/math.Sqrt(threshold.BlockSteps))
	return rise / math.Hypot(noise*math.Sqrt(1/float64(lanes[i])+1/float64(n)), tau)
}

// Active reports whether unit r is slow now in the eyes of a window test. Of the
// slow lanes the last evaluation is enough for what is said now: the one before
// shares seven eighths of its steps.
func (t *Test) Active(r int) bool {
	return t.phase[r] == ok && t.lanePasses[r] > 0 && !t.few[r] || t.phase[r] == degraded || t.phase[r] == suspect && t.passes[r] >= t.need(r)
}

// Corroborates reports whether unit r is above what it was before that count as well, by
// least and more, and above its peers by as much, for who was below them may come back:
// not enough to alarm, but no wait makes it.
func (t *Test) Corroborates(r, at int, least float64) bool {
	past, n, tau := t.past(r, min(at, t.count-lanes[0]*threshold.BlockSteps))
	if n < minBase || t.blockSD == 0 {
		return false
	}

	now := float64(t.laneMean[r][0])
	rise := now - past
	return rise >= max(peerGain, least) && now >= least && rise >= SuspectZ*math.Hypot(t.blockSD*math.Sqrt(1/float64(lanes[0])+1/float64(n)), tau)
}
