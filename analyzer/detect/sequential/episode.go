package sequential

import (
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// Episode is a slow time of one unit that ended.
type Episode struct {
	Unit                   int
	Since, Detected, Until int64
	Steps                  int
	Ago                    int     // steps since it began
	Well                   int     // steps since it was over
	Effect                 float64 // mean residual of its slow steps
	Confirmed              bool
	Event                  bool // short, but long and strong enough for a person to check
}

// sink drives the recovery of a suspect or degraded unit.
func (t *Test) sink(r int, d, unit float32, label int64) (Episode, bool) {
	was := t.fall[r]
	f := max(0, was+robust.Clip((unit-d)/unit, cusumDown, 1))
	if f == 0 {
		t.until[r], t.fallAt[r] = label, int32(t.count)
	}

	if f == 0 && d > unit {
		t.sum[r] += d
		t.sumN[r]++
	}

	t.fall[r] = f
	if t.slow[r] || f < recoverySteps {
		return Episode{}, false
	}

	return t.over(r, t.count), true
}

// over ends the episode of unit r and returns it; now is the count at the step at hand.
func (t *Test) over(r, now int) Episode {
	ep := Episode{
		Unit: r, Since: t.since[r], Detected: t.detected[r], Until: t.until[r],
		Steps: int(t.fallAt[r]-t.sinceAt[r]) + 1, Well: now - int(t.fallAt[r]), Confirmed: t.phase[r] == degraded,
	}
	ep.Ago = ep.Well + ep.Steps
	share := 0.0 // of its steps that are slow by themselves
	if t.sumN[r] > 0 {
		ep.Effect = float64(t.sum[r]) / float64(t.sumN[r])
		share = float64(t.sumN[r]) / float64(ep.Steps)
	}

	if ep.Confirmed {
		t.forgetLanes(r, int(t.fallAt[r]))
	}

	starting := t.warmed[r] > 0 && t.sinceAt[r]-t.first[r] < warmUp
	ep.Event = ep.Steps <= transientSteps && ep.Steps >= suspectAt && share >= threshold.SlowShare &&
		ep.Effect*share >= max(eventEffect, eventSigmas*float64(t.Noise(r))) && !starting

	t.endEpisode(r)
	return ep
}

// begin moves the beginning of unit r's episode to where its residuals pass half of what it is
// slow by, and counts its slow steps from there, the one at hand included: the CUSUM may have climbed before,
// by chance. t.count does not have the step at hand yet.
func (t *Test) begin(r int) {
	if t.FromStart(r) || t.sumN[r] == 0 {
		return
	}

	half, base := t.sum[r]/float32(2*t.sumN[r]), float32(0)
	t.sum[r], t.sumN[r] = 0, 0
	if t.baseN[r] >= minBase {
		base = t.base[r]
	}

	var sum, least float32
	for i := max(int(t.sinceAt[r]), t.count+1-threshold.Window); i <= t.count; i++ {
		x := t.window(r)[i%threshold.Window] - base
		if x == x {
			sum += x - half
		}

		if x > half {
			t.sum[r] += x
			t.sumN[r]++
		}

		if sum < least && i < t.count {
			least = sum
			t.since[r], t.sinceAt[r] = t.label(i+1), int32(i+1)
			t.sum[r], t.sumN[r] = 0, 0
		}
	}
}
