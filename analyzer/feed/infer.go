package feed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// infer gives roles to a layout whose groups are unknown: from who talks to whom
// where communication was recorded, else from times alone.
func (w *world) infer(l *frame.Layout, current []*process) {
	w.byCommunicators(l)
	if l.Stages == 1 && w.mayBePipeline() {
		l.Certain = false
		w.byTimes(l, current)
	}
}

// talkers returns the groups that the processes of the layout's launch talk in, each with the
// ranks that do, and which of them have sends or receives.
func (w *world) talkers(l *frame.Layout) (list []topology.Group, p2p []bool) {
	known := w.communicators(l)
	ranks, pairs := make([][]int, len(known)), make([]bool, len(known))
	for _, p := range w.of[l.Attempt] {
		if p.row < 0 {
			continue
		}

		for _, t := range p.Talks {
			ranks[t.Group-1] = append(ranks[t.Group-1], int(p.Rank))
			pairs[t.Group-1] = pairs[t.Group-1] || t.P2P
		}
	}

	for n, g := range known {
		if len(ranks[n]) == 0 {
			continue
		}

		// Sends and receives between ranks are what a pipeline does; no other dimension needs them.
		if g.Dim == "" && pairs[n] {
			g.Dim = "pp"
		}

		slices.Sort(ranks[n])
		list, p2p = append(list, topology.Group{Name: g.Name, Dim: g.Dim, Ranks: slices.Compact(ranks[n])}), append(p2p, pairs[n])
	}

	return list, p2p
}

// byCommunicators takes ranks that share a communicator for collectives to be in
// one stage, and those that are joined by send and recv to be one pipeline.
func (w *world) byCommunicators(l *frame.Layout) {
	if !w.talks {
		return
	}

	list, p2p := w.talkers(l)
	if len(list) == 0 {
		return
	}

	chains := frame.NewSets(len(l.Ranks))
	pipelined := false
	var collectives [][]int32
	for n, g := range list {
		rows := rowsOf(w.ranks, g.Ranks)
		switch {
		case !p2p[n]:
			collectives = append(collectives, rows)
		case len(rows) > 1:
			pipelined = true
			chains.Join(rows...)
		}
	}

	setGroups(l, list)
	if !pipelined {
		return // data parallel: all alike, as they are
	}

	stages := stagesOfCollectives(collectives, chains, l)
	if stages == nil {
		return
	}

	positions := make([]position, len(l.Ranks))
	for s, rows := range stages {
		for _, r := range rows {
			positions[r].stage = s
		}
	}

	l.Stages = len(stages)
	setRoles(l, positions, nil)
	setReplicas(l, chains)
	setGroups(l, list) // classes need the stages
}

// stagesOfCollectives joins the ranks that are in a collective together and in no pipeline: data, tensor
// and context parallelism all stay inside a stage, so whichever these groups are, what they join is one.
// Stages come ordered by their lowest row, which is the order of every launcher that puts the
// pipeline outermost; nil where they don't have equal sizes or hold two ranks of a pipeline.
func stagesOfCollectives(list [][]int32, chains *frame.Sets, l *frame.Layout) [][]int32 {
	within := frame.NewSets(len(l.Ranks))
	known := map[int32]bool{}
	for _, rows := range list {
		if len(rows) > 1 && inOwnPipelines(rows, chains) {
			within.Join(rows...)
			for _, r := range rows {
				known[r] = true
			}
		}
	}

	byRoot := map[int32][]int32{}
	for _, r := range slices.Sorted(maps.Keys(known)) {
		byRoot[within.Find(r)] = append(byRoot[within.Find(r)], r)
	}

	stages := slices.SortedFunc(maps.Values(byRoot), func(a, b []int32) int { return cmp.Compare(a[0], b[0]) })
	if len(known) != l.Recorded() || slices.ContainsFunc(stages, func(s []int32) bool { return len(s) != len(stages[0]) || !inOwnPipelines(s, chains) }) {
		return nil
	}

	return stages
}

// inOwnPipelines reports whether no two of the rows are in one pipeline.
func inOwnPipelines(rows []int32, chains *frame.Sets) bool {
	roots := map[int32]bool{}
	for _, r := range rows {
		roots[chains.Find(r)] = true
	}

	return len(roots) == len(rows)
}

// mayBePipeline reports whether the job may have a pipeline as far as the rows
// tell: it may when no communication was recorded at all.
func (w *world) mayBePipeline() bool {
	if w.seen[frame.PP] || !w.seen[frame.Comm] && !w.talks {
		return true
	}

	return !w.talks && w.seen[frame.Other] // who talked to whom is not known
}

// gapShare splits ranks into roles where sorted median times leave a gap of this
// share: the spread of healthy devices is below it, the difference between a
// stage and one with a layer more above it.
const gapShare = 0.08

// byTimes splits ranks into roles by gaps between their median forward (else own) times. It
// is a guess: a split counts only when all parts hold a multiple of two or more
// ranks, for a single rank apart is a slow rank, not a stage.
func (w *world) byTimes(l *frame.Layout, current []*process) {
	type timed struct {
		row int32
		med float32
	}
	var all []timed
	for r, p := range current {
		if !l.Present[r] || p == nil {
			continue
		}

		times := p.Forward
		if !w.seen[frame.FP] {
			times = p.Own
		}

		if m := median(times); m == m {
			all = append(all, timed{int32(r), m})
		}
	}

	if len(all) < 4 {
		return
	}

	slices.SortFunc(all, func(a, b timed) int {
		return cmp.Or(cmp.Compare(a.med, b.med), cmp.Compare(a.row, b.row))
	})
	var parts [][]int32
	for i, t := range all {
		if i == 0 || float64(t.med) > float64(all[i-1].med)*(1+gapShare) {
			parts = append(parts, nil)
		}

		parts[len(parts)-1] = append(parts[len(parts)-1], t.row)
	}

	if len(parts) < 2 || len(parts) > 4 {
		return
	}

	// The parts must be whole stages: the largest number that divides all their sizes is what one stage
	// has, if several stages work alike.
	unit := 0
	for _, p := range parts {
		unit = gcd(unit, len(p))
	}

	if unit < 2 || len(all) != l.Recorded() {
		return
	}

	positions := stagesOf(parts, unit, len(l.Ranks))
	l.Stages = len(all) / unit
	setRoles(l, positions, nil)
	setReplicas(l, frame.NewSets(len(l.Ranks)))
	setGroups(l, nil)
	w.note(fmt.Sprintf("no groups are known: roles were guessed from %d clusters of forward times", len(parts)))
}

// stagesOf numbers the parts as stages: where each is a run of neighbouring
// ranks, by its place in the run of all; else by time.
func stagesOf(parts [][]int32, unit, n int) []position {
	positions := make([]position, n)
	runs := true
	for _, p := range parts {
		slices.Sort(p)
		for i := 0; i < len(p); i += unit {
			runs = runs && int(p[i])%unit == 0 && int(p[i+unit-1]-p[i]) == unit-1
		}
	}

	for s, p := range parts {
		for _, r := range p {
			if positions[r].stage = s; runs {
				positions[r].stage = int(r) / unit
			}
		}
	}

	return positions
}

// median is that of the times that were recorded, NaN for none.
func median(times []float32) float32 {
	v := slices.DeleteFunc(slices.Clone(times), func(x float32) bool { return x != x })
	if len(v) == 0 {
		return frame.NaN
	}

	slices.Sort(v)
	return v[len(v)/2]
}

// gcd is the greatest common divisor; of 0 and b it is b.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}

	return a
}
