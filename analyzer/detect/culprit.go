package detect

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// candidate is a rank that is slow now, before anybody is accused.
type candidate struct {
	row             int
	has             [signals + 1]bool // signals that are slow, saving included
	main            signal
	suspect         bool // no window has confirmed it yet
	since, detected int64
	sinceAt         int
	effect, z       float64
	excess          float64 // seconds a step more than peers, of the main signal
	few             bool
	sure            bool // a carried suspicion met it again
}

// onlyOwn reports whether nothing but self time speaks against the rank: it may
// be waiting where no range was recorded.
func (c *candidate) onlyOwn() bool {
	return c.has[own] && !c.has[compute] && !c.has[loading] && !c.has[saving]
}

// candidates lists the ranks that are slow now in any signal.
func (e *Engine) candidates() []candidate {
	var out []candidate
	for r := range e.n {
		c := candidate{row: r, main: -1}
		known := false
		for s := range signals {
			t := e.tracks[s]
			if !t.Active(r) {
				continue
			}

			c.has[s] = true
			x := e.excess(r, s, nil)
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.few = s, x, t.Few(r)
				c.effect, c.z = t.Last(r)
			}

			// Self time alone may have been up before, as a wait; then what measured
			// work says counts.
			if !known || t.Detected(r) < c.detected && (s != own || e.sameFault(r)) || s == loading && c.onlyOwn() {
				c.since, c.detected, c.sinceAt = t.FirstSlow(r), t.Detected(r), t.SinceAt(r)
			}

			known = true
		}

		if c.has[own] && !c.has[compute] {
			c.has[compute] = e.corroborated(r) || e.tracks[compute].Corroborates(r, e.tracks[own].SinceAt(r), computeShare*c.effect)
		}

		// For ranks that it works with it may wait in its forward passes as well, and hardly does.
		if c.has[own] && c.has[compute] && e.unknownMates() && e.tracks[compute].Standing(r) < hardlyShare*e.tracks[own].Standing(r) {
			c.has[compute] = false
		}

		if e.saver.Guilty(r) {
			c.has[saving] = true
			x := e.saver.Slow(r)
			if c.main < 0 || x.Step > c.excess {
				c.main, c.excess, c.effect, c.z = saving, x.Step, x.Effect, x.Z
			}

			if !known || x.Detected < c.detected {
				c.since, c.detected = x.Since, x.Detected
			}
		}

		if c.main >= 0 {
			out = append(out, c)
		}
	}

	return out
}

// corroborated reports whether a rank was accused of both in this episode of self time: what
// healthy ranks may be from their past grows with time, and would hide later what was seen.
func (e *Engine) corroborated(r int) bool {
	return e.accused(compute, r) && e.accused(own, r)
}

// accused reports whether a rank was accused in this episode of a signal.
func (e *Engine) accused(s signal, r int) bool {
	_, known := e.cases[s][r]
	return known
}

// sameFault reports whether self time, where forward time is slow as well, tells of
// the same fault: it rose within a window of it, or convicted the rank by itself.
func (e *Engine) sameFault(r int) bool {
	return e.accused(own, r) || e.tracks[own].SinceAt(r) > e.tracks[compute].SinceAt(r)-threshold.Window
}

// excess is how many seconds a step more than its peers rank r spends in the
// signal now; skip leaves out other culprits.
func (e *Engine) excess(r int, s signal, skip func(int) bool) float64 {
	k := e.tracks[s].Recent(r)
	mine, theirs := e.value(r, s, k), e.peers(r, s, k, skip)
	if x := mine - theirs; x == x {
		return x
	}

	effect, _ := e.tracks[s].Last(r)
	return mine * (1 - math.Exp(-effect))
}

// ownExcess is how many seconds a step more own time than its peers row r has over the last k steps.
func (e *Engine) ownExcess(r, k int) float64 { return e.value(r, own, k) - e.peers(r, own, k, nil) }

