package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// noise updates the noise of a step from the cross section: it is there from the
// first step on, and one culprit of many does not move it. Where all units are few,
// the difference to the step before tells it: no lasting slowness is in that.
func (t *Test) noise(e []float32) {
	if t.n < threshold.PoolSize {
		t.differNoise(e)
		return
	}

	pool := t.buf2[:0]
	for g, rows := range t.Roles {
		t.buf = t.buf[:0]
		stride := len(rows)/noiseSample + 1
		for i := t.count % stride; i < len(rows); i += stride { // the ring of steps sees them all
			r := rows[i]
			if x := e[r]; x == x && t.phase[r] == ok && !t.orphaned(r) {
				t.buf = append(t.buf, x-t.mu[r])
			}
		}

		if len(pool) < noisePool {
			pool = append(pool, t.buf...)
		}

		if len(t.buf) >= threshold.PoolSize {
			t.blend(g, robust.Spread(t.buf))
		}
	}

	t.buf2 = pool
	if len(pool) >= 2 {
		t.blend(len(t.Roles), robust.Spread(pool))
	}
}

// differNoise is noise for few units.
func (t *Test) differNoise(e []float32) {
	t.buf = t.buf[:0]
	if t.count > 0 {
		for r, x := range e {
			if d := x - t.window(r)[(t.count-1)%threshold.Window]; d == d {
				t.buf = append(t.buf, d/math.Sqrt2)
			}
		}
	}

	if len(t.buf) >= 2 {
		t.blend(len(t.Roles), robust.Spread(t.buf)*float32(math.Sqrt(1/(1-min(t.rho(), 0.75)))))
	}
}

// blend adds the noise of one step: the median over the last ones counts, so the
// wild first steps of a job are soon forgotten.
func (t *Test) blend(g int, s float32) {
	ring := t.sigmas[g*threshold.Window : (g+1)*threshold.Window]
	ring[t.sigmaN[g]%threshold.Window] = s
	t.sigmaN[g]++
	if k := t.sigmaN[g]; k < 8 || (k+int32(g))%4 == 0 {
		t.hl = append(t.hl[:0], ring[:min(k, threshold.Window)]...)
		t.sigma[g] = float64(robust.Median(t.hl))
	}

	if t.sigmaN[g] >= 2*threshold.Window {
		t.sigmaN[g] -= threshold.Window
	}
}

// roleNoise is the noise of a step in the role of unit r.
func (t *Test) roleNoise(r int) float32 {
	g := int(t.role[r])
	if g < 0 || t.sigmaN[g] == 0 {
		g = len(t.Roles)
	}

	return float32(max(t.sigma[g], sigmaFloor))
}

// Noise is the noise of unit r: its role's, or its own where that is larger. What
// the work of its replica leaves in a unit without mates is noise of its own.
func (t *Test) Noise(r int) float32 {
	s := t.withLeft(r, t.roleNoise(r))
	return max(s, min(t.dev[r], 4*s))
}

// findMidNoise finds the noise of each role's middle unit. A slow step must stand out of that. By
// its own noise a quiet unit would have more slow steps than a noisy one that pauses as often, and
// bursts, which are in that noise, would be too small to count.
func (t *Test) findMidNoise() {
	for g, rows := range t.Roles {
		t.buf = t.buf[:0]
		stride := len(rows)/noiseSample + 1
		for i := 0; i < len(rows); i += stride {
			t.buf = append(t.buf, t.Noise(int(rows[i])))
		}

		t.midNoise[g] = robust.Median(t.buf)
	}
}

// usualNoise is the noise of the middle unit in the role of unit r, or of all where that is larger: slow
// steps are compared across roles. What the work of its replica leaves in a unit without mates is in it.
func (t *Test) usualNoise(r int) float32 {
	s := max(t.roleNoise(r), float32(t.sigma[len(t.Roles)]))
	if g := t.role[r]; g >= 0 {
		s = max(s, t.midNoise[g])
	}

	return t.withLeft(r, s)
}

// withLeft is the noise s of unit r, with what the work of its replica leaves in it.
func (t *Test) withLeft(r int, s float32) float32 {
	if !t.orphaned(int32(r)) {
		return s
	}

	return float32(math.Hypot(float64(s), float64(t.Left[r])))
}

// orphaned reports whether the work that unit r shares with its replica was left in.
func (t *Test) orphaned(r int32) bool { return t.Left[r] > 0 }

// learn follows the centre and spread of a healthy unit.
func (t *Test) learn(r int, x, sig float32) {
	k := t.count - int(t.first[r]) - int(t.warmed[r])
	a := float32(1) / float32(min(k+1, centreSteps))
	dev := x - t.mu[r]
	if k >= openSteps {
		dev = robust.Clip(dev, -3*sig, 3*sig)
	}

	settled := k >= settleSteps                                                        // mu is near where it belongs
	if p := t.prev[r]; p == p && t.climb[r] < 1 && settled && max(dev, -dev) < 3*sig { // a lasting change is no noise
		t.rhoUp += float64(dev * p)
		t.rhoDown += float64(p * p)
	}

	t.prev[r] = dev
	if t.climb[r] < suspectAt/2 {
		t.mu[r] += a * dev
		w := float32(math.Abs(float64(dev))) * 1.2533
		switch {
		case !settled: // nothing is known of its own: its role forgets the wild first steps
		case t.dev[r] == 0:
			t.dev[r] = t.roleNoise(r)
		default:
			t.dev[r] += (w - t.dev[r]) / 64
		}
	}
}

// rho is the lag-1 correlation of the noise, 0…0.95.
func (t *Test) rho() float64 {
	if t.rhoDown <= 0 {
		return 0
	}

	return min(max(t.rhoUp/t.rhoDown, 0), 0.95)
}
