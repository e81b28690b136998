package frame

import "github.com/laggard-dev/laggard/schemas/row"

// What a rank is in a Timeline.
const (
	Culprit      = "culprit"
	Victim       = "waits most"
	Peer         = "peer"
	LeastWaiting = "waits least" // where nobody is named
)

// Timeline is one step of a few ranks on one clock: who computes, who waits for whom.
type Timeline struct {
	Step int64
	// Aligned says that collectives, which end on all their members together, tell how the clocks of
	// all lines differ; Unsure is within what nine in ten of their ends agree, in seconds. Else the
	// lines stand as their hosts' clocks were.
	Aligned bool
	Unsure  float64
	// From and To are the bounds of what is shown, ns on the common clock.
	From, To int64
	Lines    []Line
}

// Line is a rank in a Timeline.
type Line struct {
	Rank   int
	Node   string
	Part   string // what it is here: one of Culprit, Victim, Peer …
	Ranges []Range
	// Length is the step's, Blocked the exposed communication in it, Waited the part of that in which
	// another rank had not entered yet, most of it For that one (-1 nobody); seconds.
	Length, Blocked, Waited float64
	For                     int
	Last                    int // collectives that it entered last
	Collectives             int // of the step, that others were seen in as well
	Communications          int // ranges of communication at all
}

// Range is a range whose start is on the common clock.
type Range struct {
	row.Record
	Waits int64 // ns from its start until the last rank entered
	For   int   // that rank; -1 where it is not known, or nobody was waited for
}

// Blocked is how long the trainer was blocked in it, ns: all of it where that is not recorded.
func (r *Range) Blocked() int64 {
	if r.ExposedNs < 0 {
		return r.DurNs
	}

	return min(r.ExposedNs, r.DurNs)
}
