package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// savers compares the time to save a checkpoint: save by save, with the others
// that save, because saves are rare and other steps say nothing of them.
type savers struct {
	n     int
	ranks *saveTest
	nodes *saveTest
	run   []uint8   // saves since the test of the rank left zero
	proof []bool    // they are too many and too slow to be chance
	past  []float32 // n × keptSaves: log of each save against all savers, healthy ones
	pastN []uint8
	since []int64 // first slow save of the run
	third []int64 // the save that convicted
	last  []int64 // last slow save
	rise  []float32
	cost  []float32 // seconds a save more than the peers', median-like

	sigma    float64
	sigmaN   float64
	recent   []float32 // keptSaves × n: log of each save
	saves    int       // columns with a save
	savers   int       // of the last of them
	every    float64   // steps from save to save
	lastSave int       // column of the last save
	level    []float32
	// All savers slow together against their own past.
	storageRun   int
	storageSince int64

	lns, rel, buf, rest []float32
}

func newSavers(n int) *savers {
	s := &savers{
		n: n, ranks: newSaveTest(n), nodes: newSaveTest(0), run: make([]uint8, n), proof: make([]bool, n), past: make([]float32, n*keptSaves), recent: make([]float32, n*keptSaves), pastN: make([]uint8, n),
		since: make([]int64, n), third: make([]int64, n), last: make([]int64, n), rise: make([]float32, n), cost: make([]float32, n),
		lns: make([]float32, n), rel: make([]float32, n), lastSave: -1,
	}
	for i := range s.recent {
		s.recent[i] = robust.NaN
	}

	return s
}

// observe takes one step and reports whether anybody saved in it.
func (s *savers) observe(e *Engine, c *frame.Column, t float64) bool {
	v := c.V[frame.Checkpoint]
	if v == nil {
		return false
	}

	saved := 0
	for r, x := range v {
		s.lns[r] = robust.NaN
		if x > 0 {
			s.lns[r] = float32(math.Log(float64(x)))
			saved++
		}
	}

	if saved == 0 {
		return false
	}

	if s.lastSave >= 0 {
		gap := float64(e.columns - s.lastSave)
		if s.every == 0 {
			s.every = gap
		}

		s.every += (gap - s.every) / 8
	}

	s.lastSave = e.columns
	s.saves++
	s.savers = saved
	slot := (s.saves - 1) % keptSaves
	e.keepSave(slot)
	copy(s.recent[slot*s.n:], s.lns)
	e.ref[compute].Relative(s.lns, s.rel)
	s.buf = robust.Compact(s.buf[:0], s.lns)
	mid := robust.Median(s.buf)
	if s.storage(mid, c.Step) {
		return true
	}

	s.noise(e.layout.Roles)
	s.judge(e, v, mid, c)
	e.openSaves()
	return true
}

// noise updates the spread of one save among peers. Who was slow at its last save is
// left out, not who is at this one, so that this one's chance high values stay in.
func (s *savers) noise(roles []frame.Role) {
	s.buf = s.buf[:0]
	for r, x := range s.rel {
		if x == x && s.run[r] == 0 {
			s.buf = append(s.buf, x)
		}
	}

	if len(s.buf) < fewSavers {
		s.differ(roles)
		return
	}

	s.sigmaN = min(s.sigmaN+1, 8)
	s.sigma += (float64(robust.Spread(s.buf)) - s.sigma) / s.sigmaN
}

// differ is noise among few savers: from how those that are not slow now differed,
// role by role, in the saves that are kept. It is known the less, the fewer differences
// there are, and taken for the larger.
func (s *savers) differ(roles []frame.Role) {
	var sum, freedom float64
	for k := range min(s.saves, keptSaves) {
		lns := s.recent[k*s.n:][:s.n]
		for g := range roles {
			s.buf = s.buf[:0]
			for _, r := range roles[g].Rows {
				if x := lns[r]; x == x && s.run[r] == 0 && len(s.buf) < fewSavers {
					s.buf = append(s.buf, x)
				}
			}

			if n := len(s.buf); n >= 2 {
				sum += float64(n-1) * float64(robust.Qn(s.buf))
				freedom += float64(n - 1)
			}
		}
	}

	if freedom > 0 {
		wider := 1 + fewFreedom/freedom
		s.sigma = sum / freedom * wider * wider
	}
}

