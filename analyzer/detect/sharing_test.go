package detect

import "testing"

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
		s := spread(append([]float32(nil), e.tracks[compute].values(r, window)...))
		if s > 0.025 {
			t.Errorf("rank %d differs from its peers by %.3f from step to step, want about the noise of 0.011", e.layout.Ranks[r], s)
		}
	}
}
