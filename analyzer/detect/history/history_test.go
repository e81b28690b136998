package history

import (
	"math"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestWindow_KeepsWhatWasMeasured: forward times of every step, own times of the first
// ones alone; a step that is left out lengthens the next.
func TestWindow_KeepsWhatWasMeasured(t *testing.T) {
	const steps, last = 100, 60 // own time is recorded until then
	h := New(2)
	for k := range steps {
		c := &frame.Column{Passes: 4}
		c.V[frame.FP] = []float32{float32(k), float32(math.NaN())}
		if k < last {
			c.V[frame.Self] = []float32{float32(k), 2}
		}

		if k == steps-1 {
			h.LeaveOut(7)
		}

		h.Add(c, 3)
	}

	if got := h.At(frame.FP, steps-1); got[0] != steps-1 || got[1] == got[1] {
		t.Errorf("forward times of the last step %v", got)
	}

	if got := h.At(frame.Self, steps-1); got != nil {
		t.Errorf("own times of a step that has none: %v", got)
	}

	if got := h.Latest(frame.Self, 3); len(got) != 3 || got[2][0] != last-1 || got[0][0] != last-3 {
		t.Errorf("the last own times are %v, want those of steps %d to %d", got, last-3, last-1)
	}

	if got := h.Median(frame.Self, 0, threshold.Window); got != last-1-float64(threshold.Window-1)/2 {
		t.Errorf("median of the last own times is %v", got)
	}

	if got := h.Over(frame.Self, []int32{0, 1}, 3, func(r int) bool { return r == 0 }); got != 2 {
		t.Errorf("median over the others is %v, want 2", got)
	}

	slot := (steps - 1) % threshold.Window
	if h.Spans[slot] != 10 || h.Steps[slot] != 2 || h.Times[slot] != 3 || h.Pause != 0 {
		t.Errorf("the last step is %v s long, with the one before %v s of %d steps", h.Times[slot], h.Spans[slot], h.Steps[slot])
	}
}

// TestWindow_Work tells seconds from the logarithms that were kept of a signal.
func TestWindow_Work(t *testing.T) {
	h := New(1)
	if got := h.Work(1, 0, 8); got == got {
		t.Errorf("work of nothing is %v, want NaN", got)
	}

	for _, x := range []float64{2, 3, 50} {
		h.Adjust(1, []float32{float32(math.Log(x))})
	}

	if got := h.Work(1, 0, 8); math.Abs(got-3) > 1e-5 {
		t.Errorf("work is %v, want 3", got)
	}

	if h.Has(frame.FP) || !slices.Equal(h.Place[0][:1], []int32{0}) {
		t.Error("something was recorded")
	}
}

// TestSample: a small role is told by all of it; of a large one, whose rows are those of every eighth rank, by some
// that lie evenly in it.
func TestSample(t *testing.T) {
	var rows []int32
	for r := int32(1); len(rows) < 1000; r += 8 {
		rows = append(rows, r)
	}

	if got := Sample(rows[:SampleRows]); !slices.Equal(got, rows[:SampleRows]) {
		t.Errorf("%d rows of %d", len(got), SampleRows)
	}

	got := Sample(rows)
	if len(got) != SampleRows || got[0] != rows[0] || got[len(got)-1] < rows[len(rows)-10] {
		t.Errorf("%d rows from %d to %d", len(got), got[0], got[len(got)-1])
	}

	for _, r := range got {
		if !slices.Contains(rows, r) {
			t.Errorf("row %d is not of the role", r)
		}
	}
}
