package history

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// State is what a later step asks of earlier ones.
func (h *Window) State() state.Fields {
	f := state.Fields{
		"count": state.Counts(&h.Count), "times": &h.Times, "spans": &h.Spans, "steps": state.Counts(&h.Steps),
		"passes": &h.Passes, "pause": &h.Pause, "paused": state.Counts(&h.Paused), "recorded": state.Counts(&h.recorded),
		"works": state.Counts(&h.works), "place": state.Counts(&h.Place), "at": state.Counts(&h.at),
	}
	for s := range h.adjusted {
		f[fmt.Sprint("adjusted_", s)] = state.Grows(&h.adjusted[s])
	}

	for m := range h.cells {
		f["cells_"+frame.Metric(m).String()] = state.Grows(&h.cells[m])
	}

	return f
}

// Check reports lists of a restored window that are not as long as those of any.
func (h *Window) Check() error {
	for _, list := range [][][]float32{h.cells[:], h.adjusted[:]} {
		for _, v := range list {
			if v != nil && len(v) != threshold.Window*h.n {
				return fmt.Errorf("%d values, want %d", len(v), threshold.Window*h.n)
			}
		}
	}

	return nil
}
