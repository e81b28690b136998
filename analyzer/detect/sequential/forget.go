package sequential

import "github.com/laggard-dev/laggard/analyzer/detect/robust"

// unknownLanes are of a unit without blocks.
var unknownLanes = [len(lanes)]float32(robust.Unknown(len(lanes)))

// Forget makes unit r new: another process, another place.
func (t *Test) Forget(r int) {
	for i := range t.window(r) {
		t.window(r)[i] = robust.NaN
	}

	for i := range t.kept(r) {
		t.kept(r)[i] = robust.NaN
	}

	t.block[r], t.mu[r], t.dev[r], t.prev[r] = 0, 0, 0, robust.NaN
	t.base[r], t.baseN[r], t.creep[r] = 0, 0, 0
	t.endEpisode(r)
	t.first[r], t.mid[r] = -1, robust.NaN
	t.laneMean[r] = unknownLanes
	t.warm[r], t.warmed[r], t.moved[r] = 0, 0, false
	t.spikes[r] = Spikes{}
}

// Anew forgets all units, and how they differ: from the next step on residuals mean something else.
func (t *Test) Anew() {
	for r := range t.n {
		t.Forget(r)
	}

	clear(t.sigmaN)
	clear(t.lookN[:])
	t.rhoUp, t.rhoDown = 0, 0
}

// Move gives unit r another place. Where it is compared with its past alone, that still tells what its work took elsewhere.
func (t *Test) Move(r int) {
	base, n := t.base[r], t.baseN[r]
	t.Forget(r)
	if t.SelfOnly {
		t.base[r], t.baseN[r], t.moved[r] = base, n, n > 0
	}
}

// endEpisode ends the episode of unit r.
func (t *Test) endEpisode(r int) {
	t.phase[r], t.passes[r], t.lanePasses[r] = ok, 0, 0
	t.climb[r], t.fall[r], t.sum[r], t.sumN[r] = 0, 0, 0, 0
	t.z[r], t.effect[r], t.slow[r], t.accused[r] = 0, 0, false, 0
}
