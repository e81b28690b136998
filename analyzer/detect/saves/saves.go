// Package saves tells who saves checkpoints slowly: save by save, with the others that
// save, because saves are rare and other steps say nothing of them.
//
// A Watch runs a sequential test of each rank and of each node, whose height comes from
// what this storage does in health, and keeps the account of what slow saves cost.
//
// Invariant: one slow save convicts nobody, what slows all savers together is the
// storage, and who was convicted is acquitted if the storage's noise explains the saves, or
// most of them turn out to be ordinary; has recovered if many were slow before. Caveat: of two or three savers a slow one is named late or not at all; one
// that saves without peers is compared with its own past and with other roles' savers.
package saves

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Watch compares the time to save a checkpoint with the others that save.
type Watch struct {
	l     *frame.Layout
	ref   *residual.Reference
	n     int
	ranks *saveTest
	nodes *saveTest
	run   []uint8   // saves since the test of the rank left zero
	over  []uint8   // of them slow by themselves
	proof []bool    // they are too many and too slow to be chance
	past  []float32 // n × keptSaves: log of each save against all savers, healthy ones
	pastN []uint8
	since []int64 // first slow save of the run
	third []int64 // the save that convicted
	last  []int64 // last slow save
	rise  []float32
	cost  []float32 // seconds a save more than the peers', median-like

	sigma    float64
	recent   []float32 // keptSaves × n: log of each save
	saves    int       // columns with a save
	savers   int       // of the last of them
	every    float64   // steps from save to save
	lastSave int       // column of the last save
	level    []float32
	// All savers slow together against their own past.
	storageRun   int
	storageSince int64

	began    [keptSaves]float64  // when the kept saves began, seconds of the job's steps
	accounts map[string]*account // of nodes that save slowly; "" of all that are guilty together

	lns, rel, well, buf, rest []float32
}

// New returns a watch of the ranks of a layout.
func New(l *frame.Layout) *Watch {
	n := len(l.Ranks)
	return &Watch{
		l: l, ref: residual.NewReference(l), n: n, accounts: map[string]*account{}, ranks: newSaveTest(n), nodes: newSaveTest(0), run: make([]uint8, n), over: make([]uint8, n), proof: make([]bool, n), past: make([]float32, n*keptSaves), recent: robust.Unknown(n * keptSaves), pastN: make([]uint8, n),
		since: make([]int64, n), third: make([]int64, n), last: make([]int64, n), rise: make([]float32, n), cost: make([]float32, n),
		lns: make([]float32, n), rel: make([]float32, n), lastSave: -1,
	}
}

// Assign tells who is who from now on; the roles are the same.
func (s *Watch) Assign(l *frame.Layout) { s.l, s.ref = l, residual.NewReference(l) }

// Observe takes the k-th step of the job and reports whether anybody saved in it. It
// tells ended each rank that no longer saves slowly, while it still knows how slowly it
// did. now is what is known of the job when the step begins.
func (s *Watch) Observe(c *frame.Column, k int, now Now, ended func(row int)) bool {
	v := c.V[frame.Checkpoint]
	if v == nil {
		return false
	}

	robust.Logs(v, s.lns)
	s.buf = robust.Compact(s.buf[:0], s.lns)
	if len(s.buf) == 0 {
		return false
	}

	if s.lastSave >= 0 {
		gap := float64(k - s.lastSave)
		if s.every == 0 {
			s.every = gap
		}

		s.every += (gap - s.every) / 8
	}

	s.lastSave = k
	s.saves++
	s.savers = len(s.buf)
	slot := (s.saves - 1) % keptSaves
	s.keep(slot, now)
	copy(s.recent[slot*s.n:], s.lns)
	mid := robust.Median(s.buf)
	if s.storage(mid, c.Step) {
		return true
	}

	s.noise()
	s.ref.Relative(s.lns, s.rel)
	s.judge(v, mid, c.Step, ended)
	s.open()
	return true
}

// noise updates the spread of one save among peers: that of the kept saves, or of the last
// few if they differ more, for a storage that is quiet may turn noisy.
func (s *Watch) noise() {
	if x := max(s.spread(keptSaves), s.spread(saves)); x > 0 {
		s.sigma = x
	}
}

