package detect

import (
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// mark is when a step began.
type mark struct{ Step, AtNs int64 }

// maxMarks bounds the marks; of older steps every other one is forgotten then.
const maxMarks = 1 << 14

// mark notes when a step began.
func (e *Engine) mark(step, atNs int64) {
	if atNs <= 0 {
		return
	}

	if len(e.marks) >= maxMarks {
		i := -1
		e.marks = slices.DeleteFunc(e.marks, func(mark) bool {
			i++
			return i < maxMarks/2 && i%2 == 1
		})
	}

	e.marks = append(e.marks, mark{step, atNs})
}

// timeOf is when a step last began, "" when nobody knows.
func (e *Engine) timeOf(step int64) string {
	for i := len(e.marks) - 1; i >= 0; i-- {
		if m := e.marks[i]; m.Step == step {
			return time.Unix(0, m.AtNs).UTC().Format(time.RFC3339)
		}
	}

	return ""
}

// fillTimes sets clock times beside the steps.
func (e *Engine) fillTimes(v *verdict.Verdict) {
	if n := len(e.marks); n > 0 {
		v.Steps.FirstTime = time.Unix(0, e.marks[0].AtNs).UTC().Format(time.RFC3339)
		v.Steps.LastTime = time.Unix(0, e.marks[n-1].AtNs).UTC().Format(time.RFC3339)
	}

	for i := range v.Nodes {
		n := &v.Nodes[i]
		n.SinceTime, n.DetectedTime = e.timeOf(n.SinceStep), e.timeOf(n.DetectedStep)
		if n.UntilStep > 0 {
			n.UntilTime = e.timeOf(n.UntilStep)
		}
	}

	for i := range v.Links {
		v.Links[i].SinceTime = e.timeOf(v.Links[i].SinceStep)
	}

	for i := range v.Events {
		x := &v.Events[i]
		x.FirstTime, x.LastTime = e.timeOf(x.FirstStep), e.timeOf(x.LastStep)
	}

	for _, k := range e.judged {
		if k > 0 {
			v.Recorded++
		}
	}
}
