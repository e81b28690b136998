// Package feed turns the rows of a job, as they come, into columns: one step of the
// whole job each, in the order the job ran them, with the layout that says who is who.
//
// Invariant: the columns and their order are those of a frame built of the same rows at
// once, as long as no row is later than the lag. Memory is bounded by ranks and by the
// lag, not by steps.
//
// Caveat: rows of one process come in the order of their starts.
package feed

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// fed remembers who was in a column that the engine has seen.
type fed struct {
	ID    columnID
	Owner []uint16
}

// Feed puts rows of steps together into columns and lets them go in order, each
// when every rank that is there has its row in it, or when the lag is used up. It is
// used by one goroutine.
type Feed struct {
	Processes *processes
	Held      int // rows in process.Held
	Pending   []*column
	Missed    []uint16 // columns in a row that each row was missing in
	Seen      []int64  // start of the newest step of each row
	Recent    []fed    // the last columns that went, a ring
	Next      int
	Last      column // the newest that went; its values are gone
	Begun     bool

	Accepted, Estimated, HostOnly uint64 // rows
	Open, Late, Again             uint64
	Columns                       uint64

	latest *column // of Pending: where the last row went
	spare  []*column
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
	// launchSpread is the frame's: what appears within it belongs to one launch.
	launchSpread = int64(300e9)
)

// New returns an empty Feed.
func New() *Feed { return &Feed{Processes: newProcesses()} }

// Add takes a portion of rows. Steps of one process come in the order of their
// starts; a row may come twice.
func (f *Feed) Add(rows *row.Rows) {
	for i := range rows.Ranks {
		f.Processes.identity(&rows.Ranks[i])
	}
	for i := range rows.Communications {
		f.Processes.communication(&rows.Communications[i])
	}
	for i := range rows.Steps {
		f.step(&rows.Steps[i])
	}
}

func (f *Feed) step(s *row.Step) {
	if s.Flags&row.FlagOpen != 0 {
		f.Open++
		return
	}
	if s.StepNs < 0 || s.Step > 1<<62 {
		return
	}
	p := f.Processes.process(s.Rank, s.Incarnation)
	f.Processes.step(p, s)
	if p.Settled && !f.Processes.Dirty {
		f.place(p, s)
		return
	}
	p.Held = append(p.Held, *s)
	f.Held++
}

// Settle decides what new processes are and places the rows that they hold.
func (f *Feed) Settle(topo *topology.File, all bool) {
	r := f.Processes
	if r.Dirty {
		rows := r.Rows
		if !r.build(topo, r.Inferred) {
			return
		}
		if r.Inferred {
			r.build(topo, true)
		}
		if !slices.Equal(rows, r.Rows) {
			f.remap(rows)
		}
	}
	if f.Held == 0 {
		return
	}
	for _, rank := range r.Order {
		for _, p := range r.Ranks[rank] {
			if len(p.Held) == 0 || !p.Placed || !p.Settled && p.Later && !all && !f.alone(p) {
				continue
			}
			p.Settled = true
			for k := range p.Held {
				f.place(p, &p.Held[k])
			}
			f.Held -= len(p.Held)
			p.Held = nil
		}
	}
}

// alone reports whether the others went on after p began: it was restarted alone.
func (f *Feed) alone(p *process) bool {
	if p.Held[len(p.Held)-1].StartNs-p.Early.StartNs > launchSpread {
		return true
	}
	others, went := 0, 0
	for _, list := range f.Processes.Ranks {
		for _, q := range list {
			if q.Rank == p.Rank || !q.Settled || q.Attempt != p.Attempt {
				continue
			}
			others++
			if q.LastStart > p.Early.StartNs+aloneAfter {
				went++
			}
		}
	}
	return 2*went > others
}

// remap moves pending columns to the rows of a job with other ranks.
func (f *Feed) remap(old []int) {
	to := make([]int, len(old))
	for i, rank := range old {
		to[i] = f.Processes.row(uint32(rank))
	}
	n := len(f.Processes.Rows)
	move := func(v []float32) []float32 {
		if v == nil {
			return nil
		}
		out := make([]float32, n)
		for i := range out {
			out[i] = frame.NaN
		}
		for i, x := range v {
			if to[i] >= 0 {
				out[to[i]] = x
			}
		}
		return out
	}
	owners := func(v []uint16) []uint16 {
		out := make([]uint16, n)
		for i, x := range v {
			if i < len(to) && to[i] >= 0 {
				out[to[i]] = x
			}
		}
		return out
	}
	for _, c := range f.Pending {
		c.Owner = owners(c.Owner)
		for m := range c.V {
			c.V[m] = move(c.V[m])
		}
		if c.StartRow >= 0 && c.StartRow < len(to) {
			c.StartRow = to[c.StartRow]
		}
	}
	for i := range f.Recent {
		f.Recent[i].Owner = owners(f.Recent[i].Owner)
	}
	f.Missed = owners(f.Missed)
	seen := make([]int64, n)
	for i, x := range f.Seen {
		if i < len(to) && to[i] >= 0 {
			seen[to[i]] = x
		}
	}
	f.Seen = seen
	f.spare = nil
}

