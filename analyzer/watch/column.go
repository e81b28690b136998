package watch

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

// set stores the values of one rank, as frame.Builder does.
func (c *column) set(k int, s *row.Step) {
	put := func(m frame.Metric, ns int64) {
		if ns < 0 {
			if c.V[m] != nil {
				c.V[m][k] = frame.NaN
			}
			return
		}
		c.put(m, k, float32(float64(ns)/1e9))
	}
	c.Passes = max(c.Passes, int(s.FPCount))
	put(frame.Step, s.StepNs)
	put(frame.FP, s.FPNs)
	put(frame.Backward, s.BackwardNs)
	put(frame.DataLoader, s.DataLoaderNs)
	put(frame.Checkpoint, s.CheckpointNs)
	put(frame.HostFP, s.HostFPNs)
	if s.Tokens > 0 {
		c.put(frame.Tokens, k, float32(s.Tokens))
	}
	if s.Flags&row.FlagSwitched != 0 {
		return // Communication was on for a part of the step only
	}
	put(frame.Comm, s.CommNs)
	put(frame.Exposed, s.ExposedNs)
	put(frame.TP, s.CommTPNs)
	put(frame.PP, s.CommPPNs)
	put(frame.DP, s.CommDPNs)
	put(frame.CP, s.CommCPNs)
	put(frame.EP, s.CommEPNs)
	put(frame.Other, s.CommOtherNs)
	self := s.SelfNs
	if self < 0 && s.ExposedNs >= 0 && s.CommNs >= 0 {
		self = max(0, s.StepNs-s.ExposedNs-max(0, s.DataLoaderNs)-max(0, s.CheckpointNs))
	}
	put(frame.Self, self)
}

func (c *column) put(m frame.Metric, k int, v float32) {
	if c.V[m] == nil {
		c.V[m] = make([]float32, len(c.Owner))
		for i := range c.V[m] {
			c.V[m][i] = frame.NaN
		}
	}
	c.V[m][k] = v
}
