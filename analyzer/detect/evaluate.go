package detect

import "math"

// outcome is one window test of one unit.
type outcome struct {
	valid  int
	effect float64 // log ratio to the peers, or to the own past
	z      float64
	slow   float64 // share of steps that are slow by themselves
	pass   bool
}

// values returns the valid residuals of the last k steps of unit r.
func (t *track) values(r, k int) []float32 {
	k = min(k, window, t.count-int(t.first[r]))
	t.buf = t.buf[:0]
	for i := t.count - k; i < t.count; i++ {
		if x := t.ring[r*window+i%window]; x == x {
			t.buf = append(t.buf, x)
		}
	}
	return t.buf
}

// try tests the last k steps of unit r: against its peers, whose spread is known
// from the other ranks, and against its own healthy past.
func (t *track) try(r, k int) outcome {
	v := t.values(r, k)
	o := outcome{valid: len(v)}
	if o.valid < minBold {
		return o
	}
	var m32 float32
	slowFrom := float32(t.cfg.Effect / 2)
	m32, t.hl = hodgesLehmann(v, t.hl)
	m, sigma := float64(m32), float64(t.noiseOf(r))
	rho := t.rho()
	steps := float64(o.valid) * (1 - rho) / (1 + rho) // as many independent ones
	se := hlLoss * sigma / math.Sqrt(steps)
	freedom := min(tailFreedom, leastFreedom+steps)
	se = math.Hypot(se, t.load)
	o.effect, o.z = m, m/math.Hypot(se, t.tau)
	if t.selfOnly {
		o.effect, o.z = 0, 0
	}
	if t.baseN[r] >= minBase {
		base := float64(t.base[r])
		se2 := math.Hypot(se, medianLoss*sigma/math.Sqrt(blockSteps*float64(min(t.baseN[r], baseBlocks))))
		if z := (m - base) / math.Hypot(se2, t.tauOwn); z > o.z && (m >= peerGain || t.selfOnly) {
			o.effect, o.z = m-base, z
			slowFrom += t.base[r]
		}
	}
	slow := 0
	for _, x := range v {
		if x > slowFrom {
			slow++
		}
	}
	o.slow = float64(slow) / float64(o.valid)
	enough := o.valid >= minValid || math.Expm1(o.effect) >= boldEffects*t.cfg.Effect
	least := t.cfg.MinEffect
	if t.selfOnly {
		least = t.cfg.Effect // without peers a small change may be anything
	}
	o.pass = enough && o.slow >= slowShare && math.Expm1(o.effect) >= least && t.significant(o.z, t.cfg.Alarm, freedom)
	return o
}

// significant compares z with the alarm budget of one rank and, with Benjamini
// and Hochberg, with the number of ranks and signals that are tested at once.
func (t *track) significant(z, alarm, freedom float64) bool {
	if z < alarm {
		return false
	}
	found := 1
	if t.tests > 64 {
		for _, p := range t.phase {
			if p == degraded {
				found++
			}
		}
	}
	return tail(z, freedom) <= t.cfg.Discovery*float64(found)/float64(t.tests)
}

// fromStart reports whether unit r was slow from its first step on.
func (t *track) fromStart(r int) bool { return t.sinceAt[r] <= t.first[r]+2 }

// age is the number of steps since the episode of unit r began.
func (t *track) age(r int) int { return t.count - int(t.sinceAt[r]) }

// evaluate tests unit r after a step: suspects often, the others in turn.
func (t *track) evaluate(r int) {
	if t.first[r] < 0 {
		return
	}
	switch {
	case t.phase[r] == suspect && (t.count-int(t.sinceAt[r]))%suspectEvery == 0:
		t.evaluateSuspect(r)
	case t.phase[r] == degraded && (t.count+r)%evaluateEvery == 0:
		if o := t.try(r, min(window, t.age(r))); o.pass {
			t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
		}
	}
	if (t.count+r)%evaluateEvery == 0 {
		t.evaluateQuiet(r)
	}
}

// need is how many evaluations in a row unit r must fail.
func (t *track) need(r int) uint8 {
	if t.few[r] {
		return 2 * confirmations
	}
	return confirmations
}

