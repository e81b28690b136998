// Package frame holds the steps of one job as columns, and says for every step which
// rank ran where, in which role, with whom.
//
// Invariants: a cell is NaN where nothing was recorded, never zero; a column is
// one step of the whole job (attempt, step, repeat) and columns are in the order
// the job ran them; a row is one global rank for the whole life of the job, and
// Layout tells on which node, in which process and in which role it was in each
// column. Nothing compares the clocks of two hosts: columns are joined by step
// number; starts are used only to tell attempts apart, where seconds of skew do
// no harm.
//
// Caveat: values are float32 seconds (24 bits: 0.1 µs in a second), which is finer
// than any clock of a host that is compared here.
package frame

import (
	"math"
	"slices"
)

// Metric is one measured quantity of a rank in a step, in seconds but for Tokens.
type Metric uint8

// The metrics. Self is step - exposed - dataloader - checkpoint. TP to Other are
// the union of the communication ranges of one dimension.
const (
	// Begin to end of the step, and its forward passes, summed up.
	Step Metric = iota
	FP
	// Backward passes, where a tool recorded them.
	Backward
	// Union of all communication ranges, and the part of it that the trainer was blocked in.
	Comm
	Exposed
	// By dimension; Other are groups whose dimension nobody told.
	TP
	PP
	DP
	CP
	EP
	Other
	// Waits for input, and saves of the model.
	DataLoader
	Checkpoint
	// The rank's own work: what is left of the step.
	Self
	// What the rank was given to do: a count.
	Tokens
	MetricCount
)

var metricNames = [MetricCount]string{
	"step", "fp", "backward", "comm", "exposed", "tp", "pp", "dp", "cp", "ep", "other",
	"dataloader", "checkpoint", "self", "tokens",
}

// String returns the metric's name in verdicts and reports.
func (m Metric) String() string {
	if m < MetricCount {
		return metricNames[m]
	}

	return "unknown"
}

// NaN is the value of a cell in which nothing was recorded.
var NaN = float32(math.NaN())

// Column is one step of the whole job: V[m][row] is rank Layout.Ranks[row]'s
// value, NaN where nothing was recorded; V[m] is nil where no rank recorded m.
type Column struct {
	Attempt int
	Step    int64
	Repeat  int
	StartNs int64 // of the lowest rank in it; 0 unknown
	Off     int   // steps before it that nobody recorded because recording was off
	Passes  int   // forward passes of a rank in it, its micro-batches; 0 unknown
	Layout  *Layout
	V       [MetricCount][]float32
}

// Frame holds what is known of one job, and as many metrics of its steps as somebody
// wants to see. The zero value is a job of which nothing is known. Read it from as many goroutines as you like.
type Frame struct {
	Job       string
	WorldSize int       // largest seen; 0 unknown
	Ranks     []int     // global rank of each row, ascending
	Columns   []*Column // with those metrics that are kept
	Layouts   []*Layout
	Attempts  int
	// Off is when recording was off.
	Off []Off
	// Overlap tells of two runs under the job's name, nil where there is one.
	Overlap *Overlap
	// Estimated is the share of rows whose exposed communication is an estimate,
	// HostOnly of those without device time, 0…1.
	Estimated, HostOnly float64
	// Transfers are the communication windows of each group; nil where no
	// Communication rows were given.
	Transfers []Transfer
	// Notes are sentences for a person: what was dropped or guessed.
	Notes []string

	seen [MetricCount]bool
}

// maxCells bounds one matrix: 10,000 ranks × 25,000 steps, 1 GB.
const maxCells = 250_000_000

// Add appends a column of a job whose Ranks are known: a copy of those metrics of it. It
// returns false for a column beyond the bound, which is left out.
func (f *Frame) Add(c *Column, metrics []Metric) bool {
	if n := len(f.Layouts); n == 0 || f.Layouts[n-1] != c.Layout {
		f.Layouts = append(f.Layouts, c.Layout)
	}

	for m, v := range c.V {
		f.seen[m] = f.seen[m] || v != nil
	}

	if (len(f.Columns)+1)*len(f.Ranks) > maxCells {
		return false
	}

	kept := *c
	kept.V = [MetricCount][]float32{}
	for _, m := range metrics {
		kept.V[m] = slices.Clone(c.V[m])
	}

	f.Columns = append(f.Columns, &kept)
	return true
}

// Has reports whether any rank recorded m in any step, kept or not.
func (f *Frame) Has(m Metric) bool { return f.seen[m] }

// At returns one cell, NaN where nothing was recorded.
func (f *Frame) At(m Metric, row, col int) float32 {
	if v := f.Columns[col].V[m]; v != nil {
		return v[row]
	}

	return NaN
}
