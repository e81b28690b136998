package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// feature fills e.v[s] with the residuals of one signal. It reports whether anybody recorded that in this step.
func (e *Engine) feature(s signal, c *frame.Column, t float64) bool {
	v := [signals][]float32{e.work, c.V[frame.Self], c.V[frame.DataLoader]}[s]
	if v == nil || s == loading && !(t > 0) {
		return false
	}

	if s != loading {
		e.compare(s, v, c)
		return true
	}

	e.ref[loading].Relative(v, e.v[loading])
	for r := range e.v[loading] {
		e.v[loading][r] /= float32(t)
	}

	return true
}

// countJudged counts the steps in which a rank's work was measured.
func (e *Engine) countJudged(c *frame.Column) {
	self := c.V[frame.Self]
	for r := range e.judged {
		a := e.work != nil && e.work[r] == e.work[r]
		b := self != nil && self[r] == self[r]
		if (a || b) && e.judged[r] < math.MaxUint16 {
			e.judged[r]++
		}
	}
}

// raw is the measured compute of each rank. Without Communication a backward pass says
// nothing of a rank: it holds the waits for the others.
func (e *Engine) raw(c *frame.Column) []float32 {
	fp, bp := c.V[frame.FP], c.V[frame.Backward]
	if fp == nil || bp == nil || c.V[frame.Self] == nil {
		return fp
	}

	return e.backward.Compute(fp, bp)
}

// compare makes log residuals: against peers of the role, without what tokens
// explain, without what the replica shares and those that hold the same expert.
func (e *Engine) compare(s signal, v []float32, c *frame.Column) {
	logs := e.v[s]
	robust.Logs(v, logs)
	e.logs[s] = append(e.logs[s][:0], logs...)
	whole := e.logs[s]
	e.ref[s].Relative(whole, logs)
	e.level.Logs(int(s), whole, e.ref[s].Middle, e.residents, s == own)
	e.level.Spread(int(s), logs, e.analysed)
	if c.V[frame.Tokens] != nil && e.tokens.Remove(int(s), whole) {
		e.ref[s].Relative(whole, logs)
	}

	var waited []bool
	waits := false
	if s == compute {
		waits = e.inner.Find(c, v, logs, e.tracks[s].Warming(), float32(e.cfg.MinEffect))
		if waited = e.inner.Waited; waits {
			e.withoutWaits(s, whole, waited, logs)
		}
	}

	if c.V[frame.Tokens] != nil {
		e.tokens.Learn(int(s), logs, waited, e.tracks[s])
	}

	clear(e.tracks[s].Left)
	again := false
	for _, x := range [2]*residual.Sharing{e.sharing[s], e.experts[s]} {
		if again && x.Usable {
			e.withoutWaits(s, whole, waited, logs)
		}

		again = x.Remove(whole, e.level.Usual[s], e.ref[s].Middle, e.inner.Worked, waited, e.tracks[s].Left, e.tracks[s]) || again
	}

	if again || waits {
		e.withoutWaits(s, whole, waited, logs)
	}

	if again && s == compute && e.inner.FindHidden(c, v, logs, float32(e.cfg.MinEffect)) {
		e.withoutWaits(s, whole, waited, logs)
	}

	e.tracks[s].Load = untoldLoad * e.experts[s].Spread()
	e.recent.Adjust(s, whole)
}

// withoutWaits compares what each rank took of its own: who waited for a mate is as fast as the
// peers in this step, and is a peer by its own work.
func (e *Engine) withoutWaits(s signal, whole []float32, waited []bool, logs []float32) {
	work := whole
	if waited != nil {
		work = append(e.buf[:0], whole...)
		for r, w := range waited {
			if x := e.inner.Worked[r]; w && x == x {
				work[r] += x
			}
		}

		e.buf = work
	}

	e.ref[s].Relative(work, logs)
	for r, w := range waited {
		if w {
			logs[r] = 0
		}
	}
}
