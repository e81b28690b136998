package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Suspects is what looks wrong at this moment, decided or not: enough to measure
// more, not enough to say anything of a node.
type Suspects struct {
	Rows   []int32       // rows of Layout that are suspect or worse in any signal, ascending
	Layout *frame.Layout // who is who, read only
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

	if rise, since := e.level.Change(level.Step); rise >= math.Log1p(level.Rise) {
		s.Slower, s.Since = math.Expm1(rise), since
	}

	return s
}

// suspected reports whether rank r is suspect or worse in any signal, or saves slowly.
func (e *Engine) suspected(r int) bool {
	return e.saver.Guilty(r) || e.inSome(func(t *sequential.Test) bool { return !t.Healthy(r) || t.Active(r) })
}

// suspicions lists the ranks that are suspect now and may be named as such: what the
// sequential test caught, the window so far confirms by suspectZ, and nothing but
// time is missing to. Who would not be accused then is not suspected now.
func (e *Engine) suspicions(culprits []candidate) []candidate {
	var young []candidate
	for r := range e.n {
		c := candidate{row: r, main: -1}
		for s := range signals {
			t := e.tracks[s]
			effect, z, ok := t.Suspicion(r)
			if !ok {
				continue
			}

			x := e.excess(r, s, nil)
			if s != loading && x < e.cfg.MinEffect/2*e.value(r, s, threshold.Window) {
				continue // nobody could check it
			}

			c.has[s] = true
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.effect, c.z, c.sinceAt = s, x, effect, z, t.SinceAt(r)
				c.since, c.detected = t.FirstSlow(r), t.Detected(r)
			}

			c.suspect = true
		}

		if c.main >= 0 && !slices.ContainsFunc(culprits, func(k candidate) bool { return k.row == r }) {
			young = append(young, c)
		}
	}

	if len(young) == 0 {
		return nil
	}

	named, _ := e.accuse(append(slices.Clone(culprits), young...))
	return slices.DeleteFunc(named, func(c candidate) bool { return !c.suspect })
}

// suspectNodes makes an entry of each node with a suspect rank about which nothing
// more is known.
func (e *Engine) suspectNodes(all nodes, culprits []candidate) {
	young := e.suspicions(culprits)
	if len(young) == 0 {
		return
	}

	p := e.costs.Price(e.blame(young))
	for _, c := range young {
		name := e.nodeOf(c.row)
		if n := all[name]; n != nil && n.State != verdict.Suspect {
			continue
		}

		if slices.ContainsFunc(e.history, func(p verdict.Node) bool { return p.Node == name }) {
			continue // that it was degraded says more
		}

		said := e.describe(&c, append(slices.Clone(culprits), c))
		said.JobImpact, said.JobImpactMax = e.costOf(p, name)
		if n := all[name]; n != nil {
			n.Ranks, n.Evidence = append(n.Ranks, said.Ranks...), append(n.Evidence, said.Evidence...)
			n.SinceStep, n.DetectedStep = min(n.SinceStep, c.since), min(n.DetectedStep, c.detected)
			continue
		}

		n := all.repeat(said)
		n.State = verdict.Suspect
		n.Confidence /= 2 // time has not confirmed it
	}
}
