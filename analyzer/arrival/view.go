package arrival

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

const (
	// around is how many steps before and after it help to align a step's clocks: more ends make them
	// surer, and clocks drift little in a few steps.
	around = 8
	// mostShown bounds the ranges of a view.
	mostShown = 1 << 18
)

// View is one step of a few ranks on one clock: who computes, who waits for whom.
type View struct {
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

// Line is a rank in a View.
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

// Step collects the ranges of one step.
type Step struct {
	at      *frame.Column
	shown   []Shown
	records map[uint32][]row.Record
	near    *Job
	held    int
	seen    bool // a range of the job
}

// NewStep returns a collector of a column's ranges: of the ranks that are shown, and of all as far as
// they tell who was waited for.
func NewStep(f *frame.Frame, column int, shown []Shown) *Step {
	s := &Step{at: f.Columns[column], shown: shown, records: map[uint32][]row.Record{}, near: NewJob()}
	for _, x := range shown {
		s.records[uint32(x.Rank)] = nil
	}

	return s
}

// Take takes identities and ranges, in any order and in parts; it keeps neither slice.
func (s *Step) Take(ranks []row.Rank, records []row.Record) {
	s.near.Take(ranks, nil)
	for i := range records {
		r := &records[i]
		s.seen = true
		if r.Step < s.at.Step-around || r.Step > s.at.Step+around || !s.ours(r) {
			continue
		}

		s.near.Take(nil, records[i:i+1])
		kept, shown := s.records[r.Rank]
		if shown && r.Step == s.at.Step && int(r.Repeat) == s.at.Repeat && s.held < mostShown {
			s.records[r.Rank] = append(kept, *r)
			s.held++
		}
	}
}

// ours reports whether the range is of the process that ran the step.
func (s *Step) ours(r *row.Record) bool {
	l := s.at.Layout
	i, ok := slices.BinarySearch(l.Ranks, int(r.Rank))
	return ok && (l.Incarnation == nil || l.Incarnation[i] == 0 || l.Incarnation[i] == r.Incarnation)
}

// Errors of View say what the source lacks.
var (
	errNoRanges = errors.New("the source has no ranges, only sums of steps: give the folder with the files, or a store that was filled with --records all")
	errSums     = errors.New("the profiles hold sums of steps and not when anything was: a timeline needs a trace")
)

// View puts the ranks side by side.
func (s *Step) View() (*View, error) {
	if !s.seen {
		return nil, errNoRanges
	}

	if s.held == 0 {
		return nil, fmt.Errorf("no range of step %d of the ranks that are to be shown is in the source; --step names another", s.at.Step)
	}

	v := &View{Step: s.at.Step, From: 1 << 62, To: -1 << 62}
	var all [][]call
	if !s.near.more {
		all = s.near.collectives()
	}

	var c clocks
	if len(all) > 0 {
		c = align(all)
		v.Unsure = seconds(c.unsure)
	}

	// Clocks are aligned within a part alone: lines of two parts stand as their hosts' clocks were.
	v.Aligned = s.met(&c)
	if !v.Aligned {
		c, all, v.Unsure = clocks{}, nil, 0
	}

	waits := s.waits(all, &c)
	sums := false
	for _, x := range s.shown {
		l := Line{Rank: x.Rank, Node: s.near.nodes[uint32(x.Rank)], Part: x.Part, For: -1}
		for _, r := range s.records[uint32(x.Rank)] {
			sums = sums || r.Op == "all"
			l.add(r, waits, &c)
		}

		l.settle()
		for i := range l.Ranges {
			r := &l.Ranges[i]
			v.From, v.To = min(v.From, r.StartNs), max(v.To, r.StartNs+r.DurNs)
		}

		v.Lines = append(v.Lines, l)
	}

	if sums {
		return nil, errSums
	}

	return v, nil
}

// met reports whether the ranks that are shown are of one part.
func (s *Step) met(c *clocks) bool {
	if len(s.shown) == 0 {
		return false
	}

	first := c.parts[uint32(s.shown[0].Rank)]
	for _, x := range s.shown {
		if p := c.parts[uint32(x.Rank)]; p == 0 || p != first {
			return false
		}
	}

	return true
}

// partOf finds a rank's part in a collective again by its range.
func partOf(rank uint32, op string, start, end int64) call {
	return call{rank: rank, op: op, start: start, end: end}
}

// waits are, by each rank's part in the step's collectives, the last to enter.
func (s *Step) waits(all [][]call, c *clocks) map[call]*call {
	waits := map[call]*call{}
	for _, members := range all {
		if members[0].step != s.at.Step || int(members[0].repeat) != s.at.Repeat {
			continue
		}

		_, last := c.entries(members)
		for _, m := range members {
			waits[partOf(m.rank, m.op, m.start, m.end)] = last
		}
	}

	return waits
}

// add takes a range of the rank, and moves it to the common clock.
func (l *Line) add(r row.Record, waits map[call]*call, c *clocks) {
	last, met := waits[partOf(r.Rank, r.Op, r.StartNs, r.StartNs+r.DurNs)]
	if r.Node != "" {
		l.Node = r.Node
	}

	offset := c.offsets[r.Rank]
	x := Range{Record: r, For: -1}
	x.StartNs -= offset
	if x.HostStartNs != 0 {
		x.HostStartNs -= offset
	}

	if met && r.Kind == "Communication" {
		l.Collectives++
		switch {
		case last.rank == r.Rank:
			l.Last++
		case c.entry(last) > x.StartNs:
			x.Waits, x.For = min(c.entry(last)-x.StartNs, x.DurNs), int(last.rank)
		}
	}

	l.Ranges = append(l.Ranges, x)
}

// settle sorts the ranges and sums them up.
func (l *Line) settle() {
	slices.SortStableFunc(l.Ranges, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(b.DurNs, a.DurNs))
	})
	of := map[int]int64{}
	var blocked, waited int64
	for i := range l.Ranges {
		r := &l.Ranges[i]
		switch r.Kind {
		case "Step":
			l.Length = max(l.Length, seconds(r.DurNs))
		case "Communication":
			l.Communications++
			blocked += r.Blocked()
			if r.For >= 0 {
				w := min(r.Waits, r.Blocked())
				waited += w
				of[r.For] += w
			}
		}
	}

	l.Blocked, l.Waited = seconds(blocked), seconds(waited)
	for rank, w := range of {
		if w > 0 && (l.For < 0 || w > of[l.For] || w == of[l.For] && rank < l.For) {
			l.For = rank
		}
	}
}
