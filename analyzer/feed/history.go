package feed

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// ErrEmpty is returned by Settle when no step of any rank was given.
var ErrEmpty = errors.New("no steps were recorded")

// History is the feed of a job all of whose rows are there. They come in any order and
// may come twice; then Settle says who is who, and Play hands over the columns. A column
// waits for every process that may still have a row in it, however long: rows are sorted
// by their starts, so that few columns wait at a time. Hosts whose clocks differ make
// more of them wait, and change nothing else.
//
// The zero value is ready to use. Rows are copied.
type History struct {
	// Rows go to the feed twice: at once for who is who, and by their starts, out of the spool, for the
	// columns.
	feed       *Feed
	job        string
	rows       spool
	err        error      // of the spool
	processes  []*process // by their numbers
	operations record.Words
	switched   int // rows
	frame      *frame.Frame

	// What was read again of windows, while it is played: the windows of one group come from each of
	// its ranks, and are one transfer when the job has passed their last step.
	groups    []frame.Transfer // of each group, without anything measured
	transfers map[transferKey]*frame.Transfer

	// Until bound has chosen which steps are left out.
	steps map[place]int32 // rows of each
	left  map[place]bool  // steps that are left out
}

// historySamples is how many steps of each process roles are guessed from.
const historySamples = 256

// init makes the feed with the first row, so that the zero value is of use.
func (h *History) init(job string) {
	if h.feed == nil {
		h.feed = New()
		h.feed.samples = historySamples
		h.steps = map[place]int32{}
	}

	h.job = cmp.Or(h.job, job)
}

// Add takes ranks, steps and communications. They may be the caller's again when it returns.
func (h *History) Add(rows *row.Rows) {
	for i := range rows.Ranks {
		h.AddRank(&rows.Ranks[i])
	}

	for i := range rows.Steps {
		h.AddStep(&rows.Steps[i])
	}

	for i := range rows.Communications {
		h.AddCommunication(&rows.Communications[i])
	}
}

// AddRank takes the identity of one process; the highest version counts.
func (h *History) AddRank(r *row.Rank) {
	h.init(r.Job)
	h.feed.identity(r)
}

// AddStep takes one step of one rank. A step that never ended has no duration worth
// comparing and is only counted.
func (h *History) AddStep(s *row.Step) {
	h.init(s.Job)
	p := h.feed.note(s)
	if p == nil {
		return
	}

	h.feed.accept(s)
	h.steps[place{Step: int64(s.Step), Repeat: int32(s.Repeat)}]++
	if s.Flags&row.FlagSwitched != 0 {
		h.switched++
	}

	p.waiting++
	var x step
	x.of(s)
	number := h.number(p)
	h.keep(s.StartNs, func(b []byte) []byte { return x.append(append(b, isStep), number) })
}

// AddCommunication takes one window of one rank's communication in one group.
func (h *History) AddCommunication(c *row.Communication) {
	h.init(c.Job)
	p, talk := h.feed.communication(c)
	if talk < 0 {
		return
	}

	w := windowOf(c)
	w.Process, w.Talk, w.Op = h.number(p), int32(talk), h.operations.Add(c.Op)
	h.keep(c.StartNs, func(b []byte) []byte {
		b, err := binary.Append(append(b, isWindow), binary.LittleEndian, w)
		if err != nil {
			panic("BUG: write window: " + err.Error())
		}

		return b
	})
}

// keep spools a record up to the first error; Settle returns that, since those who add rows take none.
func (h *History) keep(at int64, write func([]byte) []byte) {
	if h.err == nil {
		h.err = h.rows.add(at, write)
	}
}

// number numbers a process, from 0.
func (h *History) number(p *process) int32 {
	if p.number == 0 {
		h.processes = append(h.processes, p)
		p.number = int32(len(h.processes))
	}

	return p.number - 1
}

// Kinds of records in the spool.
const (
	isStep byte = iota
	isWindow
)

// append writes a step: process, key, passes, which metrics there are, and these.
func (s *step) append(b []byte, process int32) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint32(b, uint32(process)), uint64(s.Step))
	b = le.AppendUint16(le.AppendUint16(b, uint16(s.Repeat)), uint16(min(s.Passes, math.MaxUint16)))
	at := len(b)
	b = append(b, 0, 0)
	bits := uint16(0)
	for m, x := range &s.V {
		if x == x {
			bits |= 1 << m
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	}

	le.PutUint16(b[at:], bits)
	return b
}

// read is append's other way. StartNs is the spool's.
func (s *step) read(b []byte) (process int32) {
	le := binary.LittleEndian
	process, s.Step = int32(le.Uint32(b)), int64(le.Uint64(b[4:]))
	s.Repeat, s.Passes = int32(le.Uint16(b[12:])), int(le.Uint16(b[14:]))
	bits := le.Uint16(b[16:])
	b = b[18:]
	for m := range s.V {
		s.V[m] = frame.NaN
		if bits&(1<<m) != 0 {
			s.V[m] = math.Float32frombits(le.Uint32(b))
			b = b[4:]
		}
	}

	return process
}

