package feed

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column is one step of the job that is being put together.
type column struct {
	Place    place
	StartNs  int64 // of the lowest row that has one
	StartRow int
	Newest   int64    // latest end in it: rows come when their step is over
	Passes   int      // most forward passes of a row in it
	Owner    []uint16 // of each row: which process of its rank filled it, + 1; 0 = nothing yet
	V        [frame.MetricCount][]float32
}

// place is where a step stands among those of the job. Those of one process are told apart by
// step and repeat.
type place struct {
	Attempt int
	Run     int // how often the loop of the attempt went back to an earlier step
	Step    int64
	Repeat  int32
}

// Compare is the order in which the job ran: a step that comes back after a restart of the loop is
// behind what ran before it, though its number is lower.
func (p place) Compare(q place) int {
	return cmp.Or(cmp.Compare(p.Attempt, q.Attempt), cmp.Compare(p.Run, q.Run), cmp.Compare(p.Step, q.Step), cmp.Compare(p.Repeat, q.Repeat))
}

// Same reports whether both are one column: in which run it stands is how it is found.
func (p place) Same(q place) bool {
	return p.Attempt == q.Attempt && p.Step == q.Step && p.Repeat == q.Repeat
}

// step is one process's step, as a column takes it.
type step struct {
	Step           int64
	Repeat         int32
	StartNs, EndNs int64
	Passes         int
	V              [frame.MetricCount]float32
}

// of takes from a row what a column needs. In memory a row is twice as long.
func (s *step) of(r *row.Step) {
	s.Step, s.Repeat, s.StartNs, s.EndNs, s.Passes = int64(r.Step), int32(r.Repeat), r.StartNs, r.StartNs+r.StepNs, int(r.FPCount)
	frame.Cells(r, &s.V)
}

// set stores the cells of one rank.
func (c *column) set(k int, s *step) {
	c.Passes = max(c.Passes, s.Passes)
	for m, x := range &s.V {
		if c.V[m] == nil {
			// Memory for a metric comes with its first value: most jobs record half of them.
			if x != x {
				continue
			}

			c.V[m] = slices.Repeat([]float32{frame.NaN}, len(c.Owner))
		}

		c.V[m][k] = x
	}
}

// shown is the column as others see it, without layout and values.
func (c *column) shown() frame.Column {
	return frame.Column{Attempt: c.Place.Attempt, Step: c.Place.Step, Repeat: int(c.Place.Repeat), StartNs: c.StartNs, Passes: c.Passes}
}

// column finds or makes a column, nil when it has gone already.
func (f *Feed) column(at place) *column {
	k, ok := f.find(at)
	if !ok {
		if last := f.last(); last != nil && at.Compare(last.Place) <= 0 {
			return nil
		}

		f.Pending = slices.Insert(f.Pending, k, &column{Place: at, StartRow: -1, Owner: make([]uint16, len(f.Rows))})
	}

	return f.Pending[k]
}

// find returns where the column is in Pending, or belongs. A column that is there
// under an earlier run stays where it is.
func (f *Feed) find(at place) (int, bool) {
	k, ok := slices.BinarySearchFunc(f.Pending, at, func(c *column, at place) int { return c.Place.Compare(at) })
	if ok {
		return k, true
	}

	for i, c := range f.Pending {
		if c.Place.Run != at.Run && c.Place.Same(at) {
			return i, true
		}
	}

	return k, false
}

// remap moves pending columns to the rows of a job with other ranks.
func (f *Feed) remap(old []int) {
	to := make([]int, len(old))
	for i, rank := range old {
		to[i] = rowOf(f.world.ranks, rank)
	}

	n := len(f.Rows)
	for _, c := range f.Pending {
		c.Owner = moved(c.Owner, to, n, 0)
		for m, v := range c.V {
			if v != nil {
				c.V[m] = moved(v, to, n, frame.NaN)
			}
		}

		if c.StartRow >= 0 && c.StartRow < len(to) {
			c.StartRow = to[c.StartRow]
		}
	}

	for _, c := range f.Recent {
		c.Owner = moved(c.Owner, to, n, 0)
	}

	f.Missed, f.Newest = moved(f.Missed, to, n, 0), moved(f.Newest, to, n, 0)
}

// moved returns n values, each of v at its new place, and empty where there is none.
func moved[T any](v []T, to []int, n int, empty T) []T {
	out := slices.Repeat([]T{empty}, n)
	for i, x := range v {
		if i < len(to) && to[i] >= 0 {
			out[to[i]] = x
		}
	}

	return out
}
