package sequential

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// peers is a test of n units of one role.
func peers(n int) (*Test, []float32) {
	cfg := threshold.Default()
	return New(&cfg, n, Alike(n)), make([]float32, n)
}

// TestTest_SlowUnit lets one of 16 units be slower than its peers for a while: it is
// suspect within a dozen steps, degraded within two windows, and well again when it is
// over; the episode is told once, with its first and last step and its size.
func TestTest_SlowUnit(t *testing.T) {
	const slow, from, to, steps = 5, 60, 200, 280
	tt, e := peers(16)
	rng := rand.New(rand.NewPCG(3, 1))
	var ended []Episode
	suspect, degraded := 0, 0
	for step := range steps {
		for r := range e {
			e[r] = float32(0.01 * rng.NormFloat64())
			if r == slow && step >= from && step < to {
				e[r] += 0.2
			}
		}

		tt.Observe(e, nil, int64(step), func(ep Episode) {
			if ep.Confirmed {
				ended = append(ended, ep)
			}
		})
		for r := range e {
			if r != slow && !tt.Healthy(r) {
				t.Fatalf("step %d: unit %d is accused", step, r)
			}
		}

		if suspect == 0 && !tt.Healthy(slow) {
			suspect = step
		}

		if degraded == 0 && tt.Degraded(slow) {
			degraded = step
			if effect, z := tt.Last(slow); math.Abs(effect-0.2) > 0.02 || z < threshold.Default().Alarm {
				t.Errorf("step %d: effect %.3f, z %.1f, want 0.2 beyond the alarm", step, effect, z)
			}
		}
	}

	if suspect < from || suspect > from+12 || degraded < suspect || degraded > from+2*threshold.Window {
		t.Errorf("slow from step %d: suspect in %d, degraded in %d", from, suspect, degraded)
	}

	if len(ended) != 1 || ended[0].Unit != slow || ended[0].Since != from || ended[0].Until != to-1 || math.Abs(ended[0].Effect-0.2) > 0.02 {
		t.Errorf("episodes %+v, want one of unit %d, steps %d to %d, by 0.2", ended, slow, from, to-1)
	}
}

// TestTest_SinceTheFault lets a unit be suspect for a wander of its noise that no window confirms, and slow much later: it is slow
// since then, not since it was suspected.
func TestTest_SinceTheFault(t *testing.T) {
	const slow, wander, from, steps = 5, 60, 140, 220
	tt, e := peers(16)
	rng := rand.New(rand.NewPCG(3, 1))
	for step := range steps {
		for r := range e {
			e[r] = float32(0.01 * rng.NormFloat64())
		}

		switch {
		case step >= from:
			e[slow] += 0.4
		case step >= wander && step < wander+9:
			e[slow] += 0.1
		case step >= wander:
			e[slow] += 0.024 // neither over nor slow
		}

		tt.Observe(e, nil, int64(step), func(ep Episode) { t.Errorf("step %d: %+v has ended", step, ep) })
		if step == from-1 && (tt.Healthy(slow) || tt.Active(slow) || tt.FirstSlow(slow) >= from) {
			t.Fatalf("step %d: it is suspect since %d no more, or more than that", step, tt.FirstSlow(slow))
		}
	}

	if at := tt.FirstSlow(slow); !tt.Degraded(slow) || at < from-2 || at > from+2 {
		t.Errorf("degraded %v since %d, want since %d", tt.Degraded(slow), at, from)
	}
}

// TestTest_UnlearnsNoFault takes what a slow unit did lately out of its past: it stays slow, and its past
// what it was before the fault.
func TestTest_UnlearnsNoFault(t *testing.T) {
	const slow, from, steps = 5, 60, 280
	tt, e := peers(16)
	rng := rand.New(rand.NewPCG(3, 1))
	for step := range steps {
		for r := range e {
			e[r] = float32(0.01 * rng.NormFloat64())
			if r == slow && step >= from {
				e[r] += 0.2
			}
		}

		if step == 200 {
			tt.Unlearn(slow, step-5)
		}

		tt.Observe(e, nil, int64(step), func(ep Episode) {
			if ep.Unit == slow {
				t.Errorf("step %d: %+v ended", step, ep)
			}
		})
	}

	if !tt.Degraded(slow) || math.Abs(tt.AboveHabit(slow)-0.2) > 0.02 {
		t.Errorf("degraded %v, %.3f above its past, want 0.2", tt.Degraded(slow), tt.AboveHabit(slow))
	}
}

