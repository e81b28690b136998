package detect

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestSharing_MissingPeers takes one rank of the first stage out of a job with uneven
// sequences: the peers there then have another middle replica than those of the next
// stage. What the stages of a replica share must still be found.
func TestSharing_MissingPeers(t *testing.T) {
	j := newJob(4)
	j.shape(2, 4, 1, 1)
	j.seq, j.sigma, j.rho, j.heavy, j.drift, j.spread, j.unrecorded, j.steps = 0.10, 0.008, 0, false, 0, 0, 0, 150
	j.absent = map[int]bool{j.rank(0, 1, 0): true}
	cols := columns(j.frame())
	e := New(Default(), cols[0].Layout)
	for _, c := range cols {
		e.Observe(c)
	}

	for r := range e.n {
		stage, q, _ := j.place(e.layout.Ranks[r])
		if stage == 1 || q == 1 {
			continue // the mate of the one that is missing has nobody to share with
		}

		s := robust.Spread(append([]float32(nil), e.tracks[compute].Values(r, threshold.Window)...))
		if s > 0.025 {
			t.Errorf("rank %d differs from its peers by %.3f from step to step, want about the noise of 0.011", e.layout.Ranks[r], s)
		}
	}
}

// TestSharing_SlowRankIsNoWork slows a rank of the first stage of a job with uneven
// sequences: its mate in the next stage works as before, and nobody may look slow or
// fast for it.
func TestSharing_SlowRankIsNoWork(t *testing.T) {
	j := newJob(4)
	j.shape(2, 4, 1, 1)
	j.seq, j.sigma, j.rho, j.heavy, j.drift, j.spread, j.unrecorded, j.steps = 0.10, 0.008, 0, false, 0, 0, 0, 150
	slow := j.rank(0, 1, 0)
	j.on(slow, 80, effect{forward: 1.3, backward: 1.3})
	cols := columns(j.frame())
	e := New(Default(), cols[0].Layout)
	for _, c := range cols {
		e.Observe(c)
	}

	for r := range e.n {
		rank := e.layout.Ranks[r]
		m := robust.Median(append([]float32(nil), e.tracks[compute].Values(r, threshold.Window)...))
		if want := float32(0.26); rank == slow && (m < want-0.03 || m > want+0.03) || rank != slow && (m < -0.03 || m > 0.03) {
			t.Errorf("rank %d differs from its peers by %.3f, slow is rank %d", rank, m, slow)
		}
	}
}

// slowOne is a job of which one rank is known to be slow.
type slowOne struct {
	row int
	by  float32
}

func (s slowOne) Healthy(r int) bool  { return r != s.row }
func (s slowOne) Degraded(r int) bool { return r == s.row }
func (s slowOne) Centre(int) float32  { return 0 }
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
	l := &frame.Layout{Roles: []frame.Role{{Rows: sequence(n), Size: n}}, Stages: 1}
	for r := range n {
		l.Ranks, l.Role, l.Replica, l.Replicas = append(l.Ranks, r), append(l.Role, 0), append(l.Replica, int32(r)), append(l.Replicas, []int32{int32(r)})
	}

	for g := range 2 {
		l.Groups = append(l.Groups, frame.Group{Dim: "ep", Size: experts, Rows: sequence(n)[g*experts : (g+1)*experts]})
	}

	s, left, ref := newExperts(l), make([]float32, n), newReference([][]int32{sequence(n)}, []int{n})
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

		ref.relative(logs, out)
		s.remove(logs, []float64{0}, ref.middle, nil, nil, left, slowOne{row: slow, by: 0.2})
		ref.relative(logs, out)
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
