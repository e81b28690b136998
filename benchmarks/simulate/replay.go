package simulate

import "math/rand/v2"

// Trace is the compute times of a recorded job: what its ranks did, without
// whom they waited for.
type Trace struct {
	Name  string
	Shape Shape
	// Seconds is the median step time as recorded.
	Seconds float64
	Steps   []TraceStep
}

// TraceStep is one recorded step: seconds per rank and micro-batch.
type TraceStep struct {
	Forward, Backward [][]float64
}

// shape gives the job the trace's layout.
func (t *Trace) shape(c *Config) {
	c.Shape, c.Model.Seconds = t.Shape, t.Seconds
	_ = c.Validate()
}

// draw picks a recorded step.
func (t *Trace) draw(chance *rand.Rand) int { return chance.IntN(len(t.Steps)) }

// pass is a pass's own time as recorded, s.
func (t *Trace) pass(step, rank int, backward bool, micro int) float64 {
	s := &t.Steps[step]
	if backward {
		return s.Backward[rank][micro]
	}
	return s.Forward[rank][micro]
}
