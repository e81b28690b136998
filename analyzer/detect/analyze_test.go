package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestBegin_BeforeTheFirstStep: of a job without a step that is what is said, and nobody is suspect.
func TestBegin_BeforeTheFirstStep(t *testing.T) {
	e := Begin(&frame.Frame{Job: "j"}, Default())
	e.ObserveTransfer(&frame.Transfer{Name: "dp-0", Op: "allreduce"})
	e.Configure(Default())
	if s := e.Suspects(); len(s.Rows) > 0 || s.Layout != nil || e.Layout() != nil {
		t.Errorf("suspects %+v, layout %v", s, e.Layout())
	}

	v := e.Verdict()
	if v.Job != "j" || v.Decided || len(v.Findings) != 1 || v.Findings[0].Kind != verdict.LowCoverage || v.Findings[0].Detail != "no step was recorded" {
		t.Errorf("verdict %+v", v)
	}
}
