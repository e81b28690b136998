package saves

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
)

// saveTest is a sequential test of units that save checkpoints: ranks, or nodes as the
// mean of theirs. A winsorised CUSUM climbs with slow saves and falls with ordinary
// ones, so that one of either decides nothing on a storage with heavy tails.
type saveTest struct {
	Climb []float32
	Past  []scored // of the last saves, a ring: what this storage does in health
	Next  int
	Held  []scored // of those who climb: whether that is health nobody knows before they are down again
}

// scored is the score of one save.
type scored struct {
	Unit  int32
	Score float32
}

func newSaveTest(units int) *saveTest {
	return &saveTest{Climb: make([]float32, units), Held: []scored{}}
}

// add counts one save of unit u. top bounds how far it climbs, so that a unit recovers as
// fast as it was found. What it did while it climbed was chance if it is at the bottom again.
func (t *saveTest) add(u int, score, top float32) {
	was := t.Climb[u]
	t.Climb[u] = min(max(0, was+score), top)
	now := scored{int32(u), score}
	switch {
	case t.Climb[u] > 0:
		t.Held = robust.Newest(append(t.Held, now), keptScores)
	case was > 0:
		t.Held = slices.DeleteFunc(t.Held, func(x scored) bool {
			own := x.Unit == now.Unit
			if own {
				t.learn(x)
			}

			return own
		})
		t.learn(now)
	default:
		t.learn(now)
	}
}

// learn counts a score as one of health.
func (t *saveTest) learn(x scored) {
	if len(t.Past) < keptScores {
		t.Past = append(t.Past, x)
	} else {
		t.Past[t.Next%keptScores] = x
	}

	t.Next++
}

// slow reports whether unit u climbed so far that it is slow. What those that share its cause did meanwhile, its
// mates, is as little a witness of what is health as what it did itself.
func (t *saveTest) slow(u, saves int, mate func(int32) bool) bool {
	return t.Climb[u] >= t.reach(saves, saveSteep) && t.Climb[u] >= t.height(saves, mate)
}

// height is how far a unit must climb to be slow: what any of them reaches in health
// within so many saves with a chance of saveOdds. A CUSUM whose steps x have
// E[exp(θx)] = 1 crosses h with a chance of exp(-θh) (Wald, Sequential Analysis, 1947).
// Scores of those that climb, its mates aside, count: a quiet storage may turn noisy.
func (t *saveTest) height(saves int, mate func(int32) bool) float32 {
	lo, hi := saveTheta, saveSteep
	for range 12 {
		if mid := (lo + hi) / 2; t.moment(mid, mate) > 1 {
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
func (t *saveTest) top(saves int) float32 {
	return saveTop * t.height(saves, func(int32) bool { return false })
}

// moment is the mean of exp(θ x) over the scores known, and saveUnseen of one that is as slow as can be: of
// heavy tails few saves tell little.
func (t *saveTest) moment(theta float64, mate func(int32) bool) float64 {
	sum, n := saveUnseen*math.Exp(theta*saveUp), saveUnseen
	for _, x := range t.Past {
		sum, n = sum+math.Exp(theta*float64(x.Score)), n+1
	}

	for _, x := range t.Held {
		if !mate(x.Unit) {
			sum, n = sum+math.Exp(theta*float64(x.Score)), n+1
		}
	}

	return sum / n
}
