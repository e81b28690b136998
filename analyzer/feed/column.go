package feed

import (
	"cmp"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column is one step of the job that is being put together.
type column struct {
	Attempt, Run int
	Step         int64
	Repeat       int32
	StartNs      int64 // of the lowest row that has one
	StartRow     int
	Newest       int64    // latest end in it: rows come when their step is over
	Rows         int      // rows of steps in it
	Passes       int      // most forward passes of a row in it
	Owner        []uint16 // of each row: which process of its rank filled it, + 1; 0 = nothing yet
	V            [frame.MetricCount][]float32
}

type columnID struct {
	Attempt int
	Step    int64
	Repeat  int32
}

func (c *column) id() columnID { return columnID{c.Attempt, c.Step, c.Repeat} }

// before reports whether the column comes before that place in its attempt.
func (c *column) before(run int, step int64, repeat int32) bool {
	return cmp.Or(cmp.Compare(c.Run, run), cmp.Compare(c.Step, step), cmp.Compare(c.Repeat, repeat)) < 0
}

func order(a, b *column) int {
	return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Repeat, b.Repeat))
}

// set stores the cells of one rank.
func (c *column) set(k int, s *row.Step) {
	c.Passes = max(c.Passes, int(s.FPCount))
	var v [frame.MetricCount]float32
	frame.Cells(s, &v)
	for m, x := range v {
		if c.V[m] == nil {
			if x != x {
				continue
			}
			c.V[m] = make([]float32, len(c.Owner))
			for i := range c.V[m] {
				c.V[m][i] = frame.NaN
			}
		}
		c.V[m][k] = x
	}
}
