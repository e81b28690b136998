// Package feed turns the rows of a job into columns: one step of the whole job each, in
// the order the job ran them, with the layout that says who is who.
//
//	watch:    rows as they come ──────────────────▶ Feed ─columns─▶ detect.Engine
//	analyze:  rows in any order ─▶ History (spool) ─▶ Feed ─columns─▶ detect.Analysis, frame.Frame
//
// A Feed waits for a rank that is missing in a column until it has waited long enough; a
// History has all rows and waits for every process that may still have one there. What
// comes out is the same.
//
// Invariants: columns and layouts depend on the rows, not on the order in which they
// come, as long as none is later than the lag. Nothing compares the clocks of two hosts
// but to tell launches apart and to give up waiting. Memory is bounded by ranks and by
// the columns that wait, not by steps.
//
// Caveats: rows of one process come to a Feed in the order of their starts; a History
// sorts them, on disk when they are many. Where no group is known, roles are guessed from
// the first steps of each process: 32 in a Feed, 256 in a History.
package feed

import (
	"reflect"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Feed puts rows of steps together into columns and lets them go in order, each
// when every rank that is there has its row in it, or when the lag is used up. It is
// used by one goroutine.
type Feed struct {
	// All processes of the job, and who is who.
	Order []uint32                // ranks, ascending
	Ranks [][]*process            // the processes of each, as they were heard of
	Rows  []int                   // global rank of each row of the columns
	Seen  [frame.MetricCount]bool // in samples
	Dirty bool                    // something came that may change who is who

	Held    int // rows in process.Held
	Pending []*column
	Missed  []uint16  // columns in a row that each row was missing in
	Newest  []int64   // start of the newest step of each row
	Recent  []*column // that went, the newest last; their values are gone

	// Rows by what became of them: Accepted have a cell, and Estimated and HostOnly of those are flagged
	// so. Open never ended, Late came when their column had gone.
	Accepted, Estimated, HostOnly uint64 // rows
	Open, Late                    uint64
	Columns                       uint64

	// What follows is not saved: Restore and the next Settle make it anew.
	world    *world      // nil before a build, and so after a Restore: rows wait for the next
	samples  int         // of each process
	offs     []frame.Off // when recording was off, where offKnown
	offKnown bool
	layout   *frame.Layout // of the columns that go
	owners   []uint16      // of each of its rows: the number of its process
	// passed reports whether a column has all its rows, of a feed that has everything; nil:
	// rows come as they come.
	passed func(*column) bool
}

// Bounds of the feed.
const (
	// silentAfter columns without a row of a rank, and silentFor without a start of
	// it, nobody waits for it any more: it is gone, or its agent is down for longer
	// than anything could be shipped late.
	silentAfter = 16
	silentFor   = int64(600e9)
	// recentColumns are remembered, to tell a late row from one that came twice.
	recentColumns = 64
	// maxPending columns wait at most, whatever the source says.
	maxPending = 512
	// aloneAfter is how far, by recorded time, the others must go on for a new
	// process to be taken for a restart of that rank alone.
	aloneAfter = int64(30e9)
)

// New returns an empty Feed.
func New() *Feed { return &Feed{samples: sampleSteps} }

// Add takes a portion of rows. Steps of one process come in the order of their
// starts; a row may come twice.
func (f *Feed) Add(rows *row.Rows) {
	for i := range rows.Ranks {
		f.identity(&rows.Ranks[i])
	}

	for i := range rows.Communications {
		f.communication(&rows.Communications[i])
	}

	for i := range rows.Steps {
		f.step(&rows.Steps[i])
	}
}

// communication notes who talks to whom, and returns the process and the number of its
// talk, -1 for a window that says nothing, or is left out.
func (f *Feed) communication(c *row.Communication) (*process, int) {
	if c.TotalNs < 0 || c.Calls == 0 {
		return nil, -1
	}

	p := f.process(c.Rank, c.Incarnation)
	if p.Node == "" {
		p.Node = c.Node
	}

	k := slices.IndexFunc(p.Talks, func(t talk) bool { return t.Name == c.Group })
	if k < 0 {
		if len(p.Talks) >= mostTalks {
			return nil, -1
		}

		k = len(p.Talks)
		p.Talks = append(p.Talks, talk{Name: c.Group, Dim: normalDim(c.Dim)})
	}

	p.Talks[k].P2P = p.Talks[k].P2P || frame.P2P(c.Op)
	return p, k
}

// step places a row, or holds it until it is known what its process is: a restart of the job, or of
// one rank, looks the same at its first row.
func (f *Feed) step(s *row.Step) {
	p := f.note(s)
	if p == nil {
		return
	}

	if p.Settled && !f.Dirty && f.world != nil {
		f.placeRow(p, s)
		return
	}

	p.Held = append(p.Held, *s)
	f.Held++
}

// note takes what layouts need of a row, and returns its process; nil for a row that
// says nothing, and for a step that never ended, which is counted.
func (f *Feed) note(s *row.Step) *process {
	if s.Flags&row.FlagOpen != 0 {
		f.Open++
		return nil
	}

	// A number so high would overflow int64 in what is computed from it; no job counts so far.
	if s.StepNs < 0 || s.Step > 1<<62 {
		return nil
	}

	p := f.process(s.Rank, s.Incarnation)
	f.sample(p, s)
	return p
}

// Settle decides what new processes are and places the rows that they hold.
func (f *Feed) Settle(topo *topology.File, all bool) {
	if f.Dirty || f.world == nil {
		rows := f.Rows
		if !f.build(topo) {
			return
		}

		// Rows are ranks in order, so a new rank moves those behind it in every column that waits.
		if !slices.Equal(rows, f.Rows) {
			f.remap(rows)
		}

		if l := f.layout; l != nil && l.Attempt < f.world.attempts {
			f.arrange(l.Attempt)
		}
	}

	if f.Held == 0 {
		return
	}

	f.each(func(p *process) {
		if len(p.Held) == 0 || !p.Settled && p.Later && !all && !f.alone(p) {
			return
		}

		p.Settled = true
		for k := range p.Held {
			f.placeRow(p, &p.Held[k])
		}

		f.Held -= len(p.Held)
		p.Held = nil
	})
}

// arrange makes the layout of an attempt anew. One that is as it was stays the same
// pointer: a new one tells the engine that something changed.
func (f *Feed) arrange(attempt int) {
	l := f.world.layout(attempt)
	if f.layout == nil || !reflect.DeepEqual(f.layout, l) {
		f.layout = l
	}

	current, _ := f.world.current(attempt)
	f.owners = make([]uint16, len(current))
	for k, p := range current {
		if p != nil {
			f.owners[k] = p.turn
		}
	}
}

// alone reports whether the others went on after p began: it was restarted alone.
func (f *Feed) alone(p *process) bool {
	if p.Held[len(p.Held)-1].StartNs-p.EarlyNs > launchSpread {
		return true
	}

	// By the time that was recorded: a job in which nobody goes on may be starting as a whole.
	others, went := 0, 0
	f.each(func(q *process) {
		if q.Rank == p.Rank || !q.Settled || q.Attempt != p.Attempt {
			return
		}

		others++
		if q.LastStart > p.EarlyNs+aloneAfter {
			went++
		}
	})
	return 2*went > others
}

// placeRow puts one row into its column, and counts it.
func (f *Feed) placeRow(p *process, s *row.Step) {
	var x step
	x.of(s)
	if f.place(p, &x) {
		f.accept(s)
	}
}

// accept counts a row.
func (f *Feed) accept(s *row.Step) {
	f.Accepted++
	if s.Flags&row.FlagEstimated != 0 {
		f.Estimated++
	}

	if s.Flags&row.FlagHostOnly != 0 {
		f.HostOnly++
	}
}

// place puts one step of a process into its column. It reports whether it belongs there.
func (f *Feed) place(p *process, s *step) bool {
	k := p.row
	if k < 0 {
		return false
	}

	// A row that comes late, or twice, says nothing of how far its process is.
	if s.StartNs > p.LastStart || p.LastStart == 0 {
		if p.LastStart != 0 && s.Step <= p.LastStep {
			p.Run++
		}

		p.LastStep, p.LastStart = s.Step, s.StartNs
	}

	at := place{Attempt: p.Attempt, Run: p.Run, Step: s.Step, Repeat: s.Repeat}
	if p.Later {
		f.join(&at)
	}

	col := f.column(at)
	if col == nil {
		f.gone(at, k, p.turn)
		return false
	}

	p.at = col.Place
	if col.Owner[k] >= p.turn {
		return false // filled by this process or a later one of its rank: the row came twice, or the step was done again
	}

	col.Owner[k] = p.turn
	col.Newest = max(col.Newest, s.EndNs)
	// The start of the lowest rank stands for the column, for whoever looks at it must find the same one
	// in whatever order rows come. A process that joined later has begun its step somewhere in the middle.
	if !p.Later && (col.StartRow < 0 || k <= col.StartRow) {
		col.StartRow, col.StartNs = k, s.StartNs
	}

	col.set(k, s)
	f.Newest[k] = max(f.Newest[k], s.StartNs)
	return true
}

// join finds the newest return of a step: a process that joined later takes part in it.
func (f *Feed) join(at *place) {
	run := at.Run
	for _, c := range f.Pending {
		if c.Place.Attempt == at.Attempt && c.Place.Step == at.Step && c.Place.Repeat >= at.Repeat {
			at.Run, at.Repeat = c.Place.Run, c.Place.Repeat
		}
	}

	if last := f.last(); at.Run == run && last != nil && last.Place.Attempt == at.Attempt {
		at.Run = max(run, last.Place.Run)
	}
}

// last is the newest column that went, nil before the first.
func (f *Feed) last() *column {
	if n := len(f.Recent); n > 0 {
		return f.Recent[n-1]
	}

	return nil
}

// gone takes a row whose column went already, and counts it where the column went without it.
func (f *Feed) gone(at place, k int, owner uint16) {
	for _, r := range f.Recent {
		if r.Place.Same(at) {
			if r.Owner[k] == 0 {
				f.Late++
				r.Owner[k] = owner
			}

			return
		}
	}
}
