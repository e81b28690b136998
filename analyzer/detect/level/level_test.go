package level

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// play is a job of eight ranks in one role; seconds returns the step time and the time a
// rank loads data.
func play(steps int, seconds func(step, rank int) (total, load float64)) (*Job, *Loading) {
	l := &frame.Layout{Roles: []frame.Role{{Size: 8}}}
	for r := range 8 {
		l.Ranks, l.Node, l.Roles[0].Rows = append(l.Ranks, r), append(l.Node, int32(r)), append(l.Roles[0].Rows, int32(r))
	}

	v, s := New(l), NewLoading()
	rng := rand.New(rand.NewPCG(1, 2))
	for k := range steps {
		c := &frame.Column{Step: int64(k)}
		c.V[frame.DataLoader] = make([]float32, 8)
		longest := 0.0
		for r := range 8 {
			t, load := seconds(k, r)
			c.V[frame.DataLoader][r] = float32(load)
			longest = max(longest, t*(1+0.01*rng.NormFloat64()))
		}

		v.Observe(c, longest, 1, float32(math.Log(0.1)))
		s.Observe(c, longest, l.Node, well{})
	}

	return v, s
}

// well is a job in which nobody is known to load slowly.
type well struct{}

func (well) Healthy(int) bool { return true }

// TestJob_AgainstItsOwnPast tells by how much and since when steps are longer; noise and a
// short stretch of long steps are no change.
func TestJob_AgainstItsOwnPast(t *testing.T) {
	v, _ := play(200, func(k, _ int) (float64, float64) {
		if k >= 120 {
			return 1.3, 0.01
		}

		return 1, 0.01
	})
	if rise, since := v.Change(Step); math.Abs(rise-math.Log(1.3)) > 0.02 || since != 120 {
		t.Errorf("rise %.3f since step %d, want %.3f since 120", rise, since, math.Log(1.3))
	}

	if rise, _ := v.Change(Link); rise != 0 {
		t.Errorf("transfers rose by %.3f", rise)
	}

	v, _ = play(200, func(k, _ int) (float64, float64) {
		if k >= 100 && k < 112 {
			return 2, 0.01
		}

		return 1, 0.01
	})
	if rise, since := v.Change(Step); rise != 0 {
		t.Errorf("rise %.3f since step %d in a job that is as before", rise, since)
	}
}

// TestLoading_Rotates: slow loading that wanders over nodes is the storage's; on one node
// it is that node's.
func TestLoading_Rotates(t *testing.T) {
	for name, c := range map[string]struct {
		slow func(step int) int
		want bool
	}{
		"wandering": {func(k int) int { return k % 8 }, true},
		"one node":  {func(int) int { return 3 }, false},
		"nobody":    {func(int) int { return -1 }, false},
	} {
		_, s := play(200, func(k, r int) (float64, float64) {
			if r == c.slow(k) {
				return 1.2, 0.2
			}

			return 1, 0.01
		})
		if got := s.Rotates(); got != c.want {
			t.Errorf("%s: rotates %v, want %v", name, got, c.want)
		}
	}
}
