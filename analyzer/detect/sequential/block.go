package sequential

import (
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// perTurn is how many of n units at most close a block in the same step.
func perTurn(n int) int { return (n + threshold.BlockSteps - 1) / threshold.BlockSteps }

// at is where unit r lies in ring and blocks: those that close a block in the same step side by side, for
// they are all that is read of these in a step, and memory is read in order several times as fast.
func (t *Test) at(r int) int {
	return r%threshold.BlockSteps*perTurn(t.n) + r/threshold.BlockSteps
}

// window is the last residuals of unit r, by count % window.
func (t *Test) window(r int) *[threshold.Window]float32 {
	return (*[threshold.Window]float32)(t.ring[t.at(r)*threshold.Window:])
}

// kept is the last blocks of unit r, by their number % maxBlocks.
func (t *Test) kept(r int) *[maxBlocks]float32 {
	return (*[maxBlocks]float32)(t.blocks[t.at(r)*maxBlocks:])
}

// closeBlock summarises the last steps of unit r as one block of its slow lanes,
// and lets its own baseline learn from it.
func (t *Test) closeBlock(r int) {
	t.buf = t.buf[:0]
	for k := t.count - threshold.BlockSteps; k < t.count; k++ {
		if k < int(t.first[r]) || k < 0 {
			continue
		}

		if x := t.window(r)[k%threshold.Window]; x == x {
			t.buf = append(t.buf, x)
		}
	}

	v := robust.NaN
	if len(t.buf) >= 3 {
		v = robust.TrimmedMean(t.buf)
	}

	n := t.block[r]
	t.kept(r)[int(n)%maxBlocks] = v
	t.block[r] = n + 1
	if v == v && t.phase[r] == ok && t.climb[r] < suspectAt/2 && t.warm[r] == 0 && !t.creeps(r, v) {
		t.learnBase(r, v)
	}

	t.fillLanes(r)
	if t.phase[r] == degraded && !t.Accused(r) && t.baseN[r] < minBase && !t.SelfOnly {
		t.beginAgain(r)
	}
}

// beginAgain begins the episode of unit r where it rose. It was slower than its peers since before it had a past, nobody
// accused it, and it has become twice as slow and more: what it was, as an older device is, is its past.
func (t *Test) beginAgain(r int) {
	const span = threshold.Window / threshold.BlockSteps
	now, _ := t.middleBlock(r, 0, span)
	past, n := t.before(r, t.count-threshold.Window)
	rise := now - past
	if n < minBase || rise < max(now/2, float32(t.cfg.Effect)) {
		return
	}

	for k := range span {
		if x, _ := t.middleBlock(r, k, k+1); !(x > past+rise/2) {
			return
		}
	}

	t.base[r], t.baseN[r] = past, uint16(n)
	at := t.count - threshold.Window
	t.since[r], t.sinceAt[r], t.detected[r] = t.label(at), int32(at), t.label(t.count-1)
	if o := t.try(r, threshold.Window); o.pass {
		t.z[r], t.effect[r] = float32(o.z), float32(o.effect)
	}
}

// creeps reports whether unit r has been above its own past for blocks in a row, by
// less than a window sees: a CUSUM of blocks. Then the past stays as it was, for it
// would learn the fault.
func (t *Test) creeps(r int, v float32) bool {
	if t.baseN[r] < baseBlocks {
		return false
	}

	unit := max(creepUnit, creepSigmas*float32(t.blockSD))
	t.creep[r] = min(max(0, t.creep[r]+robust.Clip((v-t.base[r])/unit-1, -1, 1)), creepMost)
	return t.creep[r] >= creepBlocks
}

// learnBase moves the own baseline: the mean of the first blocks, then slowly.
func (t *Test) learnBase(r int, v float32) {
	if t.moved[r] && t.base[r]-v > float32(t.cfg.Effect) { // it is so much quicker here that this is its past
		t.baseN[r], t.moved[r] = 0, false
	}

	if t.baseN[r] < baseBlocks {
		t.baseN[r]++
		t.base[r] += (v - t.base[r]) / float32(t.baseN[r])
	} else {
		t.baseN[r] = min(t.baseN[r]+1, 60000)
		t.base[r] += robust.Clip((v-t.base[r])/4, -baseDrift, baseDrift)
	}

	if !t.Habits {
		t.base[r] = robust.Clip(t.base[r], -baseLimit, baseLimit)
	}
}

// Unlearn takes what unit r did since that count out of its past: what it was compared with
// is known better now.
func (t *Test) Unlearn(r, since int) {
	// A baseline learns nothing during an episode: where that began before, there is nothing to take out,
	// and what lies just before that count is the fault.
	if t.phase[r] == ok || int(t.sinceAt[r]) > since {
		past, n := t.before(r, since)
		if n == 0 {
			past = 0
		}

		t.base[r], t.baseN[r], t.creep[r] = past, uint16(n), 0
	}

	for k := 1; k <= (t.count-since)/threshold.BlockSteps+1 && k <= min(maxBlocks, int(t.block[r])); k++ {
		t.kept(r)[(int(t.block[r])-k)%maxBlocks] = robust.NaN
	}
}

// forgetLanes takes what unit r did up to that count out of its slow lanes: a fault that
// is over and known is no news to them.
func (t *Test) forgetLanes(r, until int) {
	for k := (t.count-until)/threshold.BlockSteps + 1; k <= maxBlocks && k <= int(t.block[r]); k++ {
		t.kept(r)[(int(t.block[r])-k)%maxBlocks] = robust.NaN
	}

	t.laneMean[r] = unknownLanes
}

// fillLanes sets the mean of the last blocks of unit r for each lane, NaN where
// too few are there.
func (t *Test) fillLanes(r int) {
	const mask = maxBlocks - 1 // a power of two
	var sum float32
	n, k := 0, 0
	have := int(t.block[r])
	ring, mean := t.kept(r), &t.laneMean[r]
	for i, l := range lanes {
		if l > have {
			return // longer ones were never full
		}

		for ; k < l; k++ {
			if x := ring[(have-1-k)&mask]; x == x {
				sum += x
				n++
			}
		}

		mean[i] = robust.NaN
		if 4*n >= 3*l {
			mean[i] = sum / float32(n)
		}
	}
}