// Settle returns what is known of the job before its steps are looked at. topo is what
// is known of nodes and groups beside the rows, nil where that is nothing. ErrEmpty is
// returned when no step was given, and recording was not off.
func (h *History) Settle(topo *topology.File) (*frame.Frame, error) {
	h.init("")
	if h.err != nil {
		return nil, h.err
	}

	q := h.feed
	f := &frame.Frame{Job: h.job, Off: q.Off()}
	h.frame = f
	if q.Accepted == 0 {
		if f.Off == nil {
			return nil, ErrEmpty
		}

		return f, nil
	}

	f.Estimated, f.HostOnly = float64(q.Estimated)/float64(q.Accepted), float64(q.HostOnly)/float64(q.Accepted)
	f.Overlap = q.Overlap()
	if q.Open > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d steps never ended (their process is gone) and were left out", q.Open))
	}

	if h.switched > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("in %d rank-steps the switch changed: their communication was left out", h.switched))
	}

	if err := h.rows.noFile; err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("rows were kept in memory: %v", err))
	}

	q.Settle(topo, true)
	w := q.world
	f.WorldSize, f.Ranks, f.Attempts = w.size, w.ranks, w.attempts
	h.bound(f)
	return f, nil
}

// sparseCells bounds the cells of a job against its rows, so that a few rows with wild
// step numbers can't ask for work.
const sparseCells = 64

// bound leaves the steps out that the fewest ranks recorded until there are not too many.
func (h *History) bound(f *frame.Frame) {
	// Room is for sparseCells cells a row, and for a million in any case.
	most := max(1, (sparseCells*int(h.feed.Accepted)+1<<20)/len(f.Ranks))
	if len(h.steps) <= most {
		h.steps = nil
		return
	}

	all := slices.SortedFunc(maps.Keys(h.steps), func(a, b place) int {
		return cmp.Or(cmp.Compare(h.steps[b], h.steps[a]), a.Compare(b))
	})
	h.steps, h.left = nil, map[place]bool{}
	for _, at := range all[most:] {
		h.left[at] = true
	}

	f.Notes = append(f.Notes, fmt.Sprintf("%d steps that few ranks recorded were left out to bound the work", len(h.left)))
}

// Play hands over the job's steps in order, once, after Settle, and each window of a group's
// communication after its last step: on a goroutine of their own, one call after the other,
// while rows of later steps are read. Both are valid during the call only. The frame that Settle returned learns the steps:
// their keys, and of the metrics that are named the values.
func (h *History) Play(step func(*frame.Column), window func(*frame.Transfer), metrics ...frame.Metric) error {
	f := h.frame
	if h.feed.Accepted == 0 {
		return nil
	}

	calls, dropped := make(chan func(), 4), 0
	var caller sync.WaitGroup
	caller.Go(func() {
		for call := range calls {
			call()
		}
	})
	err := h.play(func(c *frame.Column) {
		calls <- func() {
			if !f.Add(c, metrics) {
				dropped++
			}

			step(c)
		}
	}, func(x *frame.Transfer) { calls <- func() { window(x) } })
	close(calls)
	caller.Wait()
	if err != nil {
		return err
	}

	w := h.feed.world
	f.Notes = append(f.Notes, w.notes...)
	if dropped > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the last %d steps are not drawn, to bound memory", dropped))
	}

	return nil
}

// play reads the spool, and hands over steps and windows as soon as they are whole.
func (h *History) play(onStep func(*frame.Column), onWindow func(*frame.Transfer)) error {
	q := h.feed
	q.passed = h.passed()
	h.talked()
	observe := func(c *frame.Column) {
		h.handOver(c.Attempt, c.Step, onWindow)
		onStep(c)
	}
	var s step
	w := &window{}
	err := h.rows.each(func(at int64, b []byte) error {
		if b[0] == isWindow {
			if _, err := binary.Decode(b[1:], binary.LittleEndian, w); err != nil {
				panic("BUG: read window: " + err.Error())
			}

			p := h.processes[w.Process]
			h.transfer(p, w)
			return nil
		}

		p := h.processes[s.read(b[1:])]
		// Of a column that waits for completeness alone the end is of no use, and is not spooled.
		s.StartNs, s.EndNs = at, at
		p.waiting--
		if h.left == nil || !h.left[place{Step: s.Step, Repeat: s.Repeat}] {
			q.place(p, &s)
			p.begun = true
		}

		q.Release(More, 0, observe)
		return nil
	})
	if err != nil {
		return err
	}

	q.Release(Over, 0, observe)
	h.handOver(math.MaxInt, 0, onWindow)
	return nil
}

// Frame is Settle and Play for whoever wants all metrics of all steps.
func (h *History) Frame(topo *topology.File) (*frame.Frame, error) {
	f, err := h.Settle(topo)
	if err != nil {
		return nil, err
	}

	var all []frame.Metric
	for m := range frame.MetricCount {
		all = append(all, m)
	}

	keep := func(t *frame.Transfer) { f.Transfers = append(f.Transfers, *t) }
	return f, h.Play(func(*frame.Column) {}, keep, all...) // the frame has the columns already
}

// passed returns what reports whether no process can have another row in a column.
func (h *History) passed() func(*column) bool {
	all := slices.Concat(h.feed.Ranks...)
	var at place // of the column that was asked for last,
	next := 0    // and the first process that it may wait for
	return func(c *column) bool {
		if at != c.Place {
			at, next = c.Place, 0
		}

		for next < len(all) && !all[next].mayBeIn(c.Place) {
			next++
		}

		return next == len(all)
	}
}

// mayBeIn reports whether a row of the process that was not placed yet may belong to a
// column.
func (p *process) mayBeIn(c place) bool {
	switch {
	case p.waiting == 0:
		return false
	case p.Attempt != c.Attempt:
		return p.Attempt < c.Attempt
	case !p.begun:
		return c.Run > 0 || c.Step >= p.First.Step
	}

	return c.Compare(p.at) > 0
}
