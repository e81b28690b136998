package saves

import "math"

// saveTest is a sequential test of units that save checkpoints: ranks, or nodes as the
// mean of theirs. A winsorised CUSUM climbs with slow saves and falls with ordinary
// ones, so that one of either decides nothing on a storage with heavy tails.
type saveTest struct {
	Climb []float32
	Past  []float32 // scores of the last saves, a ring: what this storage does in health
	Next  int
}

func newSaveTest(units int) *saveTest { return &saveTest{Climb: make([]float32, units)} }

// add counts one save of unit u. top bounds how far it climbs, so that a unit recovers as
// fast as it was found. A unit whose last saves were slow teaches nothing of health: what
// it did before says nothing of this save in health, so leaving it out bends nothing.
func (t *saveTest) add(u int, score, top float32) {
	if t.Climb[u] < 1 {
		if len(t.Past) < keptScores {
			t.Past = append(t.Past, score)
		} else {
			t.Past[t.Next%keptScores] = score
		}

		t.Next++
	}

	t.Climb[u] = min(max(0, t.Climb[u]+score), top)
}

// height is how far a unit must climb to be slow: what any of them reaches in health
// within so many saves with a chance of saveOdds. A CUSUM whose steps x have
// E[exp(θx)] = 1 crosses h with a chance of exp(-θh) (Wald, Sequential Analysis, 1947).
func (t *saveTest) height(saves int) float32 {
	lo, hi := saveTheta, saveSteep
	if len(t.Past) < leastScores {
		hi = saveUnknown
	}

	if t.moment(hi) > 1 {
		for range 12 {
			if mid := (lo + hi) / 2; t.moment(mid) > 1 {
				hi = mid
			} else {
				lo = mid
			}
		}

		hi = lo
	}

	return float32(math.Log(float64(len(t.Climb)*saves)/saveOdds) / hi)
}

// moment is the mean of exp(θ x) over the scores known.
func (t *saveTest) moment(theta float64) float64 {
	sum := 0.0
	for _, x := range t.Past {
		sum += math.Exp(theta * float64(x))
	}

	return sum / float64(max(1, len(t.Past)))
}