// alone is the spread of one rank's healthy saves about their own median, pooled:
// the noise of ranks that save without peers.
func (s *savers) alone() float64 {
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
func (s *savers) score(e *Engine, r int, mid float32) (x, least, noise float32) {
	noise = float32(max(s.sigma, saveNoise))
	if x = s.rel[r]; x == x {
		return x, max(saveRise, float32(saveSigmas)*noise), noise
	}

	x, least = s.apart(e, r, mid)
	n := float32(max(1, min(int(s.pastN[r]), keptSaves))) // its own past is known so well
	return x, least, float32(max(s.alone(), aloneNoise)) * robust.Sqrt(1+robust.MedianLoss*robust.MedianLoss*float32(s.run[r]+1)/n)
}

// judge counts the saves of one step.
func (s *savers) judge(e *Engine, v []float32, mid float32, c *frame.Column) {
	if len(s.nodes.Climb) != len(e.layout.Nodes) {
		s.nodes = newSaveTest(len(e.layout.Nodes))
	}

	need := uint8(saves)
	if s.savers < threshold.MedianPeers {
		need = lonelySaves
	}

	rankHeight, nodeHeight := s.ranks.height(s.saves), s.nodes.height(s.saves)
	sum, n := make([]float32, len(e.layout.Nodes)), make([]float32, len(e.layout.Nodes))
	for r, y := range s.lns {
		node := e.layout.Node[r]
		if y != y || node < 0 {
			continue
		}

		x, least, _ := s.score(e, r, mid)
		score := robust.Clip(2*x/least-1, saveDown, saveUp)
		s.ranks.add(r, score, saveTop*rankHeight)
		sum[node], n[node] = sum[node]+score, n[node]+1
	}

	for k := range sum {
		if n[k] > 0 {
			s.nodes.add(k, sum[k]/n[k], saveTop*nodeHeight)
		}
	}

	for r, y := range s.lns {
		if node := e.layout.Node[r]; y == y && node >= 0 {
			climbed := s.ranks.Climb[r] >= rankHeight || s.nodes.Climb[node] >= nodeHeight
			s.settle(e, r, v, mid, c, climbed && s.run[r]+1 >= need)
		}
	}
}

// settle begins, goes on with or ends the slow saves of rank r. climbed tells that its
// saves, or those of its node, are slow beyond chance.
func (s *savers) settle(e *Engine, r int, v []float32, mid float32, c *frame.Column, climbed bool) {
	if s.ranks.Climb[r] == 0 && (!s.proof[r] || s.nodes.Climb[e.layout.Node[r]] == 0) {
		s.ordinary(e, r, mid)
		return
	}

	x, least, noise := s.score(e, r, mid)
	if s.run[r] == 0 {
		s.since[r], s.rise[r], s.cost[r] = c.Step, 0, 0
	}

	s.run[r] = min(s.run[r]+1, 200)
	if x >= least {
		s.last[r] = c.Step
	}

	k := float32(s.run[r])
	s.rise[r] += (x - s.rise[r]) / k
	s.cost[r] += (v[r]*(1-float32(math.Exp(-float64(x)))) - s.cost[r]) / k
	if !s.proof[r] && climbed && s.rise[r] >= saveRise && s.rise[r]*robust.Sqrt(k) >= saveAlarm*noise {
		s.proof[r], s.third[r] = true, c.Step
	}
}

// ordinary ends the slow saves of rank r, and keeps its last one as a healthy one.
func (s *savers) ordinary(e *Engine, r int, mid float32) {
	if s.proof[r] {
		e.remember(past{Node: e.nodeOf(r), Device: e.layout.Device[r], Rank: e.layout.Ranks[r], Signal: saving,
			Since: s.since[r], Detected: s.third[r], Until: s.last[r], Case: e.savingCase(r)})
	}

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
func (s *savers) apart(e *Engine, r int, mid float32) (x, least float32) {
	if n := min(int(s.pastN[r]), keptSaves); n >= saves {
		s.buf = append(s.buf[:0], s.past[r*keptSaves:r*keptSaves+n]...)
		return s.lns[r] - mid - robust.Median(s.buf), saveRise * 1.5
	}

	top := robust.NaN
	for k, x := range s.lns {
		if x == x && e.layout.Node[k] != e.layout.Node[r] && !(top >= x) {
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
func (s *savers) storage(mid float32, step int64) bool {
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
	s.level = append(s.level, mid)
	if len(s.level) > keptSaves {
		s.level = s.level[1:]
	}

	return false
}

// guilty reports whether rank r saves slowly for good.
func (s *savers) guilty(r int) bool { return s.proof[r] }