// spread is how far those that are not slow now differed in the last saves. It is known
// the less, the fewer differences there are, and taken for the larger. Zero is unknown.
func (s *Watch) spread(last int) float64 {
	var sum, freedom float64
	for k := range min(s.saves, last) {
		lns := s.recent[(s.saves-1-k)%keptSaves*s.n:][:s.n]
		s.well = append(s.well[:0], lns...)
		for r, run := range s.run {
			if run > 0 {
				s.well[r] = robust.NaN // nor is a slow one any measure of the others
			}
		}

		s.ref.Relative(s.well, s.rel)
		s.buf = robust.Compact(s.buf[:0], s.rel)
		if n := len(s.buf); n >= fewSavers {
			sum, freedom = sum+float64(n-1)*float64(robust.Spread(s.buf)), freedom+float64(n-1)
			continue
		}

		for g := range s.l.Roles {
			s.buf = s.buf[:0]
			for _, r := range s.l.Roles[g].Rows {
				if x := lns[r]; x == x && s.run[r] == 0 && len(s.buf) < fewSavers {
					s.buf = append(s.buf, x)
				}
			}

			if n := len(s.buf); n >= 2 {
				sum, freedom = sum+float64(n-1)*float64(robust.Qn(s.buf)), freedom+float64(n-1)
			}
		}
	}

	if freedom == 0 {
		return 0
	}

	wider := 1 + fewFreedom/freedom
	return sum / freedom * wider * wider
}

// alone is the spread of one rank's healthy saves about their own median, pooled:
// the noise of ranks that save without peers.
func (s *Watch) alone() float64 {
	s.rest = s.rest[:0]
	for r := range s.n {
		if n := min(int(s.pastN[r]), keptSaves); n >= saves {
			s.buf = append(s.buf[:0], s.past[r*keptSaves:r*keptSaves+n]...)
			m := robust.Median(s.buf)
			for _, x := range s.buf {
				s.rest = append(s.rest, x-m)
			}
		}
	}

	if len(s.rest) < 2*saves {
		return 0
	}

	return fewSaves * float64(robust.Spread(s.rest))
}

// score sets how slow the save of rank r is: x is the log ratio to the peers or to its
// own past, least what makes a slow save, noise the spread of one save.
func (s *Watch) score(r int, mid float32) (x, least, noise float32) {
	noise = float32(max(s.sigma, saveNoise))
	if x = s.rel[r]; x == x {
		return x, max(saveRise, float32(saveSigmas)*noise), noise
	}

	x, least = s.apart(r, mid)
	n := float32(max(1, min(int(s.pastN[r]), keptSaves))) // its own past is known so well
	return x, least, float32(max(s.alone(), aloneNoise)) * robust.Sqrt(1+robust.MedianLoss*robust.MedianLoss*float32(s.run[r]+1)/n)
}

// judge counts the saves of one step.
func (s *Watch) judge(v []float32, mid float32, step int64, ended func(int)) {
	if len(s.nodes.Climb) != len(s.l.Nodes) {
		s.nodes = newSaveTest(len(s.l.Nodes))
	}

	need := uint8(saves)
	if s.savers < threshold.MedianPeers {
		need = lonelySaves
	}

	rankTop, nodeTop := s.ranks.top(s.saves), s.nodes.top(s.saves)
	sum, n := make([]float32, len(s.l.Nodes)), make([]float32, len(s.l.Nodes))
	for r, y := range s.lns {
		node := s.l.Node[r]
		if y != y || node < 0 {
			continue
		}

		x, least, _ := s.score(r, mid)
		score := robust.Clip(2*x/least-1, saveDown, saveUp)
		s.ranks.add(r, score, rankTop)
		sum[node], n[node] = sum[node]+score, n[node]+1
	}

	for k := range sum {
		if n[k] > 0 {
			s.nodes.add(k, sum[k]/n[k], nodeTop)
		}
	}

	for r, y := range s.lns {
		if node := s.l.Node[r]; y == y && node >= 0 {
			climbed := !s.proof[r] && s.run[r]+1 >= need && (s.ranks.slow(r, s.saves) || s.nodes.slow(int(node), s.saves))
			s.settle(r, v[r], mid, step, climbed, ended)
		}
	}
}

