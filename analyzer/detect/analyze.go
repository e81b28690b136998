package detect

import (
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Analysis judges the whole history of a job while its steps go by.
type Analysis struct {
	f      *frame.Frame
	cfg    threshold.Config
	engine *Engine // nil before the first step
}

// NewAnalysis returns an Analysis of a job of which that is known before its steps are
// looked at.
func NewAnalysis(f *frame.Frame, cfg threshold.Config) *Analysis { return &Analysis{f: f, cfg: cfg} }

// Observe takes the next step of the job. The column is not kept.
func (a *Analysis) Observe(c *frame.Column) {
	if a.engine == nil {
		a.engine = New(a.cfg, c.Layout)
		a.engine.Describe(a.f.Job, a.f.Estimated > 0.5, a.f.HostOnly > 0.5)
	}

	a.engine.Observe(c)
}

// ObserveTransfer takes a window of one group's communication, after its last step. The
// window is not kept.
func (a *Analysis) ObserveTransfer(t *frame.Transfer) {
	if a.engine != nil {
		a.engine.ObserveTransfer(t)
	}
}

// Verdict returns the verdict on all steps so far.
func (a *Analysis) Verdict() *verdict.Verdict {
	v := verdict.New(a.f.Job)
	if a.engine == nil {
		low(v, "no step was recorded")
	} else {
		v = a.engine.Verdict()
	}

	Tell(v, a.f.Off, a.f.Overlap)
	return v
}

// Analyze returns the verdict on a frame that has all metrics of all steps.
func Analyze(f *frame.Frame, cfg threshold.Config) *verdict.Verdict {
	a := NewAnalysis(f, cfg)
	rest := f.Transfers
	for _, c := range f.Columns {
		for len(rest) > 0 && (rest[0].Attempt < c.Attempt || rest[0].Attempt == c.Attempt && rest[0].To < c.Step) {
			a.ObserveTransfer(&rest[0])
			rest = rest[1:]
		}

		a.Observe(c)
	}

	for i := range rest {
		a.ObserveTransfer(&rest[i])
	}

	return a.Verdict()
}

// Describe tells the engine the job's name, whether its exposed communication is mostly
// an estimate, and whether most of it has host times only: on an accelerator those are
// the times to enqueue work.
func (e *Engine) Describe(job string, estimated, hostOnly bool) {
	e.job, e.estimated, e.hostOnly = job, estimated, hostOnly
}
