package detect

import (
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Analyze returns the verdict on the whole history of a job.
func Analyze(f *frame.Frame, cfg Config) *verdict.Verdict {
	if len(f.Columns) == 0 || len(f.Layouts) == 0 {
		v := verdict.New(f.Job)
		addFinding(v, verdict.Finding{Kind: verdict.LowCoverage, Detail: "no step was recorded"})
		TellOff(v, f.Off)
		return v
	}
	e := New(cfg, f.Layouts[f.Columns[0].Layout])
	e.Describe(f.Job, f.Estimated > 0.5, f.HostOnly > 0.5)
	rest := f.Transfers
	_ = f.Each(func(c *frame.Column) error { // no visit of ours fails
		for len(rest) > 0 && (rest[0].Attempt < c.Attempt || rest[0].Attempt == c.Attempt && rest[0].To < c.Step) {
			e.ObserveTransfer(&rest[0])
			rest = rest[1:]
		}
		e.Observe(c)
		return nil
	})
	for i := range rest {
		e.ObserveTransfer(&rest[i])
	}
	v := e.Verdict()
	TellOff(v, f.Off)
	return v
}

// Describe tells the engine the job's name, whether its exposed communication is mostly
// an estimate, and whether most of it has host times only: on an accelerator those are
// the times to enqueue work.
func (e *Engine) Describe(job string, estimated, hostOnly bool) {
	e.job, e.estimated, e.hostOnly = job, estimated, hostOnly
}
