package residual

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Backward tells whether backward passes are the ranks' own work, and adds them to the
// forward passes where they are. A backward pass may hold waits for other ranks that no
// range records (of an overlapped reduction, or for a core of the machine): who is late
// then has the longest forward and the shortest backward pass, and the sum of both hides
// it. Where they go against each other in this way forward alone is what a rank computes.
type Backward struct {
	ref       *Reference
	passes    sums // forward and backward
	columns   int
	Waiting   bool // backward passes hold waits
	x, y, sum []float32
}

// NewBackward returns the backward passes of the ranks of a layout.
func NewBackward(l *frame.Layout) *Backward {
	n := len(l.Ranks)
	return &Backward{ref: NewReference(l), x: make([]float32, n), y: make([]float32, n), sum: make([]float32, n)}
}

// Compute is the measured compute of each rank in a step, seconds: forward, and backward
// where (nearly) everybody who recorded the one recorded the other and it holds no waits.
// It is good until the next call.
func (b *Backward) Compute(forward, backward []float32) []float32 {
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

	if b.learn(forward, backward); b.Waiting {
		return forward
	}

	for r := range forward {
		b.sum[r] = forward[r] + backward[r]
	}

	return b.sum
}

// learn follows the correlation of the passes over the ranks of a role. What a rank
// always takes longer than its peers stays in: it is what shows waits.
func (b *Backward) learn(forward, backward []float32) {
	b.relative(forward, b.x)
	b.relative(backward, b.y)
	b.passes.fade(1 - 1.0/threshold.Memory)
	for r, x := range b.x {
		if y := b.y[r]; x == x && y == y {
			b.passes.add(x, y)
		}
	}

	if b.columns++; b.columns < backwardColumns {
		return
	}

	if c := b.passes.correlation(); c <= -waitCorrelation {
		b.Waiting = true
	} else if c >= 0 {
		b.Waiting = false
	}
}

// relative fills out with the logarithms of v about those of the ranks' peers; a wild step
// counts as one of twice the length.
func (b *Backward) relative(v, out []float32) {
	robust.Logs(v, b.sum)
	b.ref.Relative(b.sum, out)
	for r, x := range out {
		if x == x {
			out[r] = robust.Clip(x, -math.Ln2, math.Ln2)
		}
	}
}
