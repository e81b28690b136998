package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// What the rest of the detector asks of a unit.

// Len is the number of units.
func (t *Test) Len() int { return t.n }

// Any reports whether some unit is so.
func (t *Test) Any(is func(r int) bool) bool {
	for r := range t.n {
		if is(r) {
			return true
		}
	}

	return false
}

// Steps is the number of steps seen.
func (t *Test) Steps() int { return t.count }

// Residual is that of unit r in the n-th step seen, counted from 1; NaN when it is no
// longer known.
func (t *Test) Residual(r, n int) float32 {
	if n <= 0 || n <= t.count-threshold.Window {
		return robust.NaN
	}

	return t.window(r)[(n-1)%threshold.Window]
}

// Middle is the median residual of unit r over its window, NaN before its first step.
func (t *Test) Middle(r int) float32 {
	if t.first[r] < 0 {
		return robust.NaN
	}

	return robust.Median(t.Values(r, threshold.Window))
}

// Healthy reports whether unit r is neither suspect nor degraded.
func (t *Test) Healthy(r int) bool { return t.phase[r] == ok }

// Degraded reports whether a window or a lane has confirmed that unit r is slow.
func (t *Test) Degraded(r int) bool { return t.phase[r] == degraded }

// ByLaneAlone reports whether no window saw that unit r is slow, but a lane.
func (t *Test) ByLaneAlone(r int) bool { return t.slow[r] }

// End ends the episode of unit r: what else is known of it tells that it is well.
func (t *Test) End(r int) {
	if t.phase[r] != ok {
		t.over(r, t.count)
	}
}

// Accuse says that unit r is accused of its episode.
func (t *Test) Accuse(r int) {
	if t.accused[r] == 0 {
		t.accused[r] = int32(t.count)
	}
}

// Accused reports whether unit r was accused in this episode.
func (t *Test) Accused(r int) bool { return t.accused[r] > 0 }

// AccusedAt is the count at which unit r was accused first in this episode, 0 if it was not.
func (t *Test) AccusedAt(r int) int { return int(t.accused[r]) }

// Recovering reports whether unit r was slow, and may be well again.
func (t *Test) Recovering(r int) bool { return t.fall[r] > 0 }

// Idle reports whether nothing has confirmed unit r's suspicion for long.
func (t *Test) Idle(r int) bool { return t.Age(r) > settledSteps && t.passes[r] == 0 }

// Few reports whether unit r has one or two peers.
func (t *Test) Few(r int) bool { return t.few[r] }

// Last is the effect and the z of unit r's last test.
func (t *Test) Last(r int) (effect, z float64) { return float64(t.effect[r]), float64(t.z[r]) }

// Suspicion is the effect and the z of a young suspect so far, or of a unit whose window
// has alarmed once; ok is false for a unit that is neither, or of which no more than the
// sequential test speaks.
func (t *Test) Suspicion(r int) (effect, z float64, ok bool) {
	if t.Healthy(r) && t.passes[r] > 0 {
		return float64(t.effect[r]), float64(t.z[r]), !t.few[r]
	}

	if t.phase[r] != suspect || t.Active(r) || t.few[r] || t.Age(r) > 2*threshold.Window {
		return 0, 0, false // what two windows could not confirm is not missing time
	}

	o := t.try(r, min(threshold.Window, t.Age(r)))
	return o.effect, o.z, o.z >= SuspectZ && o.slow >= threshold.SlowShare && math.Expm1(o.effect) >= t.cfg.MinEffect
}

// Since is the step with which unit r's episode began.
func (t *Test) Since(r int) int64 { return t.since[r] }

// FirstSlow is the first slow step of the episode; the first recorded one where unit r
// was slow from the start.
func (t *Test) FirstSlow(r int) int64 {
	if t.FromStart(r) {
		return t.firstLabel[r]
	}

	return t.since[r]
}

// SinceAt is how many steps were seen before the episode of unit r.
func (t *Test) SinceAt(r int) int { return int(t.sinceAt[r]) }

// Detected is the step in which unit r was found.
func (t *Test) Detected(r int) int64 { return t.detected[r] }

// Until is the last slow step of unit r.
func (t *Test) Until(r int) int64 { return t.until[r] }

// HasPast reports whether unit r has a past of its own to be compared with.
func (t *Test) HasPast(r int) bool { return t.baseN[r] >= minBase }

// Moved reports whether unit r's past is that of another place.
func (t *Test) Moved(r int) bool { return t.moved[r] }

// Habitual reports whether unit r's past does not tell that it became slow, or quick: there is none, or it
// was half as far from its peers and more, but for what healthy units wander.
func (t *Test) Habitual(r int) bool {
	if !t.HasPast(r) {
		return true
	}

	now, past := t.Standing(r), float64(t.base[r])
	if now < 0 {
		now, past = -now, -past
	}

	return past+t.wander(0) >= now/2
}

// AboveHabit is how far unit r is above its own past, 0 where it has none.
func (t *Test) AboveHabit(r int) float64 {
	if !t.HasPast(r) {
		return 0
	}

	return t.Standing(r) - float64(t.base[r])
}

// WasAbove reports whether unit r was least above its peers before its last window.
func (t *Test) WasAbove(r int, least float64) bool {
	past, n, _ := t.past(r, t.began(r, threshold.Window))
	return n >= minBase && past >= least
}

// Before is how far unit r was above its peers just before that count, NaN where that is no longer known, or not yet.
func (t *Test) Before(r, at int) float64 {
	if x, n := t.before(r, at); n >= minBase {
		return float64(x)
	}

	return math.NaN()
}

// Centre is the middle of unit r's residuals while it is healthy.
func (t *Test) Centre(r int) float32 { return t.mu[r] }

// warming is the warm-up steps that each unit has still before it; read only.
func (t *Test) Warming() []uint8 { return t.warm }

// Start says that the process of unit r begins: its first steps warm it up.
func (t *Test) Start(r int) { t.warm[r] = warmUp }

// LiftHalf lifts the suspicion of unit r half way.
func (t *Test) LiftHalf(r int) { t.climb[r] = max(t.climb[r], suspectAt/2) }

// Confirmed is the units that were confirmed in this step, once; valid until the next one.
func (t *Test) Confirmed() []int32 {
	units := t.confirmed
	t.confirmed = t.confirmed[:0]
	return units
}
