package residual

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// slowOne is a job of which one rank is known to be slow.
type slowOne struct {
	row int
	by  float32
}

func (s slowOne) Healthy(r int) bool { return r != s.row }

func (s slowOne) Degraded(r int) bool { return r == s.row }

func (s slowOne) Centre(int) float32 { return 0 }

func (s slowOne) Noise(int) float32 { return 0.05 }

func (s slowOne) Lately(r int) float32 {
	if r == s.row {
		return s.by
	}

	return 0
}

// TestSharing_ExpertLoad lets the experts of two groups get tokens unevenly, for long,
// and slows one rank: what those that hold the same expert share goes, what the rank is
// slow by stays.
func TestSharing_ExpertLoad(t *testing.T) {
	const experts, slow = 4, 5
	n := 2 * experts
	rows := oneRole(n).roles[0].Rows
	l := &frame.Layout{Roles: []frame.Role{{Rows: rows, Size: n}}, Stages: 1}
	for r := range n {
		l.Ranks, l.Role, l.Replica, l.Replicas = append(l.Ranks, r), append(l.Role, 0), append(l.Replica, int32(r)), append(l.Replicas, []int32{int32(r)})
	}

	for g := range 2 {
		l.Groups = append(l.Groups, frame.Group{Dim: "ep", Size: experts, Rows: rows[g*experts : (g+1)*experts]})
	}

	_, s := NewSharing(l)
	left, ref := make([]float32, n), NewReference(l)
	chance := rand.New(rand.NewPCG(1, 2))
	var load [experts]float64
	logs, out := make([]float32, n), make([]float32, n)
	sum := make([]float64, n)
	const steps, last = 200, 100
	for k := range steps {
		for x := range load {
			load[x] = 0.97*load[x] + 0.06*0.24*chance.NormFloat64()
		}

		for r := range logs {
			logs[r] = float32(load[r%experts] + 0.005*chance.NormFloat64())
			if r == slow {
				logs[r] += 0.2
			}
		}

		ref.Relative(logs, out)
		s.Remove(logs, []float64{0}, ref.Middle, nil, nil, left, slowOne{row: slow, by: 0.2})
		ref.Relative(logs, out)
		if k >= steps-last {
			for r, x := range out {
				sum[r] += math.Abs(float64(x)) / last
			}
		}
	}

	for r, x := range sum {
		if r == slow && x < 0.17 || r != slow && x > 0.03 {
			t.Errorf("rank %d is %.3f from its peers in the middle, rank %d is slow by 0.2", r, x, slow)
		}
	}
}

// TestSharing_SlopeByDegrees lets a correlation grow step by step: what is removed grows
// from nothing as slowly, and where the correlation is clear it is Deming's whole line.
func TestSharing_SlopeByDegrees(t *testing.T) {
	s := &Sharing{noise: sharedNoise, sums: []sums{{XX: 1, YY: 1}}}
	before, line := 0.0, 0.0
	for r := 0.01; r < 1; r += 0.01 {
		s.sums[0].XY = r
		d := 1 - 1/sharedNoise
		line = (d + math.Sqrt(d*d+4*r*r/sharedNoise)) / (2 * r)
		slope := s.slope(0)
		if slope < before || slope > before+0.15 {
			t.Errorf("correlation %.2f: slope %.3f after %.3f", r, slope, before)
		}

		if r > sharedSure && math.Abs(slope-line) > 1e-9 {
			t.Errorf("correlation %.2f: slope %.3f, want %.3f", r, slope, line)
		}

		before = slope
	}
}
