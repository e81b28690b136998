package main

import (
	"cmp"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// rules are other tools' ways to find slow nodes, done again on the same steps: find gives
// the names of the nodes that one accuses. Where a rule looks at windows they are 32 steps, and a
// rank is accused when two windows in a row accuse it: the rules have no memory
// of their own, and without it they would accuse more.
var rules = []struct {
	name, what string
	find       func(f *frame.Frame) map[string]bool
}{
	{"3-sigma", "mean step time of a window more than 3 sigma above the mean of all ranks", threeSigma},
	{"NVRx", "forward section: fastest rank's median / own median, or own best window / now, under 0.75", nvrx},
	{">10 %", "self time of a window more than 10 % above the median of all ranks", overMedian},
	{"FD-OL", "step time 30 % above its own first 20 steps 3 times in a row, then the TP group's split or the own FP history; 5 rounds in a row", faultDiag},
}

// series are the values of a metric by row, s, in the order the steps came: one that is missing is
// simply not there. steps is the largest number of them.
func series(f *frame.Frame, m frame.Metric) (values [][]float64, steps int) {
	values = make([][]float64, len(f.Ranks))
	for r := range values {
		for i := range f.Columns {
			if x := f.At(m, r, i); x == x {
				values[r] = append(values[r], float64(x))
			}
		}

		steps = max(steps, len(values[r]))
	}

	return values, steps
}

// nodesOf names the nodes that the rows ran on last.
func nodesOf(f *frame.Frame) []string {
	nodes := make([]string, len(f.Ranks))
	for _, l := range f.Layouts {
		for r := range nodes {
			if l.Present[r] {
				nodes[r] = l.NodeOf(r)
			}
		}
	}

	return nodes
}

// window is how many steps the rules with windows look at.
const window = 32

// windows looks at a figure of a metric of each row that has one, window by window. accuse is given
// the figures of all rows, and says of a row's whether it is accused; the nodes of rows that are
// twice in a row are named.
func windows(f *frame.Frame, m frame.Metric, figure func([]float64) float64, accuse func(all []float64) func(row int, x float64) bool) map[string]bool {
	named, nodes := map[string]bool{}, nodesOf(f)
	values, steps := series(f, m)
	var last map[int]bool
	for from := 0; from+window <= steps; from += window {
		var who []int
		var all []float64
		for r, v := range values {
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
					named[nodes[r]] = true
				}
			}
		}

		last = now
	}

	return named
}

// threeSigma looks at whole steps, which in a synchronous job are about as long on all ranks.
func threeSigma(f *frame.Frame) map[string]bool {
	mean := func(v []float64) float64 { return stat.Mean(v, nil) }
	return windows(f, frame.Step, mean, func(all []float64) func(int, float64) bool {
		m, sd := stat.PopMeanStdDev(all, nil)
		return func(_ int, x float64) bool { return x > m+3*sd }
	})
}

// nvrx is NVIDIA Resiliency Extension's straggler report of one section, the forward pass, with
// the thresholds that identify_stragglers comes with: relative to the fastest rank, and to the
// rank's own best.
func nvrx(f *frame.Frame) map[string]bool {
	best := map[int]float64{}
	return windows(f, frame.FP, median, func(all []float64) func(int, float64) bool {
		fastest := slices.Min(all)
		return func(row int, x float64) bool {
			best[row] = min(x, cmp.Or(best[row], x))
			return fastest/x < 0.75 || best[row]/x < 0.75
		}
	})
}

// overMedian is the rule that a person would write first.
func overMedian(f *frame.Frame) map[string]bool {
	return windows(f, frame.Self, median, func(all []float64) func(int, float64) bool {
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

// online is a job as it looks at it, by row.
type online struct {
	nodes           []string
	groups          [][]int32   // rows of its TP group; nil = none
	tp              [][]float64 // s in that group's collectives
	slow, own, load [][]bool    // which steps, forward passes and loads are abnormal
}

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
func faultDiag(f *frame.Frame) map[string]bool {
	abnormal := func(m frame.Metric) [][]bool {
		var out [][]bool
		values, _ := series(f, m)
		for _, v := range values {
			out = append(out, history(v))
		}

		return out
	}
	o := &online{
		nodes: nodesOf(f), groups: make([][]int32, len(f.Ranks)),
		slow: abnormal(frame.Step), own: abnormal(frame.FP), load: abnormal(frame.DataLoader),
	}
	o.tp, _ = series(f, frame.TP)
	for _, l := range f.Layouts {
		for i := range l.Groups {
			if g := &l.Groups[i]; g.Dim == "tp" {
				for _, r := range g.Rows {
					o.groups[r] = g.Rows
				}
			}
		}
	}

	every := 1
	lengths, steps := series(f, frame.Step)
	for _, v := range lengths {
		if m := stat.Mean(v[:min(len(v), 50)], nil); m > 0 {
			every = max(1, int(fdEvery/m))
			break
		}
	}

	named, inRow := map[string]bool{}, map[string]int{}
	for at := fdNormal + fdConsec; at <= steps; at += every {
		now := o.localise(at)
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
func (o *online) localise(at int) map[string]bool {
	now, gated := map[string]bool{}, map[string]bool{}
	for r, node := range o.nodes {
		if consecutive(o.slow[r], at) {
			gated[node] = true
		}
	}

	for r, node := range o.nodes {
		group := o.groups[r]
		alone, first := len(group) < 2, len(group) > 1 && int(group[0]) == r
		if gated[node] && (alone && consecutive(o.own[r], at) || consecutive(o.load[r], at) || first && o.split(group, at)) {
			now[node] = true
		}
	}

	return now
}

// split is its space dimension: the part of a TP group that waits least, alike in
// the last steps.
func (o *online) split(group []int32, at int) bool {
	var last []int32
	for k := at - fdConsec; k < at; k++ {
		if slices.ContainsFunc(group, func(r int32) bool { return k >= len(o.tp[r]) }) {
			return false
		}

		rows := slices.SortedFunc(slices.Values(group), func(a, b int32) int { return cmp.Compare(o.tp[a][k], o.tp[b][k]) })
		waits := make([]float64, len(rows))
		cut, gap := 0, 0.0
		for i, r := range rows {
			waits[i] = o.tp[r][k]
			if i > 0 && waits[i]-waits[i-1] > gap {
				cut, gap = i, waits[i]-waits[i-1]
			}
		}

		if cut == 0 || gap < (waits[len(waits)-1]-waits[0])/2 {
			return false
		}

		lower, upper := stat.Mean(waits[:cut], nil), stat.Mean(waits[cut:], nil)
		if lower <= 0 || upper/lower <= fdCluster {
			return false
		}

		who := rows[:cut]
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