// place puts one row into its column.
func (f *Feed) place(p *process, s *row.Step) {
	k := f.Processes.row(s.Rank)
	if k < 0 {
		return
	}
	step, repeat := int64(s.Step), int32(s.Repeat)
	if s.StartNs > p.LastStart || p.LastStart == 0 {
		if p.LastStart != 0 && step <= p.LastStep {
			p.Run++
		}
		p.LastStep, p.LastStart = step, s.StartNs
	}
	run := p.Run
	if p.Later {
		run, repeat = f.join(p, step, repeat)
	}
	owner := f.owner(p)
	col := f.column(p.Attempt, run, step, repeat)
	if col == nil {
		f.gone(columnID{p.Attempt, step, repeat}, k, owner)
		return
	}
	switch had := col.Owner[k]; {
	case had >= owner:
		f.Again++
		return
	case had == 0:
		col.Rows++
	}
	f.Accepted++
	if s.Flags&row.FlagEstimated != 0 {
		f.Estimated++
	}
	if s.Flags&row.FlagHostOnly != 0 {
		f.HostOnly++
	}
	col.Owner[k] = owner
	col.Newest = max(col.Newest, s.StartNs+s.StepNs)
	if !p.Later && (col.StartRow < 0 || k <= col.StartRow) {
		col.StartRow, col.StartNs = k, s.StartNs
	}
	col.set(k, s)
	f.grow()
	f.Seen[k] = max(f.Seen[k], s.StartNs)
}

// column finds or makes a column, nil when it has gone already.
func (f *Feed) column(attempt, run int, step int64, repeat int32) *column {
	if c := f.latest; c != nil && c.Attempt == attempt && c.Run == run && c.Step == step && c.Repeat == repeat {
		return c
	}
	key := column{Attempt: attempt, Run: run, Step: step, Repeat: repeat}
	at, ok := f.find(&key)
	if !ok {
		if f.Begun && order(&key, &f.Last) <= 0 {
			return nil
		}
		f.Pending = slices.Insert(f.Pending, at, f.fresh(key))
	}
	f.latest = f.Pending[at]
	return f.latest
}

// owner numbers the processes of a rank by their start, from 1.
func (f *Feed) owner(p *process) uint16 {
	n := uint16(1)
	if p.Alone {
		return n
	}
	for _, q := range f.Processes.Ranks[p.Rank] {
		if q != p && (q.begin() < p.begin()) && n < math.MaxUint16 {
			n++
		}
	}
	return n
}

// join finds the newest return of a step that a process which joined later takes
// part in.
func (f *Feed) join(p *process, step int64, repeat int32) (run int, rep int32) {
	run, rep = p.Run, repeat
	for _, c := range f.Pending {
		if c.Attempt == p.Attempt && c.Step == step && c.Repeat >= rep {
			run, rep = c.Run, c.Repeat
		}
	}
	if run == p.Run && f.Begun && f.Last.Attempt == p.Attempt {
		run = max(run, f.Last.Run)
	}
	return run, rep
}

// find returns where the column is in Pending, or belongs. A column that is there
// under an earlier run stays where it is.
func (f *Feed) find(c *column) (int, bool) {
	at, ok := slices.BinarySearchFunc(f.Pending, c, order)
	if ok {
		return at, true
	}
	for i, x := range f.Pending {
		if x.Run != c.Run && x.id() == c.id() {
			return i, true
		}
	}
	return at, false
}

// gone counts a row whose column went already.
func (f *Feed) gone(id columnID, k int, owner uint16) {
	for i := range f.Recent {
		if r := &f.Recent[i]; r.ID == id {
			if r.Owner[k] == 0 {
				f.Late++
				r.Owner[k] = owner
				return
			}
			break
		}
	}
	f.Again++
}

// fresh returns an empty column, of a spare one's memory where there is one.
func (f *Feed) fresh(key column) *column {
	n := len(f.Processes.Rows)
	c := &column{}
	if k := len(f.spare); k > 0 {
		c = f.spare[k-1]
		f.spare = f.spare[:k-1]
	}
	key.V = c.V
	*c = key
	c.StartRow = -1
	c.Owner = make([]uint16, n)
	for m := range c.V {
		for i := range c.V[m] {
			c.V[m][i] = frame.NaN
		}
	}
	return c
}

// Stale reports whether who is who changed since Settle: it wants the topology then.
func (f *Feed) Stale() bool { return f.Processes.Dirty }

// Off returns when recording was off.
func (f *Feed) Off() []frame.Off { return f.Processes.off() }

// Overlap tells of two runs under the job's name, nil where there is one.
func (f *Feed) Overlap() *frame.Overlap { return f.Processes.overlap() }
