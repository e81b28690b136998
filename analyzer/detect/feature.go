package detect

import (
	"math"

	"laggard/analyzer/frame"
)

// features fills e.v with the residuals of each signal.
func (e *Engine) features(c *frame.Column, t float64) {
	raw := e.raw(c)
	if raw != nil {
		e.compare(compute, raw, c)
	}
	if v := c.V[frame.Self]; v != nil {
		e.compare(own, v, c)
	}
	if v := c.V[frame.DataLoader]; v != nil && t > 0 {
		e.ref[loading].relative(v, e.v[loading])
		for r := range e.v[loading] {
			e.v[loading][r] /= float32(t)
		}
	}
	for r := range e.judged {
		a := raw != nil && raw[r] == raw[r]
		b := c.V[frame.Self] != nil && c.V[frame.Self][r] == c.V[frame.Self][r]
		if (a || b) && e.judged[r] < math.MaxUint16 {
			e.judged[r]++
		}
	}
}

// raw is the measured compute of each rank: forward, and backward where (nearly)
// everybody who recorded the one recorded the other.
func (e *Engine) raw(c *frame.Column) []float32 {
	fp, bp := c.V[frame.FP], c.V[frame.Backward]
	if fp == nil || bp == nil {
		return fp
	}
	both, one := 0, 0
	for r := range fp {
		if fp[r] == fp[r] {
			one++
			if bp[r] == bp[r] {
				both++
			}
		}
	}
	if 10*both < 9*one {
		return fp
	}
	e.buf2 = e.buf2[:0]
	for r := range fp {
		e.buf2 = append(e.buf2, fp[r]+bp[r])
	}
	return e.buf2
}

// compare makes log residuals: against peers of the role, without what tokens
// explain, without what the replica shares.
func (e *Engine) compare(s signal, v []float32, c *frame.Column) {
	logs := e.v[s]
	for r, x := range v {
		logs[r] = nan32
		if x > 0 {
			logs[r] = float32(math.Log(float64(x)))
		}
	}
	e.buf = append(e.buf[:0], logs...)
	e.ref[s].relative(e.buf, logs)
	e.level.logs(e, s, e.buf, e.ref[s].middle)
	e.level.spread(e, s, logs)
	if tok := c.V[frame.Tokens]; tok != nil && e.tokens.remove(s, tok, e.buf) {
		e.ref[s].relative(e.buf, logs)
	}
	var waited []bool
	if s == compute {
		e.inner.remove(c, v, logs, e.tracks[s].warm, float32(e.cfg.MinEffect))
		waited = e.inner.waited
	}
	if c.V[frame.Tokens] != nil {
		e.tokens.learn(s, logs, waited, e.tracks[s])
	}
	if e.sharing[s].remove(e.buf, e.level.sum[s], e.ref[s].middle, waited, e.tracks[s]) {
		e.ref[s].relative(e.buf, logs)
		for r, w := range waited {
			if w {
				logs[r] = 0
			}
		}
	}
}
