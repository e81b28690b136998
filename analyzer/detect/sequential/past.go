package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// past is what unit r did before that count, in how many blocks, and how far healthy
// units are from what they did that long ago. It is the middle of the blocks just before;
// the baseline where they are no longer known.
func (t *Test) past(r, at int) (float64, int, float64) {
	if x, n := t.before(r, at); n >= minBase {
		return float64(x), n, t.wander((t.count - at) / threshold.BlockSteps)
	}

	return float64(t.base[r]), min(int(t.baseN[r]), baseBlocks), t.wander((t.count - at) / threshold.BlockSteps)
}

// began is the count at which what the last k steps of unit r show began.
func (t *Test) began(r, k int) int {
	at := t.count - k
	if t.phase[r] != ok || t.climb[r] > 0 || t.passes[r] > 0 || t.lanePasses[r] > 0 {
		at = min(at, int(t.sinceAt[r]))
	}

	return at
}

// before is the middle of the last baseBlocks blocks of unit r that ended before that
// count, and how many there are. The first steps of a process don't count.
func (t *Test) before(r, at int) (float32, int) {
	newest := t.count - (t.count+r)%threshold.BlockSteps // the end of the newest block
	skip := max(0, (newest-at+threshold.BlockSteps-1)/threshold.BlockSteps)
	have := min(int(t.block[r]), maxBlocks, (newest-int(t.first[r])-int(t.warmed[r]))/threshold.BlockSteps)
	return t.middleBlock(r, skip, min(have, skip+baseBlocks))
}

// middleBlock is the median of the blocks of unit r from the skip-th newest to before the
// to-th, and their number.
func (t *Test) middleBlock(r, skip, to int) (float32, int) {
	var v [baseBlocks]float32
	n := 0
	for k := skip; k < to; k++ {
		if x := t.kept(r)[(int(t.block[r])-1-k)%maxBlocks]; x == x {
			v[n] = x
			n++
		}
	}

	return robust.Median(v[:n]), n
}

// wander is how far healthy units are from what they did that many blocks before:
// beyond the longest gap as far as a random walk.
func (t *Test) wander(blocks int) float64 {
	far := tauFloor
	for k := range gaps {
		if far = max(far, t.tauOwn[k]); gaps[k] >= blocks-threshold.Window/threshold.BlockSteps {
			return far
		}
	}

	return far * math.Sqrt(max(1, float64(blocks)/maxBlocks))
}

// changes measures how far units go from their past, for each gap, beyond the error se:
// each window within the slow lanes against the blocks before. Ups and downs of all
// count, at all times: who rose lately does not tell how far one rises in health. Until
// that is known nobody goes farther than ranks lie apart.
func (t *Test) changes(se float64) {
	const span = threshold.Window / threshold.BlockSteps
	stride := t.n/changeSample + 1
	for k, gap := range gaps {
		t.buf = t.buf[:0]
		for r := t.count / threshold.EvaluateEvery % stride; r < t.n; r += stride {
			if t.first[r] < 0 || t.phase[r] == degraded {
				continue
			}

			have := min(int(t.block[r]), maxBlocks, (t.count-int(t.first[r])-int(t.warmed[r]))/threshold.BlockSteps)
			for o := 0; o+span+gap+baseBlocks <= have; o += span {
				now, n := t.middleBlock(r, o, o+span)
				then, m := t.middleBlock(r, o+span+gap, o+span+gap+baseBlocks)
				if n >= span/2 && m >= minBase {
					t.buf = append(t.buf, now-then)
				}
			}
		}

		t.tauOwn[k] = t.usual(1+k, t.buf, se, max(fewOwnFloor, t.middleLook(0)))
	}
}

// Standing is how far unit r is above its peers now: in its last window, or since it
// is slow.
func (t *Test) Standing(r int) float64 {
	x := t.mid[r]
	switch {
	case t.phase[r] != ok:
		x = robust.Median(t.Values(r, max(threshold.MinBold, t.Age(r))))
	case t.Active(r):
		x = t.effect[r]
	}

	return robust.Finite(float64(x), 0)
}

// Doubt is how far the window of a healthy unit may be from its peers by chance.
func (t *Test) Doubt(r int) float64 {
	return SuspectZ * math.Hypot(robust.MedianLoss*float64(t.Noise(r))/math.Sqrt(threshold.Window), tauFloor)
}

// Rose reports whether unit r is clearly slower than its own healthy past: its
// baseline, or its centre before the episode where it is too young to have one.
func (t *Test) Rose(r int) bool {
	k := t.Recent(r)
	past, blocks, tau := t.past(r, t.began(r, k))
	n := blocks * threshold.BlockSteps
	if blocks < minBase {
		past, n = float64(t.mu[r]), int(t.sinceAt[r]-t.first[r])-int(t.warmed[r])
	}

	if n < threshold.MinBold || t.FromStart(r) {
		return false
	}

	v := t.Values(r, k)
	m := float64(robust.Median(v)) - past
	se := robust.MedianLoss * float64(t.Noise(r)) * math.Sqrt(1/float64(max(1, len(v)))+1/float64(n))
	return m >= t.cfg.MinEffect && m >= t.cfg.Alarm*math.Hypot(se, tau)
}
