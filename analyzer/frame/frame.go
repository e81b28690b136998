// Package frame holds the steps of one job as columns and as rank × step matrices,
// and says for every step which rank ran where, in which role, with whom.
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
	"fmt"
	"math"
	"slices"
)

// Metric is one measured quantity of a rank in a step, in seconds but for Tokens.
type Metric uint8

// The metrics. Self is step - exposed - dataloader - checkpoint. TP to Other are
// the union of the communication ranges of one dimension.
const (
	Step Metric = iota
	FP
	Backward
	Comm
	Exposed
	TP
	PP
	DP
	CP
	EP
	Other
	DataLoader
	Checkpoint
	Self
	HostFP
	Tokens
	MetricCount
)

var metricNames = [MetricCount]string{
	"step", "fp", "backward", "comm", "exposed", "tp", "pp", "dp", "cp", "ep", "other",
	"dataloader", "checkpoint", "self", "host_fp", "tokens",
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

// Key names a column of a Frame.
type Key struct {
	Attempt int
	Step    int64
	Repeat  int
	StartNs int64
	Passes  int
	Layout  int // index into Frame.Layouts
}

// Frame holds what is known of one job, and as many metrics of its steps as somebody
// wants to see. The zero value is a job of which nothing is known. Read it from as many goroutines as you like.
type Frame struct {
	Job       string
	WorldSize int   // largest seen; 0 unknown
	Ranks     []int // global rank of each row, ascending
	Columns   []Key
	Layouts   []*Layout
	Attempts  int
	// RolesFrom says where the roles come from: "topology" (a file), "segments"
	// (identities of the processes) or "inferred".
	RolesFrom string
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

	values  [MetricCount][][]float32 // metric → row → column; nil row = never recorded
	columns [MetricCount][][]float32 // metric → column → row, of an open frame
	seen    [MetricCount]bool
	dropped int
}

// maxCells bounds one matrix: 10,000 ranks × 25,000 steps, 1 GB.
const maxCells = 250_000_000

// Add appends a column of a job whose Ranks are known: a copy of those metrics of it.
// Columns beyond a bound are left out, with a note. The frame can be read when it was
// closed.
func (f *Frame) Add(c *Column, metrics []Metric) {
	if n := len(f.Layouts); n == 0 || f.Layouts[n-1] != c.Layout {
		f.Layouts = append(f.Layouts, c.Layout)
	}

	for m, v := range c.V {
		f.seen[m] = f.seen[m] || v != nil
	}

	k := Key{Attempt: c.Attempt, Step: c.Step, Repeat: c.Repeat, StartNs: c.StartNs, Passes: c.Passes, Layout: len(f.Layouts) - 1}
	if (len(f.Columns)+1)*len(f.Ranks) > maxCells {
		f.dropped++
		return
	}

	f.Columns = append(f.Columns, k)
	for _, m := range metrics {
		if c.V[m] == nil {
			continue
		}

		for len(f.columns[m]) < len(f.Columns)-1 {
			f.columns[m] = append(f.columns[m], nil)
		}

		f.columns[m] = append(f.columns[m], slices.Clone(c.V[m]))
	}
}

// Close puts the columns that were added together to matrices.
func (f *Frame) Close() {
	if f.dropped > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the last %d steps are not drawn, to bound memory", f.dropped))
	}

	for m := range f.columns {
		if f.columns[m] != nil {
			f.values[m] = transpose(f.columns[m], len(f.Ranks), len(f.Columns))
			f.columns[m] = nil
		}
	}
}

// transpose makes rows of columns, the last of which may be missing; a row without any
// value stays nil.
func transpose(columns [][]float32, rows, n int) [][]float32 {
	out := make([][]float32, rows)
	cells := make([]float32, rows*n)
	for k := range cells {
		cells[k] = NaN
	}

	for from := 0; from < len(columns); from += blockColumns { // a cache line of a row at a time
		for r := range rows {
			line := cells[r*n : (r+1)*n : (r+1)*n]
			for c := from; c < min(from+blockColumns, len(columns)); c++ {
				if columns[c] == nil {
					continue
				}

				if x := columns[c][r]; x == x {
					line[c], out[r] = x, line
				}
			}
		}
	}

	return out
}

// Has reports whether any rank recorded m in any step, kept or not.
func (f *Frame) Has(m Metric) bool { return f.seen[m] }

// At returns one cell, NaN where nothing was recorded.
func (f *Frame) At(m Metric, row, col int) float32 {
	if f.values[m] == nil || f.values[m][row] == nil {
		return NaN
	}

	return f.values[m][row][col]
}

// Row returns all columns of one rank, or nil where it never recorded m. The
// slice is the frame's own: don't write to it.
func (f *Frame) Row(m Metric, row int) []float32 {
	if f.values[m] == nil {
		return nil
	}

	return f.values[m][row]
}

// blockColumns is how many columns are gathered at a time: a cache line holds 16
// float32, so each line of a rank's row is touched once.
const blockColumns = 16

// Each calls visit with every column in order. The Column and its slices are
// reused: copy what is kept. It stops at the first error and returns it.
func (f *Frame) Each(visit func(*Column) error) error {
	var cols [blockColumns]Column
	var store [MetricCount][]float32
	n := len(f.Ranks)
	for from := 0; from < len(f.Columns); from += blockColumns {
		to := min(from+blockColumns, len(f.Columns))
		for m := Metric(0); m < MetricCount; m++ {
			for k := range cols {
				cols[k].V[m] = nil
			}

			if f.values[m] == nil {
				continue
			}

			if store[m] == nil {
				store[m] = make([]float32, blockColumns*n)
			}

			f.gather(m, from, to, store[m], &cols)
		}

		for c := from; c < to; c++ {
			k, col := f.Columns[c], &cols[c-from]
			col.Attempt, col.Step, col.Repeat, col.StartNs, col.Passes = k.Attempt, k.Step, k.Repeat, k.StartNs, k.Passes
			col.Layout, col.Off = f.Layouts[k.Layout], 0
			if c > 0 {
				col.Off = Unrecorded(f.Off, f.Columns[c-1], k)
			}

			if err := visit(col); err != nil {
				return err
			}
		}
	}

	return nil
}

// gather copies columns [from, to) of m into buf, column by column, and points
// the columns at it; a column without any value stays nil.
func (f *Frame) gather(m Metric, from, to int, buf []float32, cols *[blockColumns]Column) {
	n := len(f.Ranks)
	var some [blockColumns]bool
	for r, line := range f.values[m] {
		if line == nil {
			for c := range to - from {
				buf[c*n+r] = NaN
			}

			continue
		}

		for c, v := range line[from:to] {
			buf[c*n+r] = v
			some[c] = some[c] || v == v
		}
	}

	for c := range to - from {
		if some[c] {
			cols[c].V[m] = buf[c*n : (c+1)*n]
		}
	}
}
