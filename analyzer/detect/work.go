package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

const (
	// forwardShare: a backward pass takes about two forward passes.
	forwardShare = 1.0 / 3
	// hiddenWait: a role whose own time is that much more than its forward time
	// lets expect waits somewhere that no range recorded.
	hiddenWait = 1.05
	// habitSample ranks of a role tell its habits.
	habitSample = 5
	// ownLimit bounds a rank's own time in one step the same way.
	ownLimit = 1.25
)

// stepWork fills did with what each of the rows did by itself in the i-th analysed step:
// its own time; where that holds waits that nobody recorded, or was not measured,
// what its forward passes let expect. In the pipeline of somebody who is charged,
// what the others spend beyond that is a wait for them.
func (e *Engine) stepWork(i int, rows []int32, victims bool) {
	if len(e.did.Passes) != e.n {
		e.did.Passes, e.did.Before = make([]float64, e.n), make([]float64, e.n)
	}

	h := &e.ledger.Habits
	self, fp, bp, load := e.recent.At(frame.Self, i), e.recent.At(frame.FP, i), e.recent.At(frame.Backward, i), e.recent.At(frame.DataLoader, i)
	get := func(v []float32, r int) float64 {
		if v == nil {
			return math.NaN()
		}

		return float64(v[r])
	}
	for _, row := range rows {
		r := int(row)
		s, f := get(self, r), get(fp, r)
		if b := get(bp, r); b == b && h.Both {
			f += b
		}

		expect := h.Own * f
		switch {
		case s != s:
			s = expect
		case expect == expect && e.byForward(r):
			s = expect
		case expect == expect && s > ownLimit*expect && e.tracks[own].Healthy(r):
			s = ownLimit * expect
		case expect == expect && e.layout.Stages > 1 && e.layout.Role[r] >= 0:
			if s = max(0, s-h.Surplus[e.layout.Role[r]]*f); victims && !e.isCharged(r) {
				s = min(s, expect)
			}
		}

		e.did.Passes[r] = s
		e.did.Before[r] = robust.Finite(get(load, r), 0)
	}

	e.did.Forward, e.did.Micro = h.Forward, int(e.recent.Passes[i%threshold.Window])
}

func (e *Engine) isCharged(row int) bool {
	return slices.ContainsFunc(e.charged, func(f fault) bool { return f.Row == row })
}

// habits is how a job's own time goes with its forward passes.
type habits struct {
	Own     float64 // own time / forward time, or forward and backward where Both
	Both    bool    // backward passes are recorded
	Forward float64 // share of own time that is forward
	// Surplus is by how much a role's own time exceeds that, per forward time: waits
	// that no range recorded, which grow towards the end of a pipeline.
	Surplus  []float64
	Expected []bool // roles whose own time is not known, or holds waits: it is Own times what they compute
}

// byForward reports whether a row's own time is what its forward passes let expect.
func (e *Engine) byForward(row int) bool {
	g := e.layout.Role[row]
	h := e.ledger.Habits.Expected
	return g >= 0 && int(g) < len(h) && h[g]
}

// knowsHabits reports whether they were learned in this layout.
func (e *Engine) knowsHabits() bool { return len(e.ledger.Habits.Expected) == len(e.layout.Roles) }

// habits learns from the window how own time follows forward time.
func (e *Engine) habits() habits {
	h := habits{Expected: make([]bool, len(e.layout.Roles)), Surplus: make([]float64, len(e.layout.Roles)), Forward: forwardShare, Own: 1 / forwardShare}
	h.Both = e.recent.Has(frame.Backward) && e.recent.Has(frame.FP) && !e.backward.Waiting
	if h.Both {
		h.Own = 1
	}

	ratios := make([]float64, len(e.layout.Roles))
	var known, forward []float64
	for g := range e.layout.Roles {
		var v []float64
		rows := e.layout.Roles[g].Rows
		for k := range min(len(rows), habitSample) {
			r := int(rows[k*len(rows)/min(len(rows), habitSample)])
			fp, bp, self := e.recent.Median(frame.FP, r, threshold.Window), e.recent.Median(frame.Backward, r, threshold.Window), e.recent.Median(frame.Self, r, threshold.Window)
			if h.Both {
				forward = append(forward, fp/(fp+bp))
				fp += bp
			}

			if x := self / fp; x == x {
				v = append(v, x)
			}
		}

		ratios[g] = robust.Median64(v)
		if ratios[g] == ratios[g] {
			known = append(known, ratios[g])
		}
	}

	if x := robust.Median64(forward); x == x {
		h.Forward = x
	}

	if len(known) > 0 {
		slices.Sort(known)
		h.Own = known[(len(known)-1)/2]
		if !h.Both {
			h.Forward = min(0.5, max(0.2, 1/h.Own))
		}
	}

	for g, x := range ratios {
		h.Expected[g] = x != x || x > hiddenWait*h.Own
		h.Surplus[g] = max(0, robust.Finite(x-h.Own, 0))
	}

	return h
}

// othersWait is what the ranks that are not blamed wait in the i-th step: the median
// of their exposed communication, and what nearly all wait no more than; NaN when none
// is recorded.
func (e *Engine) othersWait(i int, faults []fault) (mid, high float64) {
	v := e.recent.At(frame.Exposed, i)
	if v == nil {
		return math.NaN(), math.NaN()
	}

	e.buf = e.buf[:0]
	stride := e.n/robust.SampleSize + 1
	for r := 0; r < e.n; r += stride {
		if x := v[r]; x == x && !slices.ContainsFunc(faults, func(f fault) bool { return f.Row == r }) {
			e.buf = append(e.buf, x)
		}
	}

	if len(e.buf) == 0 {
		return math.NaN(), math.NaN()
	}

	high = float64(robust.Kth(e.buf, len(e.buf)*9/10))
	return float64(robust.Median(e.buf)), high
}
