package detect

import (
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Begin returns an engine for the whole history of a job, of which that is known before its steps are looked at.
func Begin(f *frame.Frame, cfg threshold.Config) *Engine {
	e := New(cfg, nil)
	e.Describe(f.Job, f.Estimated > 0.5, f.HostOnly > 0.5)
	return e
}

// Analyze returns the verdict on a frame that has all metrics of all steps.
func Analyze(f *frame.Frame, cfg threshold.Config) *verdict.Verdict {
	e := Begin(f, cfg)
	rest := f.Transfers
	for _, c := range f.Columns {
		for len(rest) > 0 && (rest[0].Attempt < c.Attempt || rest[0].Attempt == c.Attempt && rest[0].To < c.Step) {
			e.ObserveTransfer(&rest[0])
			rest = rest[1:]
		}

		e.Observe(c)
	}

	for i := range rest {
		e.ObserveTransfer(&rest[i])
	}

	v := e.Verdict()
	Tell(v, f.Off, f.Overlap)
	return v
}

// Describe tells the engine the job's name, whether its exposed communication is mostly
// an estimate, and whether most of it has host times only: on an accelerator those are
// the times to enqueue work.
func (e *Engine) Describe(job string, estimated, hostOnly bool) {
	e.job, e.estimated, e.hostOnly = job, estimated, hostOnly
}
