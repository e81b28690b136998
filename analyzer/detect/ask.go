package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// What the rest of the detector asks of a unit.

// len is the number of units.
func (t *track) len() int { return t.n }

// steps is the number of steps seen.
func (t *track) steps() int { return t.count }

// residual is that of unit r in the n-th step seen, counted from 1; NaN when it is no
// longer known.
func (t *track) residual(r, n int) float32 {
	if n <= 0 || n <= t.count-threshold.Window {
		return robust.NaN
	}

	return t.ring[r*threshold.Window+(n-1)%threshold.Window]
}

// middle is the median residual of unit r over its window, NaN before its first step.
func (t *track) middle(r int) float32 {
	if t.first[r] < 0 {
		return robust.NaN
	}

	return robust.Median(t.values(r, threshold.Window))
}

// healthy reports whether unit r is neither suspect nor degraded.
func (t *track) healthy(r int) bool { return t.phase[r] == ok }

// degraded reports whether a window or a lane has confirmed that unit r is slow.
func (t *track) degraded(r int) bool { return t.phase[r] == degraded }

// calming reports whether unit r was slow, and may be well again.
func (t *track) calming(r int) bool { return t.fall[r] > 0 }

// idle reports whether nothing has confirmed unit r's suspicion for long.
func (t *track) idle(r int) bool { return t.age(r) > settledSteps && t.passes[r] == 0 }

// hasFew reports whether unit r has one or two peers.
func (t *track) hasFew(r int) bool { return t.few[r] }

// test is the effect and the z of unit r's last test.
func (t *track) test(r int) (effect, z float64) { return float64(t.effect[r]), float64(t.z[r]) }

// suspicion is the effect and the z of a young suspect so far; ok is false for a unit
// that is none, or of which no more than the sequential test speaks.
func (t *track) suspicion(r int) (effect, z float64, ok bool) {
	if t.phase[r] != suspect || t.active(r) || t.few[r] || t.age(r) > 2*threshold.Window {
		return 0, 0, false // what two windows could not confirm is not missing time
	}

	o := t.try(r, min(threshold.Window, t.age(r)))
	return o.effect, o.z, o.z >= suspectZ && o.slow >= threshold.SlowShare && math.Expm1(o.effect) >= t.cfg.MinEffect
}

// onset is the step with which unit r's episode began.
func (t *track) onset(r int) int64 { return t.since[r] }

// firstSlow is the first slow step of the episode; the first recorded one where unit r
// was slow from the start.
func (t *track) firstSlow(r int) int64 {
	if t.fromStart(r) {
		return t.firstLabel[r]
	}

	return t.since[r]
}

// onsetAt is how many steps were seen before the episode of unit r.
func (t *track) onsetAt(r int) int { return int(t.sinceAt[r]) }

// detectedIn is the step in which unit r was found.
func (t *track) detectedIn(r int) int64 { return t.detected[r] }

// lastSlow is the last slow step of unit r.
func (t *track) lastSlow(r int) int64 { return t.until[r] }

// hasPast reports whether unit r has a past of its own to be compared with.
func (t *track) hasPast(r int) bool { return t.baseN[r] >= minBase }

// habitual reports whether unit r's past does not tell that it became slow: there is
// none, or it is half as slow and more.
func (t *track) habitual(r int) bool {
	return !t.hasPast(r) || float64(t.base[r]) >= t.standing(r)/2
}

// wasAbove reports whether unit r was least above its peers before its last window.
func (t *track) wasAbove(r int, least float64) bool {
	past, n, _ := t.past(r, t.began(r, threshold.Window))
	return n >= minBase && past >= least
}

// centre is the middle of unit r's residuals while it is healthy.
func (t *track) centre(r int) float32 { return t.mu[r] }

// warming is the warm-up steps that each unit has still before it; read only.
func (t *track) warmups() []uint8 { return t.warm }

// start says that the process of unit r begins: its first steps warm it up.
func (t *track) start(r int) { t.warm[r] = warmUp }

// suspectHalf lifts the suspicion of unit r half way.
func (t *track) suspectHalf(r int) { t.climb[r] = max(t.climb[r], suspectAt/2) }

// confirmedSome reports whether somebody was confirmed since it was asked last.
func (t *track) confirmedSome() bool {
	was := t.news
	t.news = false
	return was
}
