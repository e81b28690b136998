package profiles

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// steps returns the steps that the profile marks, and how many of them it holds a part of only.
// Where it marks none, derived reports that the optimizer tells them.
func (t *capture) steps() (whole []record.Record, partly int, derived bool) {
	marks := t.marks
	if len(marks) == 0 {
		marks = t.stepsOfDevice()
	}

	if len(marks) == 0 {
		marks = t.stepsOfOptimizer()
		derived = len(marks) > 0
	}

	slices.SortStableFunc(marks, func(a, b record.Record) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Dur, a.Dur)) })
	complete := t.completeness()
	before := map[int64]int64{} // end of the last step of a number
	for i := range marks {
		s := &marks[i]
		if end, again := before[s.Step]; again && s.Start < end {
			continue // some versions mark a step twice
		}

		before[s.Step] = s.Start + s.Dur
		if complete != nil && !complete(interval{s.Start, s.Start + s.Dur}) {
			partly++
			continue
		}

		whole = append(whole, *s)
	}

	return whole, partly, derived
}

// stepsOfOptimizer are the steps of a trace without marks, of a profiler without a schedule: from the
// end of one of the optimizer's steps to the end of the next, by the host. What came before the first
// end is of no step: nothing tells when it began.
func (t *capture) stepsOfOptimizer() (marks []record.Record) {
	var made []interval
	for i := range t.host {
		if r := &t.host[i]; r.Name == "optimizer" {
			made = append(made, interval{r.Start, r.Start + r.Dur})
		}
	}

	slices.SortFunc(made, func(a, b interval) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	last := int64(-1) // the end of the last one that lies in no other: a wrapper calls its optimizer's
	for _, one := range made {
		switch {
		case last >= 0 && one.to <= last:
			continue
		case last >= 0:
			s := record.New(record.Step)
			s.Step, s.Start, s.Dur = int64(len(marks)), last, one.to-last
			marks = append(marks, s)
		}

		last = one.to
	}

	return marks
}

// stepsOfDevice are the steps of a trace that has marks of the device alone: one on each stream that
// worked in the step. Then what the device does stands in the step by the device's own time.
func (t *capture) stepsOfDevice() (marks []record.Record) {
	slices.SortStableFunc(t.deviceMarks, func(a, b record.Record) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Start, b.Start))
	})
	for i := range t.deviceMarks {
		s := &t.deviceMarks[i]
		if n := len(marks); n > 0 && marks[n-1].Step == s.Step {
			marks[n-1].Dur = max(marks[n-1].Dur, s.Start+s.Dur-marks[n-1].Start)
		} else {
			marks = append(marks, *s)
		}
	}

	for i := 1; i < len(marks); i++ { // a late stream is still in the last step when another begins the next
		before := &marks[i-1]
		before.Dur = min(before.Dur, max(marks[i].Start-before.Start, 0))
	}

	if len(marks) > 0 {
		t.launches, t.hostExt = nil, nil
	}

	return marks
}

// completeness tells of a trace that breaks off which of its steps are whole; nil of any other. The
// host's ranges stand before the device's as a rule: steps are marked that have lost their kernels.
func (t *capture) completeness() func(interval) bool {
	if !t.cut {
		return nil
	}

	if !t.onDevice {
		_, last := t.ops.extent()
		if len(t.blocking) > 0 {
			last = slices.MaxFunc(t.blocking, func(a, b comm) int { return cmp.Compare(a.to, b.to) }).to
		}

		return func(step interval) bool { return step.to <= last }
	}

	slices.Sort(t.ran)
	_, last := t.work.extent()
	for i := range t.kernels {
		last = max(last, t.kernels[i].to)
	}

	var lost []int64 // when what never ran was launched
	launched := int64(0)
	for i := range t.launches {
		l := &t.launches[i]
		launched = max(launched, l.from)
		if _, ran := slices.BinarySearch(t.ran, l.corr); !ran && len(t.ran) > 0 {
			lost = append(lost, l.from)
		}
	}

	if launched > 0 {
		last = min(last, launched)
	}

	slices.Sort(lost)
	return func(step interval) bool {
		i, _ := slices.BinarySearch(lost, step.from)
		return step.to <= last && (i == len(lost) || lost[i] >= step.to)
	}
}
