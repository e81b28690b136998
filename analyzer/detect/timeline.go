package detect

import (
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// timeline is the last analysed steps as wholes: what replaying them needs beside the
// raw values, which recent keeps metric by metric. The i-th step is at i % window.
type timeline struct {
	Count  int
	Times  []float32 // seconds
	Spans  []float64 // the same with the steps that were left out before it
	Steps  []int32   // how many steps that is
	Passes []int32   // forward passes of a rank
	// Place is how many steps each signal's track had seen after it, At the same of
	// each metric's values in recent; 0 = this step is not among them.
	Place [signals][]int32
	At    [frame.MetricCount][]int32
	// Pause and Paused are the seconds and the number of the steps that were left out
	// since.
	Pause  float64
	Paused int
}

func newTimeline() *timeline {
	l := &timeline{Times: make([]float32, threshold.Window), Spans: make([]float64, threshold.Window), Steps: make([]int32, threshold.Window), Passes: make([]int32, threshold.Window)}
	for s := range l.Place {
		l.Place[s] = make([]int32, threshold.Window)
	}

	for m := range l.At {
		l.At[m] = make([]int32, threshold.Window)
	}

	return l
}

// leaveOut counts a step that is not analysed.
func (l *timeline) leaveOut(t float64) { l.Pause, l.Paused = l.Pause+t, l.Paused+1 }

// add begins an analysed step, whose values recent has taken.
func (l *timeline) add(c *frame.Column, t float64, h *recent) {
	slot := l.Count % threshold.Window
	l.Times[slot], l.Spans[slot], l.Steps[slot], l.Passes[slot] = float32(t), l.Pause+t, int32(l.Paused)+1, int32(c.Passes)
	l.Pause, l.Paused = 0, 0
	for s := range l.Place {
		l.Place[s][slot] = 0
	}

	for m := range l.At {
		l.At[m][slot] = 0
		if c.V[m] != nil {
			l.At[m][slot] = int32(h.steps[m])
		}
	}

	l.Count++
}

// valuesAt are the values of a metric in the i-th analysed step by row, nil when
// nobody recorded it then.
func (e *Engine) valuesAt(m frame.Metric, i int) []float32 {
	k := int(e.line.At[m][i%threshold.Window])
	if k == 0 || e.recent.cells[m] == nil {
		return nil
	}

	return e.recent.cells[m][(k-1)%threshold.Window*e.n:][:e.n]
}
