package residual

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// known is what is known of the ranks from the steps before.
type known interface {
	Healthy(r int) bool
	Degraded(r int) bool
	Lately(r int) float32 // residual of the last few steps
	Centre(r int) float32 // residual in health
	Noise(r int) float32  // of a step
}

// Sharing finds and removes what ranks have in common that do parts of the same work:
// all stages of a replica process the same micro-batches, so a long sequence makes all
// of them slow, and none of them a straggler. Those that hold the same expert get more
// tokens together.
type Sharing struct {
	parts   [][][]int32 // who shares the work → its parts → rows
	role    []int32
	Usable  bool
	noise   float64   // variance of the noise in the other parts' middle to that of a rank
	within  [][]int32 // groups whose members are compared with each other; nil = each rank with its past
	Used    bool      // something was removed in the last step
	Common  []float32 // per work: its level relative to the others, NaN unknown
	columns int
	active  bool      // some role shares
	slopes  []float32 // per role, of the last look
	stages  *Sharing  // of those that hold the same expert: what is taken out before
	experts *Sharing  // of stages: what is taken out after them
	popular []float32 // per work of experts: how much longer than usual its holders lately take
	untold  []bool    // per rank: its work is hardly known, for one of its other parts is slow, or all are in this step

	sums          []sums    // per role: w and dev
	mean, wmean   []float32 // per rank: centres of x and w
	seen, told    []uint8   // how often x and w
	dev, w, whole []float32
	ref           *Reference // of works
	levels        []float32  // of the parts of one
	buf           []float32
}

func newSharing(l *frame.Layout, parts [][][]int32, within [][]int32) *Sharing {
	n, g := len(l.Ranks), len(l.Roles)
	usable := len(parts) > 1 && slices.ContainsFunc(parts, func(p [][]int32) bool { return len(p) > 1 })
	if !usable {
		n = 0
	}

	return &Sharing{
		parts: parts, Usable: usable, within: within, noise: sharedNoise, role: l.Role, Common: make([]float32, len(parts)),
		sums: make([]sums, g), slopes: make([]float32, g),
		mean: make([]float32, n), wmean: make([]float32, n), seen: make([]uint8, n), told: make([]uint8, n), w: make([]float32, n),
		dev: make([]float32, n), whole: make([]float32, len(parts)), untold: make([]bool, n),
		ref: oneRole(len(parts)),
	}
}

// Untold reports whether one of the other parts of r's work is slow, or all were in this step, so that they told little of it.
func (s *Sharing) Untold(r int) bool { return len(s.untold) > 0 && s.untold[r] }

// Shares reports whether the ranks of some role go with the other parts of their work.
func (s *Sharing) Shares() bool { return s.active }

// Mates is the rows of the other parts of r's work, none while its role shares nothing.
func (s *Sharing) Mates(r int) []int32 {
	var out []int32
	if g := s.role[r]; g < 0 || s.slopes[g] == 0 {
		return nil
	}

	for _, parts := range s.parts {
		at := slices.IndexFunc(parts, func(rows []int32) bool { return slices.Contains(rows, int32(r)) })
		for i, rows := range parts {
			if at >= 0 && i != at {
				out = append(out, rows...)
			}
		}
	}

	return out
}

// Remove takes out of the absolute logs what the other parts of the same work show as
// well, where the history says that they do so step by step, and reports whether there
// was anything. It is done before ranks are compared: where members of a role are
// missing, the middle of its peers is of other replicas than that of the next stage.
// level is the usual log of each role, now its middle in this step; who waited for a
// mate in this step teaches nothing. What can't be taken out of a rank for want of the
// other parts is noise of its own, and added to left.
func (s *Sharing) Remove(logs []float32, level []float64, now, worked []float32, waited []bool, left []float32, t known) bool {
	s.Used = false
	clear(s.untold)
	if !s.Usable {
		for q := range s.Common {
			s.Common[q] = robust.NaN
		}

		return false
	}

	if s.columns++; s.columns > threshold.Window && !s.active && s.columns%threshold.SharedProbe != 0 {
		return false
	}

	s.deviate(logs, level, now, worked, waited)
	s.excuse(t)
	s.forgetExperts()
	s.others()
	s.learn(waited, t)
	s.active = false
	for g := range s.slopes {
		s.slopes[g] = float32(s.slope(g))
		s.active = s.active || s.slopes[g] > 0
	}

	if s.columns < sharedColumns {
		return false
	}

	for r, w := range s.w {
		g := s.role[r]
		if g < 0 || s.slopes[g] == 0 {
			continue
		}

		if w != w {
			left[r] = float32(math.Hypot(float64(left[r]), float64(s.slopes[g])*s.differs(int(g))))
			continue
		}

		work := s.slopes[g] * (w - s.quicker(r))
		if most := s.dev[r] + fastest*t.Noise(r); s.within == nil && !t.Degraded(r) && work > most {
			work = most // nobody is faster than its work allows but by chance: the other stages are slow
			s.untold[r] = true
		}

		logs[r] -= work
		s.Used = true
	}

	return s.Used
}

// quicker is how much less than usual the other parts of r's work always take, as far as r itself
// takes that much more than they: newer hardware, not less work. 0 or below.
func (s *Sharing) quicker(r int) float32 {
	g := s.role[r]
	if s.within != nil || s.told[r] == 0 || len(s.parts) < threshold.MedianPeers {
		return 0
	}

	by := s.wmean[r] - min(0, s.mean[r]) + float32(surely*s.differs(int(g))/math.Sqrt(float64(s.told[r])))
	return min(0, by)
}

