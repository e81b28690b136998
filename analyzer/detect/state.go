package detect

import (
	"github.com/laggard-dev/laggard/analyzer/detect/state"
)

// state is what Save writes of the engine itself. Below is that of each of its parts:
// all that a later step or verdict asks of an earlier one.
func (e *Engine) state() state.Fields {
	f := state.Fields{
		"job": &e.job, "columns": state.Counts(&e.columns), "analysed": state.Counts(&e.analysed), "first_step": &e.firstStep,
		"last_step": &e.lastStep, "attempts": state.Counts(&e.attempts),
		"expected": &e.expected, "measured": &e.measured, "off": &e.off, "world_size": &e.worldSize,
		"quarantined": &e.quarantined, "saving": &e.saving, "since_save": &e.sinceSave,
		"pace_past": state.Grows(&e.pace.Past), "pace_next": state.Counts(&e.pace.Next), "pace_far": state.Grows(&e.pace.Far),
		"step_median": &e.stepMedian, "last_time": &e.lastTime, "marks": state.Grows(&e.marks),
		"seen": &e.seen, "measured_at": &e.measuredAt, "measured_step": &e.measuredStep, "estimated": &e.estimated,
		"host_only": &e.hostOnly, "judged": &e.judged, "history": state.Grows(&e.history), "events": state.Grows(&e.events),
		"carried": &e.carried,
	}
	for s := range e.cases {
		f["cases_"+signalMetric[s]] = &e.cases[s]
	}

	return f
}