// TestTest_ValuesOfNobody: a signal that is not recorded has no values, however many are asked for.
func TestTest_ValuesOfNobody(t *testing.T) {
	cfg := threshold.Default()
	if v := New(&cfg, 2, Alike(2)).Values(0, 45); len(v) > 0 {
		t.Errorf("values %v of a unit that had none", v)
	}
}

// TestTest_SlowFromStart lets one of eight units be slow from the first step on, in noise as
// of processes that share few cores: how far the seven others lie apart tells that it is.
func TestTest_SlowFromStart(t *testing.T) {
	const slow, steps = 3, 120
	for seed := range uint64(20) {
		cfg := threshold.Default()
		units := Alike(8)
		units.Node = []int32{0, 0, 1, 1, 2, 2, 3, 3}
		tt, e := New(&cfg, 8, units), make([]float32, 8)
		rng := rand.New(rand.NewPCG(seed, 9))
		for step := range steps {
			for r := range e {
				e[r] = float32(0.57 * rng.NormFloat64())
			}

			e[slow] += 1.1
			tt.Observe(e, nil, int64(step), func(Episode) {})
		}

		for r := range e {
			if tt.Degraded(r) != (r == slow) {
				t.Errorf("seed %d: unit %d degraded %v", seed, r, tt.Degraded(r))
			}
		}
	}
}

// TestTest_Health plays units that differ for good by less than may be named, in
// correlated noise: nobody is degraded.
func TestTest_Health(t *testing.T) {
	for seed := range uint64(20) {
		tt, e := peers(32)
		rng := rand.New(rand.NewPCG(seed, 4))
		noise, habit := make([]float64, len(e)), make([]float64, len(e))
		for r := range habit {
			habit[r] = 0.005 * rng.NormFloat64()
		}

		for step := range 400 {
			for r := range e {
				noise[r] = 0.5*noise[r] + 0.02*rng.NormFloat64()
				e[r] = float32(habit[r] + noise[r])
			}

			tt.Observe(e, nil, int64(step), func(Episode) {})
			for r := range e {
				if tt.Degraded(r) {
					t.Fatalf("seed %d, step %d: unit %d is degraded", seed, step, r)
				}
			}
		}
	}
}

// TestTest_ShortSpell: a dozen slow steps are an event, not a condition.
func TestTest_ShortSpell(t *testing.T) {
	tt, e := peers(16)
	rng := rand.New(rand.NewPCG(5, 1))
	events := 0
	for step := range 160 {
		for r := range e {
			e[r] = float32(0.01 * rng.NormFloat64())
			if r == 2 && step >= 80 && step < 92 {
				e[r] += 0.3
			}
		}

		tt.Observe(e, nil, int64(step), func(ep Episode) {
			if ep.Confirmed || !ep.Event || ep.Unit != 2 || ep.Since != 80 {
				t.Errorf("episode %+v, want an event of unit 2 since step 80", ep)
			}

			events++
		})
	}

	if events != 1 {
		t.Errorf("%d events, want 1", events)
	}
}

// TestTest_SuspectByOneWindow: noise that hides slowness from the sequential test may let a
// window alarm; until a second one confirms it the unit is a suspect of which more is known.
func TestTest_SuspectByOneWindow(t *testing.T) {
	const slow = 5
	tt, e := peers(16)
	rng := rand.New(rand.NewPCG(4, 1))
	said := false
	for step := range 200 {
		for r := range e {
			e[r] = float32(0.5 * rng.NormFloat64())
			if r == slow {
				e[r] += 0.8
			}
		}

		tt.Observe(e, nil, int64(step), func(Episode) {})
		if tt.Degraded(slow) {
			break
		}

		if effect, z, ok := tt.Suspicion(slow); ok {
			said = true
			if effect < 0.4 || z < threshold.Default().Alarm || tt.Detected(slow) > int64(step) {
				t.Errorf("step %d: suspect by %.2f, z %.1f, detected in step %d", step, effect, z, tt.Detected(slow))
			}
		}
	}

	if !said || !tt.Degraded(slow) {
		t.Errorf("suspect %v, degraded %v, want both, one after the other", said, tt.Degraded(slow))
	}
}