// value is the median of the signal's time of a rank over the last k steps, seconds:
// of compute and own without what work explains.
func (e *Engine) value(r int, s signal, k int) float64 {
	if s == loading {
		return e.recent.Median(frame.DataLoader, r, k)
	}

	return e.recent.Work(s, r, k)
}

// peers is the same over the other ranks of the role.
func (e *Engine) peers(r int, s signal, k int, skip func(int) bool) float64 {
	g := e.layout.Role[r]
	if g < 0 {
		return math.NaN()
	}

	var v []float64
	for _, p := range history.Sample(e.layout.Roles[g].Rows) {
		if int(p) == r || skip != nil && skip(int(p)) {
			continue
		}

		if x := e.value(int(p), s, k); x == x {
			v = append(v, x)
		}
	}

	if len(v) > 0 && len(v) < threshold.MedianPeers-1 {
		return slices.Min(v)
	}

	return robust.Median64(v)
}

// accuse removes who must not be named from the candidates: victims, common
// causes, and those of whom the culprit may be missing from the record. Self time alone
// counts where nobody on the node is named for measured work.
func (e *Engine) accuse(all []candidate) (culprits []candidate, common common) {
	left := all[:0:0]
	var mates []candidate
	measured := map[int32]bool{} // nodes with measured work against them
	for i := range all {
		c := &all[i]
		if c.onlyOwn() || e.invisible(c) || (e.tensorVictim(c) || e.waitsInside(c, all)) && !e.leadsToo(c, all) || e.maybeWork(c) || e.maybeStage(c) || e.waitsForLink(c) || e.beganWithLink(c) || e.beganWithReplica(c) {
			continue
		}

		if e.maybeMate(c, all) {
			mates = append(mates, *c)
			continue
		}

		measured[e.layout.Node[c.row]] = true
		left = append(left, *c)
	}

	for i := range all {
		c := &all[i]
		if c.onlyOwn() && !measured[e.layout.Node[c.row]] && e.convincing(c, all) && !e.maybeStage(c) && !e.beganWithReplica(c) {
			left = append(left, *c)
		}
	}

	slices.SortFunc(left, func(a, b candidate) int { return cmp.Compare(a.row, b.row) })
	culprits, common = e.withoutCommon(left)
	common.mates = mates
	return culprits, common
}

// invisible reports whether nobody could check that a rank takes longer, in any signal that is slow, as far as noise
// lets it be told: it was slow, or what it takes longer is work.
func (e *Engine) invisible(c *candidate) bool {
	if c.has[loading] || c.has[saving] {
		return false
	}

	for _, s := range [...]signal{compute, own} {
		x := e.excess(c.row, s, nil)
		most := x + e.medianError(c.row, s, threshold.Window)
		if e.tracks[s].ByLaneAlone(c.row) {
			most = min(most, x/shownShare) // of so many steps a few may be what is long
		}

		if c.has[s] && !(most < sequential.LongShare*e.cfg.MinEffect*e.peers(c.row, s, threshold.Window, nil)) {
			return false
		}
	}

	return true
}

// maybeWork reports whether what a rank computes longer may be work: a slow stage of its replica is all that tells how
// much it has, and its own time is no longer than its peers'.
func (e *Engine) maybeWork(c *candidate) bool {
	return c.has[compute] && !c.has[own] && !c.has[loading] && !c.has[saving] && e.live(frame.Self) && e.tracks[own].Healthy(c.row) && e.sharing[compute].Untold(c.row)
}

// leadsToo reports whether a rank that waits for a slower member of its groups is
// slow itself: its self time, which holds no waits, convicts it alone.
func (e *Engine) leadsToo(c *candidate, all []candidate) bool {
	t := e.tracks[own]
	if !c.has[own] {
		return false
	}

	d := *c
	d.excess, d.sinceAt = e.excess(c.row, own, nil), t.SinceAt(c.row)
	d.effect, d.z = t.Last(c.row)
	return e.convincing(&d, all)
}

func abs(x int) int { return max(x, -x) }
