package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// spreads measures how far healthy ranks lie apart for good: what a window shows
// beyond its own noise. Suspects are among them, or the spread would be that of those
// who did not spread; a fault that is new has no part in the middle of usualLooks looks.
func (t *Test) spreads() {
	rho := t.rho()
	keep := float32(math.Pow(1-1.0/spikeMemory, threshold.EvaluateEvery))
	for r := range t.spikes {
		t.spikes[r].fade(keep)
	}

	t.findMidNoise()
	t.buf = t.buf[:0]
	stride := t.n/noisePool + 1
	for r := t.count / threshold.EvaluateEvery % stride; r < t.n; r += stride {
		m := t.mid[r]
		if m != m || !t.ordinary(r) {
			continue
		}

		t.buf = append(t.buf, m)
	}

	t.skew[0] = t.middleOf(t.buf)
	sigma := max(t.sigma[len(t.Roles)], sigmaFloor)
	se := robust.HodgesLehmannLoss * sigma / math.Sqrt(threshold.Window*(1-rho)/(1+rho))
	t.tau = t.usual(0, t.buf, se, fewTauFloor)
	t.buf = t.buf[:0]
	for r := t.count / threshold.EvaluateEvery % stride; r < t.n; r += stride {
		if d := t.mid[r] - t.beside(r); d == d && t.ordinary(r) {
			t.buf = append(t.buf, d)
		}
	}

	t.tauHost = t.usual(hostLook, t.buf, se, fewTauFloor)
	t.changes(math.Hypot(se, robust.MedianLoss*sigma/math.Sqrt(baseBlocks*threshold.BlockSteps)))
	block := t.blockNoise()
	t.blockSD = block
	for i, l := range lanes {
		t.buf = t.buf[:0]
		for r := t.count / threshold.EvaluateEvery % stride; r < t.n; r += stride {
			if m := t.laneMean[r][i]; m == m && t.ordinary(r) {
				t.buf = append(t.buf, m)
			}
		}

		t.skew[1+i] = t.middleOf(t.buf)
		if len(t.buf) >= threshold.PoolSize && block > 0 {
			t.look(1+len(gaps)+i, laneSpread(float64(wide(t.buf)), block/math.Sqrt(float64(l)), len(t.buf)))
		}

		t.tauLane[i] = t.middleLook(1 + len(gaps) + i)
	}
}

// middleOf is where the middle of the ordinary units lies, whose values these are: above zero where
// noise has a long tail, for a step's residual is from the middle of the peers in that step.
func (t *Test) middleOf(v []float32) float64 {
	if len(v) < threshold.PoolSize {
		return 0
	}

	t.hl = append(t.hl[:0], v...)
	return max(0, float64(robust.Median(t.hl)))
}

// ordinary reports whether unit r tells how far healthy ones lie apart.
func (t *Test) ordinary(r int) bool {
	return t.phase[r] == ok || t.phase[r] == suspect && !t.FromStart(r)
}

// usual adds what v tells of the k-th spread beyond the standard error se, and returns
// the middle of the last looks, few where there are none. One of a pool may be slow from
// its first step on and then not among v: with it the spread would be its own.
func (t *Test) usual(k int, v []float32, se, few float64) float64 {
	if len(v) >= threshold.PoolSize-1 {
		t.look(k, excess(v, se))
	}

	if x := t.middleLook(k); x > 0 {
		return x
	}

	return few
}

// look adds x to the looks at the k-th spread.
func (t *Test) look(k int, x float64) {
	t.looks[k*usualLooks+int(t.lookN[k])%usualLooks] = float32(x)
	if t.lookN[k]++; t.lookN[k] >= 2*usualLooks {
		t.lookN[k] -= usualLooks
	}
}

// middleLook is the median of the looks at the k-th spread, 0 for none.
func (t *Test) middleLook(k int) float64 {
	n := min(int(t.lookN[k]), usualLooks)
	if n == 0 {
		return 0
	}

	t.hl = append(t.hl[:0], t.looks[k*usualLooks:k*usualLooks+n]...)
	return float64(robust.Median(t.hl))
}

// unsure is by what the spread of the units, of which these are the nodes, may fall short
// of what healthy ones have: the ranks of a node drift as one.
func unsure(node []int32) float64 {
	seen := map[int32]bool{}
	for _, k := range node {
		seen[k] = true
	}

	if len(seen) == 0 {
		return 1
	}

	return math.Sqrt(1 + fewUnits/math.Sqrt(float64(len(seen))))
}

// laneSpread is the spread that a lane's mean has in health: its own error, known
// from many blocks, and what ranks differ beyond it as far as n of them can tell.
func laneSpread(across, se float64, n int) float64 {
	beyond := across*across - se*se*(1+fewUnits/math.Sqrt(float64(n)))
	return math.Sqrt(se*se + max(0, beyond))
}

// blockNoise is how much a block differs from the one before, as the noise of one
// block: with few ranks the spread between lanes may be small by chance.
func (t *Test) blockNoise() float64 {
	t.buf = t.buf[:0]
	stride := t.n/noisePool + 1
	for r := 0; r < t.n; r += stride {
		for k := 2; k <= maxBlocks && k <= int(t.block[r]) && len(t.buf) < 4*noisePool; k++ {
			a, b := t.kept(r)[(int(t.block[r])-k+1)%maxBlocks], t.kept(r)[(int(t.block[r])-k)%maxBlocks]
			if d := a - b; d == d {
				t.buf = append(t.buf, d)
			}
		}
	}

	if len(t.buf) < threshold.PoolSize {
		return 0
	}

	return float64(robust.Spread(t.buf)) / math.Sqrt2
}

// excess is the robust spread of v beyond the standard error se.
func excess(v []float32, se float64) float64 {
	s := float64(wide(v))
	return max(tauFloor, math.Sqrt(max(0, s*s-se*se)))
}

// wide is the spread of v about its median by its 80th percentile: in roles of
// four the middle two are the median, and a MAD over such roles is far too small.
// But a slow host may be a quarter of all, so it is no more than wideMost MADs.
// It overwrites v.
func wide(v []float32) float32 {
	high := percentileSpread(v)
	return min(high, wideMost*1.4826*robust.Median(v))
}

// percentileSpread is the spread of v about its median by its 80th percentile. It leaves the distances in v.
func percentileSpread(v []float32) float32 {
	m := robust.Median(v)
	for i, x := range v {
		if v[i] = x - m; v[i] < 0 {
			v[i] = -v[i]
		}
	}

	return robust.Kth(v, len(v)*4/5) / 1.2816
}

// lanesApart is how far the i-th lanes of well units lie apart, and farther for unit r where its mates are not recorded.
func (t *Test) lanesApart(r, i int) float64 {
	floor := t.unsure * tauFloor
	apart := math.Hypot(t.tauLane[i], floor)
	if t.Pure && t.sigma[len(t.Roles)] <= pureNoise {
		apart = max(t.tauLane[i], floor)
	}

	apart = math.Hypot(apart, t.Load)
	if t.orphaned(int32(r)) {
		apart = math.Hypot(apart, robust.MedianLoss*float64(t.Left[r])/math.Sqrt(float64(lanes[i]*threshold.BlockSteps)))
	}

	return apart
}
