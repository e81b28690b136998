package main

import (
	"cmp"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// rules are other tools' ways to find slow nodes, done again on the same rows: find gives
// the names of the nodes that one accuses. Where a rule looks at windows they are 32 steps, and a
// rank is accused when two windows in a row accuse it: the rules have no memory
// of their own, and without it they would accuse more.
var rules = []struct {
	name, what string
	find       func(s *sheet) map[string]bool
}{
	{"3-sigma", "mean step time of a window more than 3 sigma above the mean of all ranks", threeSigma},
	{"NVRx", "forward section: fastest rank's median / own median, or own best window / now, under 0.75", nvrx},
	{">10 %", "self time of a window more than 10 % above the median of all ranks", overMedian},
	{"FD-OL", "step time 30 % above its own first 20 steps 3 times in a row, then the TP group's split or the own FP history; 5 rounds in a row", faultDiag},
}

// window is how many steps the rules with windows look at.
const window = 32

// windows looks at a figure of a column of each rank that has one, window by window. accuse is given
// the figures of all ranks, and says of a rank's whether it is accused; the nodes of ranks that are
// twice in a row are named.
func (s *sheet) windows(of func(*column) []float64, figure func([]float64) float64, accuse func(all []float64) func(rank int, x float64) bool) map[string]bool {
	named := map[string]bool{}
	var last map[int]bool
	for from := 0; from+window <= s.steps; from += window {
		var who []int
		var all []float64
		for r := range s.ranks {
			v := of(&s.ranks[r])
			if x := figure(v[min(from, len(v)):min(from+window, len(v))]); x > 0 {
				who, all = append(who, r), append(all, x)
			}
		}

		now := map[int]bool{}
		if len(all) > 0 {
			accused := accuse(all)
			for k, r := range who {
				now[r] = accused(r, all[k])
				if now[r] && last[r] {
					named[s.ranks[r].node] = true
				}
			}
		}

		last = now
	}

	return named
}

// threeSigma looks at whole steps, which in a synchronous job are about as long on all ranks.
func threeSigma(s *sheet) map[string]bool {
	mean := func(v []float64) float64 { return stat.Mean(v, nil) }
	return s.windows(func(c *column) []float64 { return c.step }, mean, func(all []float64) func(int, float64) bool {
		m, sd := stat.PopMeanStdDev(all, nil)
		return func(_ int, x float64) bool { return x > m+3*sd }
	})
}

// nvrx is NVIDIA Resiliency Extension's straggler report of one section, the forward pass, with
// the thresholds that identify_stragglers comes with: relative to the fastest rank, and to the
// rank's own best.
func nvrx(s *sheet) map[string]bool {
	best := map[int]float64{}
	return s.windows(func(c *column) []float64 { return c.fp }, median, func(all []float64) func(int, float64) bool {
		fastest := slices.Min(all)
		return func(rank int, x float64) bool {
			best[rank] = min(x, cmp.Or(best[rank], x))
			return fastest/x < 0.75 || best[rank]/x < 0.75
		}
	})
}

// overMedian is the rule that a person would write first.
func overMedian(s *sheet) map[string]bool {
	return s.windows(func(c *column) []float64 { return c.self }, median, func(all []float64) func(int, float64) bool {
		mid := median(all)
		return func(_ int, x float64) bool { return x > 1.1*mid }
	})
}

// FaultDiag-online's documented defaults.
const (
	fdNormal  = 20  // first steps, taken for normal
	fdConsec  = 3   // abnormal ones in a row
	fdDegrade = 0.3 // above the mean of the normal ones: abnormal
	fdCluster = 1.3 // between the means of the two parts of a TP group
	fdConfirm = 5   // rounds in a row that name a node
	fdEvery   = 30  // s, between two rounds
)

// history is its time dimension on one rank's values: which are abnormal. The
// normal ones keep moving the mean; of the first ones the extremes are left out.
func history(v []float64) []bool {
	out := make([]bool, len(v))
	if len(v) < fdNormal+fdConsec {
		return out
	}

	first := slices.Clone(v[:fdNormal])
	slices.Sort(first)
	first = first[fdConsec : fdNormal-fdConsec]
	sum, n := floats.Sum(first), float64(len(first))
	for k := fdNormal; k < len(v); k++ {
		if v[k] > sum/n*(1+fdDegrade) {
			out[k] = true
			continue
		}

		sum, n = sum+v[k], n+1
	}

	return out
}

// consecutive reports whether the last values before an index are all abnormal.
func consecutive(abnormal []bool, at int) bool {
	if at < fdConsec || at > len(abnormal) {
		return false
	}

	return !slices.Contains(abnormal[at-fdConsec:at], false)
}

// faultDiag plays its rounds: as many steps apart as 30 s take, each with all that was recorded
// until then.
func faultDiag(s *sheet) map[string]bool {
	slow := make([][]bool, len(s.ranks))
	own := make([][]bool, len(s.ranks))
	load := make([][]bool, len(s.ranks))
	for r := range s.ranks {
		c := &s.ranks[r]
		slow[r], own[r], load[r] = history(c.step), history(c.fp), history(c.load)
	}

	every := 1
	for r := range s.ranks {
		steps := s.ranks[r].step
		if m := stat.Mean(steps[:min(len(steps), 50)], nil) / 1e9; m > 0 {
			every = max(1, int(fdEvery/m))
			break
		}
	}

	named, inRow := map[string]bool{}, map[string]int{}
	for at := fdNormal + fdConsec; at <= s.steps; at += every {
		now := s.localise(at, slow, own, load)
		for n := range inRow {
			if !now[n] {
				inRow[n] = 0
			}
		}

		for n := range now {
			if inRow[n]++; inRow[n] >= fdConfirm {
				named[n] = true
			}
		}
	}

	return named
}

// localise is one round: the nodes that the gate and one of its dimensions name.
func (s *sheet) localise(at int, slow, own, load [][]bool) map[string]bool {
	now, gated := map[string]bool{}, map[string]bool{}
	for r := range s.ranks {
		if consecutive(slow[r], at) {
			gated[s.ranks[r].node] = true
		}
	}

	for r := range s.ranks {
		c := &s.ranks[r]
		if !gated[c.node] {
			continue
		}

		switch {
		case len(c.tp) < 2 && consecutive(own[r], at), consecutive(load[r], at):
			now[c.node] = true
		case len(c.tp) > 1 && c.tp[0] == r:
			if s.split(c.tp, at) {
				now[c.node] = true
			}
		}
	}

	return now
}

// split is its space dimension: the part of a TP group that waits least, alike in
// the last steps.
func (s *sheet) split(group []int, at int) bool {
	var last []int
	for k := at - fdConsec; k < at; k++ {
		type value struct {
			rank int
			v    float64
		}
		var vs []value
		for _, r := range group {
			if r >= len(s.ranks) || k >= len(s.ranks[r].tpNs) {
				return false
			}

			vs = append(vs, value{r, s.ranks[r].tpNs[k]})
		}

		slices.SortFunc(vs, func(a, b value) int { return cmp.Compare(a.v, b.v) })
		cut, gap := 0, 0.0
		for i := 1; i < len(vs); i++ {
			if d := vs[i].v - vs[i-1].v; d > gap {
				cut, gap = i, d
			}
		}

		lower, upper := 0.0, 0.0
		var who []int
		for i, x := range vs {
			if i < cut {
				lower += x.v / float64(cut)
				who = append(who, x.rank)
			} else {
				upper += x.v / float64(len(vs)-cut)
			}
		}

		if cut == 0 || gap < (vs[len(vs)-1].v-vs[0].v)/2 || lower <= 0 || upper/lower <= fdCluster {
			return false
		}

		slices.Sort(who)
		if last != nil && !slices.Equal(last, who) {
			return false
		}

		last = who
	}

	return len(last) > 0
}

// median is the upper one of two, 0 for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}

	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