// settle begins, goes on with or ends the slow saves of rank r. climbed tells that its
// saves, or those of its node, are slow beyond chance.
func (s *Watch) settle(r int, seconds, mid float32, step int64, climbed bool, ended func(int)) {
	if s.ranks.Climb[r] == 0 && (!s.proof[r] || s.nodes.Climb[s.l.Node[r]] == 0) {
		if s.proof[r] {
			ended(r)
		}

		s.ordinary(r, mid)
		return
	}

	x, least, noise := s.score(r, mid)
	if x >= least && s.over[r] == 0 { // what it climbed before was chance
		s.run[r] = 0
	}

	if s.run[r] == 0 {
		s.since[r], s.rise[r], s.cost[r], s.over[r] = step, 0, 0, 0
	}

	s.run[r] = min(s.run[r]+1, 200)
	if x >= saveRise {
		s.over[r] = min(s.over[r]+1, s.run[r])
	}

	if x >= least {
		s.last[r] = step
	}

	k := float32(s.run[r])
	s.rise[r] += (x - s.rise[r]) / k
	s.cost[r] += (seconds*(1-float32(math.Exp(-float64(x)))) - s.cost[r]) / k
	together := s.rise[r] * robust.Sqrt(k) / noise
	most := float32(s.over[r]) >= threshold.SlowShare*k
	switch {
	case s.proof[r] && together >= saveDoubt && !most && s.over[r] >= habit: // slow they were, and are no longer
		ended(r)
		s.ranks.Climb[r] = 0
		s.ordinary(r, mid)
	case s.proof[r] && (together < saveDoubt || !most): // the storage turned out to differ so by itself
		s.proof[r] = false
	case !s.proof[r] && climbed && most && s.rise[r] >= saveRise && together >= saveAlarm && s.cost[r] >= saveLeast:
		s.proof[r], s.third[r] = true, step
	}
}

// ordinary ends the slow saves of rank r, and keeps its last one as a healthy one.
func (s *Watch) ordinary(r int, mid float32) {
	s.run[r], s.proof[r] = 0, false
	s.past[r*keptSaves+int(s.pastN[r])%keptSaves] = s.lns[r] - mid
	s.pastN[r]++
	if s.pastN[r] >= 2*keptSaves {
		s.pastN[r] -= keptSaves
	}
}

// apart serves a rank that saves without a peer of its role: how far it changed against
// its own saves, or is above everybody on other nodes, whose files may be smaller but
// not by much; and how far makes a slow save.
func (s *Watch) apart(r int, mid float32) (x, least float32) {
	if n := min(int(s.pastN[r]), keptSaves); n >= saves {
		s.buf = append(s.buf[:0], s.past[r*keptSaves:r*keptSaves+n]...)
		return s.lns[r] - mid - robust.Median(s.buf), saveRise * 1.5
	}

	top := robust.NaN
	for k, x := range s.lns {
		if x == x && s.l.Node[k] != s.l.Node[r] && !(top >= x) {
			top = x
		}
	}

	if top != top {
		return 0, acrossRise
	}

	return s.lns[r] - top, acrossRise
}

// storage reports whether all savers together are far above their own past: the
// storage, not a node.
func (s *Watch) storage(mid float32, step int64) bool {
	if n := len(s.level); n >= saves {
		s.buf = append(s.buf[:0], s.level...)
		if mid-robust.Median(s.buf) >= storageRise {
			if s.storageRun == 0 {
				s.storageSince = step
			}

			s.storageRun++
			return true
		}
	}

	s.storageRun = 0
	s.level = robust.Newest(append(s.level, mid), keptSaves)
	return false
}

// Guilty reports whether rank r saves slowly for good.
func (s *Watch) Guilty(r int) bool { return s.proof[r] }

// Slow is how slowly a rank saves.
type Slow struct {
	Since, Detected, Until int64   // steps
	Saves                  int     // in a row
	Effect, Z              float64 // log ratio to the others, and its significance
	Seconds                float64 // more than the others', a save
	Step                   float64 // the same spread over the steps between saves
}

// Slow is how slowly rank r saves.
func (s *Watch) Slow(r int) Slow {
	return Slow{Since: s.since[r], Detected: s.third[r], Until: s.last[r], Saves: int(s.run[r]),
		Effect: float64(s.rise[r]), Z: float64(s.rise[r]) / math.Max(s.sigma, saveNoise),
		Seconds: float64(s.cost[r]), Step: float64(s.cost[r]) / max(1, s.every)}
}

// AllSlow reports whether all savers together are far above their own past, and since
// which step.
func (s *Watch) AllSlow() (since int64, slow bool) { return s.storageSince, s.storageRun >= saves }