// evaluateSuspect confirms a suspicion or lets it wait.
func (t *track) evaluateSuspect(r int) {
	age := t.age(r)
	ripe := age >= settledSteps || t.fromStart(r) && age-int(t.warmed[r]) >= minBold
	var o outcome
	if ripe {
		o = t.try(r, min(age, window))
	}
	if !o.pass {
		t.passes[r] = 0
		if age > 2*labelMemory { // a habit, not a fault
			t.base[r], t.baseN[r] = t.mid[r], baseBlocks
			t.calm(r)
		}
		return
	}
	t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
	t.passes[r] = min(t.passes[r]+1, 100)
	if t.passes[r] < t.need(r) || t.count-int(t.first[r]) < window {
		return
	}
	if whole := t.try(r, window); whole.slow >= slowShare || age >= window {
		t.confirm(r)
	}
}

// confirm makes a suspect degraded. Whether so many are slow that the cause must be
// a common one is asked of the whole job, when somebody is accused.
func (t *track) confirm(r int) {
	t.phase[r] = degraded
	t.news = true
}

// evaluateQuiet tests a unit that the CUSUM has not caught: the window, then the
// slow lanes.
func (t *track) evaluateQuiet(r int) {
	t.mid[r] = t.level(r)
	if t.mid[r] != t.mid[r] || t.phase[r] == degraded {
		return
	}
	if t.phase[r] == ok && t.count-int(t.first[r]) >= window && (t.selfOnly || t.mid[r] >= float32(t.cfg.MinEffect)*0.8) {
		if o := t.try(r, window); o.pass {
			t.passes[r]++
			t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
			if t.passes[r] == 1 && t.climb[r] == 0 {
				t.since[r], t.sinceAt[r] = t.label(t.count-window), int32(t.count-window)
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
func (t *track) level(r int) float32 {
	const n = window / blockSteps
	var sum float32
	k := 0
	for i := 1; i <= n && i <= int(t.block[r]); i++ {
		if x := t.blocks[r*maxBlocks+(int(t.block[r])-i)%maxBlocks]; x == x {
			sum += x
			k++
		}
	}
	if 2*k < n {
		return nan32
	}
	return sum / float32(k)
}

// caught makes a unit that only a window caught degraded.
func (t *track) caught(r int) {
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
func (t *track) evaluateLanes(r int) {
	if t.selfOnly {
		return
	}
	alarm := t.cfg.LongAlarm
	if t.pure {
		alarm -= pureRelief
	}
	for i, l := range lanes {
		m, alarm, from := float64(t.laneMean[i][r]), alarm, float32(t.cfg.Effect/2)
		switch {
		case m >= float64(t.least):
		case l >= longBlocks && m >= longShare*float64(t.least): // small, but for long and in every block
			alarm, from = t.cfg.LongAlarm, float32(longEach*m)
		default:
			continue
		}
		if t.slowly.mean(r) >= m/2 {
			continue // it comes and goes
		}
		z := m / math.Hypot(t.tauLane[i], tauFloor)
		if t.orphaned(int32(r)) {
			z = m / math.Hypot(math.Hypot(t.tauLane[i], tauFloor), medianLoss*float64(t.orphan[r])/math.Sqrt(float64(l*blockSteps)))
		}
		if own := t.laneRise(r, i); l >= longBlocks {
			z = max(z, own)
		}
		if t.tauLane[i] == 0 || !t.significant(z, alarm, float64(tailFreedom*l*blockSteps)/window) {
			continue
		}
		slow, n, start := 0, 0, l
		for k := 1; k <= l; k++ {
			x := t.blocks[r*maxBlocks+(int(t.block[r])-k)%maxBlocks]
			if x != x {
				continue
			}
			n++
			if x > from {
				slow++
			}
		}
		if float64(slow) < slowShare*float64(n) {
			continue
		}
		if t.lanePasses[r] == 0 && t.phase[r] == ok {
			t.detected[r] = t.label(t.count - 1)
			t.since[r], t.sinceAt[r] = t.label(t.count-start*blockSteps), int32(t.count-start*blockSteps)
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

// laneRise is how many standard errors the i-th lane of unit r is above its own past.
func (t *track) laneRise(r, i int) float64 {
	if t.baseN[r] < baseBlocks || t.blockSD == 0 {
		return 0
	}
	rise := float64(t.laneMean[i][r] - t.base[r])
	if rise < longShare*float64(t.least) {
		return 0
	}
	return rise / math.Hypot(t.blockSD*math.Sqrt(1/float64(lanes[i])+1.0/baseBlocks), t.tauOwn)
}

// spreads measures how far healthy ranks lie apart for good: what a window shows
// beyond its own noise.
func (t *track) spreads() {
	rho := t.rho()
	t.slowly.fade()
	t.buf, t.buf2 = t.buf[:0], t.buf2[:0]
	stride := t.n/noisePool + 1
	for r := t.count / evaluateEvery % stride; r < t.n; r += stride {
		m := t.mid[r]
		if m != m || t.phase[r] != ok {
			continue
		}
		t.buf = append(t.buf, m)
		if t.baseN[r] >= minBase && t.creep[r] < creepBlocks {
			t.buf2 = append(t.buf2, m-t.base[r])
		}
	}
	sigma := max(t.sigma[len(t.roles)], sigmaFloor)
	se := hlLoss * sigma / math.Sqrt(window*(1-rho)/(1+rho))
	t.tau, t.tauOwn = excess(t.buf, se, fewTauFloor), excess(t.buf2, se, fewOwnFloor)
	block := t.blockNoise()
	t.blockSD = block
	for i, l := range lanes {
		t.buf = t.buf[:0]
		for r := t.count / evaluateEvery % stride; r < t.n; r += stride {
			if m := t.laneMean[i][r]; m == m && t.phase[r] == ok && t.creep[r] < creepBlocks {
				t.buf = append(t.buf, m)
			}
		}
		t.tauLane[i] = 0
		if len(t.buf) >= poolSize && block > 0 {
			t.tauLane[i] = laneSpread(float64(wide(t.buf)), block/math.Sqrt(float64(l)), len(t.buf))
		}
	}
}

// laneSpread is the spread that a lane's mean has in health: its own error, known
// from many blocks, and what ranks differ beyond it as far as n of them can tell.
func laneSpread(across, se float64, n int) float64 {
	beyond := across*across - se*se*(1+2.5/math.Sqrt(float64(n)))
	return math.Sqrt(se*se + max(0, beyond))
}

// blockNoise is how much a block differs from the one before, as the noise of one
// block: with few ranks the spread between lanes may be small by chance.
func (t *track) blockNoise() float64 {
	t.buf = t.buf[:0]
	stride := t.n/noisePool + 1
	for r := 0; r < t.n; r += stride {
		for k := 2; k <= maxBlocks && k <= int(t.block[r]) && len(t.buf) < 4*noisePool; k++ {
			a, b := t.blocks[r*maxBlocks+(int(t.block[r])-k+1)%maxBlocks], t.blocks[r*maxBlocks+(int(t.block[r])-k)%maxBlocks]
			if d := a - b; d == d {
				t.buf = append(t.buf, d)
			}
		}
	}
	if len(t.buf) < poolSize {
		return 0
	}
	return float64(spread(t.buf)) / math.Sqrt2
}

// excess is the robust spread of v beyond the standard error se.
func excess(v []float32, se, few float64) float64 {
	if len(v) < poolSize {
		return few
	}
	s := float64(wide(v))
	return max(tauFloor, math.Sqrt(max(0, s*s-se*se)))
}

// wide is the spread of v about its median by its 80th percentile: in roles of
// four the middle two are the median, and a MAD over such roles is far too small.
// But a slow host may be a quarter of all, so it is no more than wideMost MADs.
// It overwrites v.
func wide(v []float32) float32 {
	m := median(v)
	for i, x := range v {
		if v[i] = x - m; v[i] < 0 {
			v[i] = -v[i]
		}
	}
	high := kth(v, len(v)*4/5) / 1.2816
	return min(high, wideMost*1.4826*median(v))
}

// centred is the robust spread of v about its median; it overwrites v.
func centred(v []float32) float32 {
	m := median(v)
	for i := range v {
		v[i] -= m
	}
	return spread(v)
}
