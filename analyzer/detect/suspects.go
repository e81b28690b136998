package detect

import (
	"math"

	"laggard/analyzer/frame"
)

// Suspects is what looks wrong at this moment, decided or not: enough to measure
// more, not enough to say anything of a node.
type Suspects struct {
	Rows   []int32       // rows of Layout that are suspect or worse in any signal, ascending
	Layout *frame.Layout // who is who, read only; nil before the first step
	// Slower is by how much (0.2 = 20 %) the whole job's steps are longer than
	// before, while no rank is suspect; Since is the step it began with.
	Slower float64
	Since  int64
}

// Suspects returns what looks wrong after the last step observed. It changes
// nothing.
func (e *Engine) Suspects() Suspects {
	s := Suspects{Layout: e.layout}
	if e.layout == nil {
		return s
	}
	for r := range e.n {
		if e.suspected(r) {
			s.Rows = append(s.Rows, int32(r))
		}
	}
	if len(s.Rows) > 0 {
		return s
	}
	if rise, since := e.level.change(blockStep); rise >= ln1p(jobRise) {
		s.Slower, s.Since = math.Expm1(rise), since
	}
	return s
}

func (e *Engine) suspected(r int) bool {
	for _, t := range e.tracks {
		if t.phase[r] != ok || t.active(r) {
			return true
		}
	}
	return e.saver.guilty(r)
}
