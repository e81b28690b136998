package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
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
