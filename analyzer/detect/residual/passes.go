package residual

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Passes makes one measured time of the forward and the backward passes of a step. A
// backward pass may hold waits for other ranks that no range records (of an overlapped
// reduction, or for a core of the machine): who is late then has the longest forward and
// the shortest backward pass, and the sum of both hides it. Where they go against each
// other in this way forward alone is what a rank computes.
type Passes struct {
	ref           *Reference
	sxy, sxx, syy float64 // exponential sums over ranks and steps
	columns       int
	Waiting       bool // backward passes hold waits
	x, y, sum     []float32
}

// NewPasses returns the passes of the ranks of a layout.
func NewPasses(l *frame.Layout) *Passes {
	n := len(l.Ranks)
	return &Passes{ref: NewReference(l), x: make([]float32, n), y: make([]float32, n), sum: make([]float32, n)}
}

// Compute is the measured compute of each rank in a step, seconds: forward, and backward
// where (nearly) everybody who recorded the one recorded the other and it holds no waits.
// It is good until the next call.
func (p *Passes) Compute(forward, backward []float32) []float32 {
	both, one := 0, 0
	for r := range forward {
		if forward[r] == forward[r] {
			one++
			if backward[r] == backward[r] {
				both++
			}
		}
	}

	if 10*both < 9*one {
		return forward
	}

	if p.learn(forward, backward); p.Waiting {
		return forward
	}

	for r := range forward {
		p.sum[r] = forward[r] + backward[r]
	}

	return p.sum
}

// learn follows the correlation of the passes over the ranks of a role. What a rank
// always takes longer than its peers stays in: it is what shows waits.
func (p *Passes) learn(forward, backward []float32) {
	p.apart(forward, p.x)
	p.apart(backward, p.y)
	keep := 1 - 1.0/threshold.Memory
	p.sxy *= keep
	p.sxx *= keep
	p.syy *= keep
	for r, x := range p.x {
		if y := p.y[r]; x == x && y == y {
			p.sxy += float64(x * y)
			p.sxx += float64(x * x)
			p.syy += float64(y * y)
		}
	}

	if p.columns++; p.columns < passColumns || p.sxx <= 0 || p.syy <= 0 {
		return
	}

	if c := p.sxy / math.Sqrt(p.sxx*p.syy); c <= -waitCorrelation {
		p.Waiting = true
	} else if c >= 0 {
		p.Waiting = false
	}
}

// apart fills out with the logarithms of v about those of the ranks' peers; a wild step
// counts as one of twice the length.
func (p *Passes) apart(v, out []float32) {
	for r, x := range v {
		p.sum[r] = robust.NaN
		if x > 0 {
			p.sum[r] = float32(math.Log(float64(x)))
		}
	}

	p.ref.Relative(p.sum, out)
	for r, x := range out {
		if x == x {
			out[r] = robust.Clip(x, -math.Ln2, math.Ln2)
		}
	}
}
