package saves

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
)

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
			if run > 0 || s.alwaysLast(r) {
				s.well[r] = robust.NaN // nor is a slow one any measure of the others
			}
		}

		if s.among > 1 && s.sigma > 0 && !s.sure() && !s.onTwoNodes(s.well) {
			continue // the savers of one node don't tell how nodes differ
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
				if x := lns[r]; x == x && s.run[r] == 0 && !s.alwaysLast(int(r)) && len(s.buf) < fewSavers {
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

// onTwoNodes reports whether the savers that v knows are on several nodes.
func (s *Watch) onTwoNodes(v []float32) bool {
	first := int32(-1)
	for r, x := range v {
		switch n := s.l.Node[r]; {
		case x != x:
		case first < 0:
			first = n
		case n != first:
			return true
		}
	}

	return false
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

// score is how slow the save of rank r is: the log ratio to the peers or to its own past, and what
// makes a slow save.
func (s *Watch) score(r int, mid float32) (x, least float32) {
	if x = s.rel[r]; !s.lonely(r) {
		return x, max(saveRise, float32(saveSigmas*max(s.sigma, saveNoise)))
	}

	return s.apart(r, mid)
}

// lonely reports whether nobody tells how long the saves of rank r should take: no other rank of its role saves, or all of them are
// on its node, which may be what is slow, while its own past is known.
func (s *Watch) lonely(r int) bool {
	return s.rel[r] != s.rel[r] || s.home[r] && int(s.pastN[r]) >= saves
}

// together is the z of all saves of rank r since its test left zero.
func (s *Watch) together(r int) float32 {
	k := float32(s.run[r])
	if k == 0 {
		return 0
	}

	noise := float32(max(s.sigma, saveNoise))
	if s.lonely(r) { // its own past is known so well
		n := float32(max(1, min(int(s.pastN[r]), keptSaves)))
		noise = float32(max(s.alone(), aloneNoise)) * robust.Sqrt(1+robust.MedianLoss*robust.MedianLoss*k/n)
	}

	return s.rise[r] * robust.Sqrt(k) / noise
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

// followLeader follows which node takes far longer to save than any other, where one does.
func (s *Watch) followLeader() {
	of := make([][]float32, len(s.l.Nodes))
	for r, y := range s.lns {
		if node := s.l.Node[r]; y == y && node >= 0 {
			of[node] = append(of[node], y)
		}
	}

	leader, top, next := int32(-1), float32(math.Inf(-1)), float32(math.Inf(-1))
	s.among = 0
	for node, saves := range of {
		x := robust.Median(saves)
		if x != x {
			continue
		}

		s.among++
		if x > top {
			leader, top, next = int32(node), x, top
		} else {
			next = max(next, x)
		}
	}

	switch {
	case s.among < 2 || top-next < acrossRise:
	case leader == s.leader:
		s.leads++
	default:
		s.leader, s.leads = leader, 1
	}
}

// alwaysLast reports whether rank r is on the node that alone takes far longer than the others, in each save in which one does: by chance it is
// another one in turn. It is no measure of the others, though it is half of them and saves by turns as fast as they do.
func (s *Watch) alwaysLast(r int) bool { return s.l.Node[r] == s.leader && s.sure() }

// sure reports whether it is no chance that the same node led so often in a row.
func (s *Watch) sure() bool {
	return s.leads > 0 && float64(s.leads-1)*math.Log(float64(s.among)) >= -math.Log(saveOdds)
}
