// Package saves tells who saves checkpoints slowly: save by save, with the others that
// save, because saves are rare and other steps say nothing of them.
//
// A Watch runs a sequential test of each rank and of each node, whose height comes from
// what this storage does in health, and keeps the account of what slow saves cost.
//
// Invariant: one slow save convicts nobody, and what slows all savers together is the storage.
// Who was convicted is acquitted if the storage's noise explains the saves. It has recovered, if many
// were slow before, after so many ordinary ones in a row as its habit makes unlikely. Caveat: of two or three savers a
// slow one is named late or not at all; one that saves without peers is compared with its own past
// and with other roles' savers.
package saves

import (
	"math"
	"slices"

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
	after []uint8   // saves since the last of those
	home  []bool    // all ranks of its role are on its node
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
	leader   int32     // node that took far longer than any other in the last saves in which one did, and in how many in a row
	leads    int
	among    int // nodes that save
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
		l: l, ref: residual.NewReference(l), home: atHome(l), n: n, accounts: map[string]*account{}, ranks: newSaveTest(n), nodes: newSaveTest(0), run: make([]uint8, n), over: make([]uint8, n), after: make([]uint8, n), proof: make([]bool, n), past: make([]float32, n*keptSaves), recent: robust.Unknown(n * keptSaves), pastN: make([]uint8, n),
		since: make([]int64, n), third: make([]int64, n), last: make([]int64, n), rise: make([]float32, n), cost: make([]float32, n),
		lns: make([]float32, n), rel: make([]float32, n), lastSave: -1,
	}
}

// Assign tells who is who from now on; the roles are the same.
func (s *Watch) Assign(l *frame.Layout) {
	s.l, s.ref, s.home, s.leads = l, residual.NewReference(l), atHome(l), 0
}

// atHome tells of each row whether all of its role are on one node.
func atHome(l *frame.Layout) []bool {
	home := make([]bool, len(l.Ranks))
	for g := range l.Roles {
		rows := l.Roles[g].Rows
		if elsewhere := func(r int32) bool { return l.Node[r] != l.Node[rows[0]] }; slices.ContainsFunc(rows, elsewhere) {
			continue
		}

		for _, r := range rows {
			home[r] = true
		}
	}

	return home
}

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
	mid := robust.LowerMedian(s.buf) // half of the savers may be slow
	if s.storage(mid, c.Step) {
		return true
	}

	s.followLeader()
	s.noise()
	s.ref.Relative(s.lns, s.rel)
	s.judge(v, mid, c.Step, ended)
	s.open()
	return true
}

// judge counts the saves of one step.
func (s *Watch) judge(v []float32, mid float32, step int64, ended func(int)) {
	if len(s.nodes.Climb) != len(s.l.Nodes) {
		s.nodes = newSaveTest(len(s.l.Nodes))
	}

	need := uint8(saves)
	if s.savers < threshold.MedianPeers || s.among > 1 && s.among < threshold.MedianPeers { // a node's ranks share what they save over
		need = lonelySaves
	}

	s.climb(mid)
	for r, y := range s.lns {
		if y == y && s.l.Node[r] >= 0 {
			s.follow(r, v[r], mid, step, ended)
		}
	}

	for r, y := range s.lns {
		if y == y && s.l.Node[r] >= 0 && s.run[r] > 0 {
			s.settle(r, need, mid, step, ended)
		}
	}
}

// climb adds the saves of one step to the tests. A node's save is the middle of its ranks': it is known
// the better, the more there are, so less of it is slow; and one rank's heavy tails are none of it.
func (s *Watch) climb(mid float32) {
	rankTop, nodeTop := s.ranks.top(s.saves), s.nodes.top(s.saves)
	of := make([][]int32, len(s.l.Nodes))
	for r, y := range s.lns {
		if node := s.l.Node[r]; y == y && node >= 0 {
			of[node] = append(of[node], int32(r))
		}
	}

	var scores []float32
	for node, rows := range of {
		scores = scores[:0]
		for _, r := range rows {
			x, least := s.score(int(r), mid)
			score := robust.Clip(2*x/least-1, saveDown, saveUp)
			s.ranks.add(int(r), score, rankTop)
			scores = append(scores, (score+1)*least/max(saveRise, least/robust.Sqrt(float32(len(rows)))))
		}

		if len(rows) > 0 {
			s.nodes.add(node, robust.Clip(robust.Median(scores)-1, saveDown, saveUp), nodeTop)
		}
	}
}

