package arrival

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fewShown is how many ranks are shown where none are asked for: they are read side by side.
const fewShown = 4

// ColumnOf returns the column of a step's last run.
func ColumnOf(f *frame.Frame, step int64) (int, error) {
	for i := len(f.Columns) - 1; i >= 0; i-- {
		if f.Columns[i].Step == step {
			return i, nil
		}
	}

	if len(f.Columns) == 0 {
		return 0, fmt.Errorf("show step %d: no step was recorded", step)
	}

	return 0, fmt.Errorf("show step %d: it was not recorded, those from %d to %d were", step, f.Columns[0].Step, f.Columns[len(f.Columns)-1].Step)
}

// Costliest returns the column in which the worst culprit cost most; of a job without one, the last
// column that all of its ranks are in. The frame must have its metrics. -1 is none.
func Costliest(f *frame.Frame, v *verdict.Verdict) int {
	best, most := -1, 0.0
	if n := worst(v); n != nil {
		for i, k := range f.Columns {
			if k.Step < n.SinceStep || n.UntilStep > 0 && k.Step > n.UntilStep {
				continue
			}

			if _, excess := slowest(f, i, n); excess > most {
				best, most = i, excess
			}
		}
	}

	if best >= 0 {
		return best
	}

	ranks := 0
	for i := len(f.Columns) - 1; i >= 0; i-- {
		n := 0
		for r := range f.Ranks {
			if x := f.At(frame.Step, r, i); x == x {
				n++
			}
		}

		if n > ranks {
			best, ranks = i, n
		}
	}

	return best
}

// Choose returns lines for the ranks that tell a column's story: the culprit, those who wait most, and a peer of
// the culprit; without a culprit who waits least and most. A job of few ranks is shown whole.
func Choose(f *frame.Frame, v *verdict.Verdict, column int) (shown []frame.Line) {
	add := func(rank int, part string, most int) {
		if len(shown) < most && !slices.ContainsFunc(shown, func(l frame.Line) bool { return l.Rank == rank }) {
			shown = append(shown, frame.Line{Rank: rank, Part: part})
		}
	}
	n, peer := worst(v), frame.Peer
	if n == nil {
		n, peer = &verdict.Node{}, ""
	} else if rank, _ := slowest(f, column, n); rank >= 0 {
		add(rank, frame.Culprit, fewShown)
	}

	waiting := byWaiting(f, column)
	if len(waiting) == 0 {
		return shown
	}

	if len(shown) == 0 {
		add(waiting[0], frame.LeastWaiting, fewShown)
	}

	for _, rank := range slices.Backward(waiting) {
		if !slices.Contains(n.Ranks, rank) {
			add(rank, frame.Victim, fewShown-1)
		}
	}

	var usual []int // from the middle out
	for k := range waiting {
		usual = append(usual, waiting[len(waiting)/2+(k+1)/2*(1-2*(k%2))])
	}

	l, role := f.Columns[column].Layout, map[int]int32{}
	for r, rank := range l.Ranks {
		role[rank] = l.Role[r]
	}

	for _, rank := range usual {
		if role[rank] == role[shown[0].Rank] && !slices.Contains(n.Ranks, rank) {
			add(rank, peer, fewShown)
		}
	}

	for _, rank := range usual {
		add(rank, "", fewShown)
	}

	return shown
}

// worst is the culprit that costs most, of those that are slow now if there is one: a node or, where
// there is none, a link as if it were one; nil without either.
func worst(v *verdict.Verdict) *verdict.Node {
	var n *verdict.Node
	for i := range v.Nodes {
		x := &v.Nodes[i]
		now, before := x.State != verdict.Recovered, n != nil && n.State != verdict.Recovered
		if n == nil || now && !before || now == before && x.Most() > n.Most() {
			n = x
		}
	}

	// A link has no rank of its own that is slow: those of its group are shown.
	if n == nil && len(v.Links) > 0 {
		l := &v.Links[0]
		return &verdict.Node{Ranks: l.Ranks, Cause: verdict.Communication, SinceStep: l.SinceStep}
	}

	return n
}

// metricOf tells where a cause shows.
func metricOf(f *frame.Frame, cause string) frame.Metric {
	switch {
	case cause == verdict.DataLoader:
		return frame.DataLoader
	case cause == verdict.Checkpoint:
		return frame.Checkpoint
	case cause == verdict.Communication:
		return frame.Exposed
	case f.Has(frame.Self):
		return frame.Self
	}

	return frame.FP
}

// slowest returns the rank of a culprit that is the most behind its peers in a column, and by how much,
// in seconds; -1 where none was measured.
func slowest(f *frame.Frame, column int, c *verdict.Node) (rank int, excess float64) {
	rank, excess = -1, math.Inf(-1)
	l := f.Columns[column].Layout
	m := metricOf(f, c.Cause)
	for i, r := range l.Ranks {
		if !slices.Contains(c.Ranks, r) {
			continue
		}

		if x := float64(f.At(m, i, column)) - peers(f, m, l, i, column, c.Ranks); x > excess {
			rank, excess = r, x
		}
	}

	return rank, excess
}

// peers is the median of a metric over the ranks with a row's role, without those that are named; 0
// where there are none.
func peers(f *frame.Frame, m frame.Metric, l *frame.Layout, of, column int, named []int) float64 {
	var values []float64
	for i, role := range l.Role {
		if role != l.Role[of] || slices.Contains(named, l.Ranks[i]) {
			continue
		}

		if x := float64(f.At(m, i, column)); x == x {
			values = append(values, x)
		}
	}

	return robust.Finite(robust.Median64(values), 0)
}

// byWaiting lists the ranks of a column by their exposed communication, the least first; those whose is
// unknown come in the order of ranks.
func byWaiting(f *frame.Frame, column int) []int {
	var rows []int
	for i := range f.Ranks {
		if x := f.At(frame.Step, i, column); x == x {
			rows = append(rows, i)
		}
	}

	waited := func(row int) float32 {
		if x := f.At(frame.Exposed, row, column); x == x {
			return x
		}

		return 0
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(waited(a), waited(b)) })
	for i, row := range rows {
		rows[i] = f.Ranks[row]
	}

	return rows
}
