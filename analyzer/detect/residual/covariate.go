package residual

import (
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Covariate removes what recorded tokens explain.
type Covariate struct {
	role    []int32
	sums    []sums // per signal: tokens, and the signal
	columns int
	slope   []float32 // per signal, taken in the step at hand
	dev     []float32
	ref     *Reference
	ln      []float32
}

// NewCovariate returns one for so many signals.
func NewCovariate(l *frame.Layout, signals int) *Covariate {
	n := len(l.Ranks)
	return &Covariate{sums: make([]sums, signals), slope: make([]float32, signals), role: l.Role, dev: make([]float32, n), ln: make([]float32, n), ref: NewReference(l)}
}

// Prepare takes the tokens of a step, for the signals that were recorded in it.
func (c *Covariate) Prepare(tokens []float32, recorded ...bool) {
	robust.Logs(tokens, c.ln)
	c.ref.Relative(c.ln, c.dev)
	for _, x := range recorded {
		if x {
			c.columns++
		}
	}
}

// Remove takes out of the absolute logs what the steps before say of the tokens, and
// reports whether there was anything. It is done before ranks are compared: with one
// slow rank among them, the middle of the peers' times and that of their tokens are
// not of the same peer. Signals may be served side by side.
func (c *Covariate) Remove(s int, logs []float32) bool {
	c.slope[s] = 0
	if c.columns <= sharedColumns || !c.correlated(s) {
		return false
	}

	c.slope[s] = float32(min(max(c.sums[s].XY/c.sums[s].XX, 0), 2.5))
	for r, x := range c.ln {
		if g := c.role[r]; g >= 0 && x == x {
			logs[r] -= c.slope[s] * (x - c.ref.Middle[g]) // those without a count stay comparable
		}
	}

	return true
}

// Learn regresses x, relative to peers and without the tokens' part, on the logarithm of
// the tokens. Who is slow teaches nothing, nor who waited for one that is: what a
// victim waits has nothing to do with its tokens, and would hide that work has.
func (c *Covariate) Learn(s int, x []float32, waited []bool, t known) {
	c.sums[s].fade(1 - 1.0/threshold.Memory)
	for r := range x {
		d := c.dev[r]
		if d != d || x[r] != x[r] || !t.Healthy(r) || waited != nil && waited[r] {
			continue
		}

		c.sums[s].add(d, robust.Clip(x[r]+c.slope[s]*d-t.Centre(r), -0.7, 0.7))
	}
}

// Explains reports whether tokens go with the signal.
func (c *Covariate) Explains(s int) bool {
	return c.columns >= sharedColumns && c.correlated(s)
}

func (c *Covariate) correlated(s int) bool { return c.sums[s].correlation() >= SharedCorrelation }