// follow begins, goes on with or ends the slow saves of rank r.
func (s *Watch) follow(r int, seconds, mid float32, step int64, ended func(int)) {
	if s.ranks.Climb[r] == 0 && (!s.proof[r] || s.nodes.Climb[s.l.Node[r]] == 0) {
		s.end(r, mid, ended)
		return
	}

	x, least := s.score(r, mid)
	if x >= least && s.over[r] == 0 { // what it climbed before was chance
		s.run[r] = 0
	}

	if s.run[r] == 0 {
		s.since[r], s.rise[r], s.cost[r], s.over[r], s.after[r] = step, 0, 0, 0, 0
	}

	s.run[r] = min(s.run[r]+1, 200)
	s.after[r] = min(s.after[r]+1, s.run[r])
	if x >= saveRise {
		s.over[r], s.after[r] = min(s.over[r]+1, s.run[r]), 0
	}

	if x >= least {
		s.last[r] = step
	}

	k := float32(s.run[r])
	s.rise[r] += (x - s.rise[r]) / k
	s.cost[r] += (seconds*(1-float32(math.Exp(-float64(x)))) - s.cost[r]) / k
}

// settle finds rank r guilty if its saves, or those of its node, are slow beyond chance, and takes that
// back when the storage turned out to differ so by itself. Slow saves are over when so many ordinary ones
// in a row are beyond chance as well.
func (s *Watch) settle(r int, need uint8, mid float32, step int64, ended func(int)) {
	node := s.l.Node[r]
	switch {
	case s.proof[r] && s.together(r) < saveDoubt && s.nodeTogether(node) < saveDoubt:
		s.proof[r] = false
	case s.proof[r]:
		share := float64(s.over[r]) / float64(1+s.run[r]-s.after[r]) // one ordinary save may have been still to come
		if math.Pow(1-share, float64(s.after[r])) <= saveOdds {
			s.end(r, mid, ended)
			s.ranks.Climb[r] = 0
		}
	case s.over[r] < need || s.rise[r] < saveRise || s.cost[r] < saveLeast:
	case s.ranks.slow(r, s.saves, func(p int32) bool { return s.l.Node[p] == node }) && s.together(r) >= saveAlarm,
		s.nodes.slow(int(node), s.saves, func(n int32) bool { return n == node }) && s.nodeTogether(node) >= nodeAlarm:
		s.proof[r], s.third[r] = true, step
	}
}

// end ends the slow saves of rank r, and tells so if they were a habit.
func (s *Watch) end(r int, mid float32, ended func(int)) {
	if s.proof[r] && s.over[r] >= habit {
		ended(r)
	}

	s.ordinary(r, mid)
}

// nodeTogether is the z of all of the node's ranks that save together (Stouffer's sum).
func (s *Watch) nodeTogether(node int32) float32 {
	var sum, n float32
	for r, y := range s.lns {
		if y == y && s.l.Node[r] == node {
			sum, n = sum+s.together(r), n+1
		}
	}

	return sum / robust.Sqrt(n)
}

// ordinary lets no save of rank r be slow any more, and keeps its last one as a healthy one.
func (s *Watch) ordinary(r int, mid float32) {
	s.run[r], s.proof[r] = 0, false
	s.past[r*keptSaves+int(s.pastN[r])%keptSaves] = s.lns[r] - mid
	s.pastN[r]++
	if s.pastN[r] >= 2*keptSaves {
		s.pastN[r] -= keptSaves
	}
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
	Saves                  int     // since the first of them
	Often                  float64 // the share of them that are slow
	Effect, Z              float64 // log ratio of these to the others', and its significance
	Seconds                float64 // more than the others', one of these
	Step                   float64 // the same of all of them, spread over the steps between saves
}

// Slow is how slowly rank r saves.
func (s *Watch) Slow(r int) Slow {
	often := s.often(r)
	effect := float64(s.rise[r] / often)
	return Slow{Since: s.since[r], Detected: s.third[r], Until: s.last[r], Saves: int(s.run[r]), Often: float64(often),
		Effect: effect, Z: effect / math.Max(s.sigma, saveNoise),
		Seconds: float64(s.cost[r] / often), Step: float64(s.cost[r]) / max(1, s.every)}
}

// often is the share of the saves of rank r that are slow, from the first of them to the last: all where most are.
func (s *Watch) often(r int) float32 {
	if x := float32(s.over[r]) / float32(max(1, s.run[r]-s.after[r])); x > 0 && x < threshold.SlowShare {
		return x
	}

	return 1
}

// AllSlow reports whether all savers together are far above their own past, and since
// which step.
func (s *Watch) AllSlow() (since int64, slow bool) { return s.storageSince, s.storageRun >= saves }
