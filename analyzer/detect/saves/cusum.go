package saves

import "math"

// saveTest is a sequential test of units that save checkpoints: ranks, or nodes as the
// mean of theirs. A winsorised CUSUM climbs with slow saves and falls with ordinary
// ones, so that one of either decides nothing on a storage with heavy tails.
type saveTest struct {
	Climb []float32
	Past  []scored // of the last saves, a ring: what this storage does in health
	Next  int
}

// scored is the score of one save.
type scored struct {
	Unit  int32
	Score float32
}

func newSaveTest(units int) *saveTest { return &saveTest{Climb: make([]float32, units)} }

// add counts one save of unit u. top bounds how far it climbs, so that a unit recovers as
// fast as it was found. A unit whose last saves were slow teaches nothing of health: what
// it did before says nothing of this save in health, so leaving it out bends nothing.
func (t *saveTest) add(u int, score, top float32) {
	if t.Climb[u] < 1 {
		if len(t.Past) < keptScores {
			t.Past = append(t.Past, scored{int32(u), score})
		} else {
			t.Past[t.Next%keptScores] = scored{int32(u), score}
		}

		t.Next++
	}

	t.Climb[u] = min(max(0, t.Climb[u]+score), top)
}

// slow reports whether unit u climbed so far that it is slow. The save that began its
// climb, the last of it in Past, is in question: it is no witness of what is health.
func (t *saveTest) slow(u, saves int) bool {
	if t.Climb[u] < t.reach(saves, saveSteep) {
		return false
	}

	began, n := -1, len(t.Past)
	for k := range n {
		if at := (t.Next + n - 1 - k) % n; t.Past[at].Unit == int32(u) {
			began = at
			break
		}
	}

	return t.Climb[u] >= t.height(saves, began)
}

// height is how far a unit must climb to be slow: what any of them reaches in health
// within so many saves with a chance of saveOdds. A CUSUM whose steps x have
// E[exp(θx)] = 1 crosses h with a chance of exp(-θh) (Wald, Sequential Analysis, 1947).
// The score at without is left out.
func (t *saveTest) height(saves, without int) float32 {
	lo, hi := saveTheta, saveSteep
	for range 12 {
		if mid := (lo + hi) / 2; t.moment(mid, without) > 1 {
			hi = mid
		} else {
			lo = mid
		}
	}

	return t.reach(saves, hi)
}

// reach is how far some unit climbs in so many saves with a chance of saveOdds, by steps of that θ.
func (t *saveTest) reach(saves int, theta float64) float32 {
	return float32(math.Log(float64(len(t.Climb)*saves)/saveOdds) / theta)
}

// top is how far a unit climbs at most.
func (t *saveTest) top(saves int) float32 { return saveTop * t.height(saves, -1) }

// moment is the mean of exp(θ x) over the scores known, but the one at without, and saveUnseen of one that
// is as slow as can be: of heavy tails few saves tell little.
func (t *saveTest) moment(theta float64, without int) float64 {
	sum, n := saveUnseen*math.Exp(theta*saveUp), saveUnseen
	for k := range t.Past {
		if k != without {
			sum, n = sum+math.Exp(theta*float64(t.Past[k].Score)), n+1
		}
	}

	return sum / n
}