// deviate sets dev[r] to how far rank r is from what is usual in its role, less what
// all roles have in common in this step. An expert's load lasts too long to tell it from
// what is usual, so its ranks are compared with those of the other experts in their group. Who
// waited tells the work still: its own, without the wait. Whose work its stages did not tell
// does not tell an expert's load.
func (s *Sharing) deviate(logs []float32, level []float64, now, worked []float32, waited []bool) {
	s.buf = s.buf[:0]
	for g, m := range now {
		if m == m {
			s.buf = append(s.buf, m-float32(level[g]))
		}
	}

	common := robust.Median(s.buf)
	for r, x := range logs {
		g := s.role[r]
		switch {
		case g < 0 || x != x || s.stages != nil && s.stages.untold[r]:
			s.dev[r] = robust.NaN
		case s.within != nil:
			s.dev[r] = x - now[g]
		default:
			s.dev[r] = x - float32(level[g]) - common
		}

		if waited != nil && waited[r] {
			s.dev[r] += worked[r]
		}
	}

	for _, rows := range s.within {
		s.buf = s.buf[:0]
		for _, r := range rows {
			if x := s.dev[r]; x == x {
				s.buf = append(s.buf, x)
			}
		}

		m := robust.Median(s.buf)
		for _, r := range rows {
			s.dev[r] -= m
		}
	}
}

// excuse takes out of the work of degraded ranks what they lately were slow by; a suspect
// may only have more work. Where two stages are slow, each by what the other is thought
// to work, neither tells the work; two that hold the same expert are slow by its load. What
// the others then tell of the work is less sure than what tells a slow step from an ordinary one.
func (s *Sharing) excuse(t known) {
	isSlow := func(r int32) bool { return t.Degraded(int(r)) }
	for _, parts := range s.parts {
		slow := 0
		for _, rows := range parts {
			if slices.ContainsFunc(rows, isSlow) {
				slow++
			}
		}

		if slow == 0 {
			continue
		}

		for i, rows := range parts {
			unsure := slow == 1 && !slices.ContainsFunc(rows, isSlow)
			for _, r := range rows {
				switch {
				case !isSlow(r):
					s.untold[r] = unsure
				case slow == 1:
					s.excuseOne(r, t.Lately(int(r)), parts, i)
				case s.within == nil:
					s.dev[r] = robust.NaN
				}
			}
		}
	}
}

// excuseOne takes what rank r of parts[i] lately was slow by out of its work, but in steps in
// which it is well. A slow rank with little to do takes no longer than usual, and nor do those
// of its part that wait for it: then the other parts tell.
func (s *Sharing) excuseOne(r int32, lately float32, parts [][]int32, i int) {
	usual := s.dev[r] < lately/2
	if usual && !(s.dev[r]-s.elsewhere(parts, i) >= lately/2) {
		return
	}

	s.dev[r] -= lately
	for _, p := range parts[i] {
		if usual && s.dev[p] > s.dev[r] {
			s.dev[p] = s.dev[r]
		}
	}
}

// elsewhere is the middle of what the other parts of a work than the given one show, NaN where
// they show nothing.
func (s *Sharing) elsewhere(parts [][]int32, but int) float32 {
	s.buf = s.buf[:0]
	for i, rows := range parts {
		for _, r := range rows {
			if x := s.dev[r]; i != but && x == x {
				s.buf = append(s.buf, x)
			}
		}
	}

	return robust.Median(s.buf)
}

// forgetExperts takes out of dev how much longer the holders of each rank's expert lately took, as
// far as they go together. A popular expert stays so for many steps, and is another one in each
// stage: what the stages of a replica share in one step is the rest.
func (s *Sharing) forgetExperts() {
	if s.experts == nil {
		return
	}

	for k, parts := range s.experts.parts {
		s.buf = s.buf[:0]
		before := s.popular[k]
		for _, rows := range parts {
			for _, r := range rows {
				if x := s.dev[r]; x == x {
					s.buf = append(s.buf, x)
					s.dev[r] -= s.experts.slopes[s.role[r]] * before
				}
			}
		}

		if m := robust.Median(s.buf); m == m {
			s.popular[k] += popularWeight * (m - before)
		}
	}
}

// others sets w[r] to the median over the other parts of r's work, and the common part
// of each work to how far it is from the others. Of two ranks of a part the faster one
// tells the work: slowness only adds.
func (s *Sharing) others() {
	for i := range s.w {
		s.w[i] = robust.NaN
	}

	for q, parts := range s.parts {
		s.levels = s.levels[:0]
		for _, rows := range parts {
			s.buf = s.buf[:0]
			for _, r := range rows {
				if v := s.dev[r]; v == v {
					s.buf = append(s.buf, v)
				}
			}

			s.levels = append(s.levels, robust.LowerMedian(s.buf))
		}

		s.buf = robust.Compact(s.buf[:0], s.levels)
		s.whole[q] = robust.LowerMedian(s.buf) // of two parts one may be slow
		slices.Sort(s.buf)
		for i, rows := range parts {
			w := robust.MedianWithout(s.buf, s.levels[i])
			for _, r := range rows {
				s.w[r] = w
			}
		}
	}

	s.ref.Relative(s.whole, s.Common)
}
