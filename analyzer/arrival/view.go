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

// View is one step of a few ranks on one clock: who computes, who waits for whom. It takes ranges
// (Take), and Align puts them side by side.
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

	at   *frame.Column
	near *Job
	held int
	seen bool // a range of the job
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

// NewView returns a view of a column without its ranges. It takes those of the ranks that have lines, and
// those of all as far as they tell who was waited for.
func NewView(f *frame.Frame, column int, lines []Line) *View {
	c := f.Columns[column]
	return &View{Step: c.Step, Lines: slices.Clone(lines), at: c, near: NewJob()}
}

// Take takes identities and ranges, in any order and in parts; it keeps neither slice.
func (v *View) Take(ranks []row.Rank, records []row.Record) {
	v.near.Take(ranks, nil)
	for i := range records {
		r := &records[i]
		v.seen = true
		if r.Step < v.Step-around || r.Step > v.Step+around || !v.ours(r) {
			continue
		}

		v.near.Take(nil, records[i:i+1])
		if r.Step != v.Step || int(r.Repeat) != v.at.Repeat || v.held >= mostShown {
			continue
		}

		if k := slices.IndexFunc(v.Lines, func(l Line) bool { return l.Rank == int(r.Rank) }); k >= 0 {
			v.Lines[k].Ranges = append(v.Lines[k].Ranges, Range{Record: *r, For: -1})
			v.held++
		}
	}
}

// ours reports whether the range is of the process that ran the step.
func (v *View) ours(r *row.Record) bool {
	l := v.at.Layout
	i, ok := slices.BinarySearch(l.Ranks, int(r.Rank))
	return ok && (l.Incarnation == nil || l.Incarnation[i] == 0 || l.Incarnation[i] == r.Incarnation)
}

// Errors of Align say what the source lacks.
var (
	errNoRanges = errors.New("the source has no ranges, only sums of steps: give the folder with the files, or a store that was filled with --records all")
	errSums     = errors.New("the profiles hold sums of steps and not when anything was: a timeline needs a trace")
)

// Align puts the ranks side by side, once, when all ranges were taken.
func (v *View) Align() error {
	if !v.seen {
		return errNoRanges
	}

	if v.held == 0 {
		return fmt.Errorf("no range of step %d of the ranks that are to be shown is in the source; --step names another", v.Step)
	}

	var all [][]call
	if !v.near.more {
		all = v.near.collectives()
	}

	var offsets map[uint32]int64
	if len(all) > 0 {
		by, parts, unsure := align(all)
		// Clocks are aligned within a part alone: lines of two parts stand as their hosts' clocks were.
		if v.Aligned = v.met(parts); v.Aligned {
			offsets, v.Unsure = by, seconds(unsure)
		} else {
			all = nil
		}
	}

	waits := v.waits(all)
	v.From, v.To = 1<<62, -1<<62
	for i := range v.Lines {
		l := &v.Lines[i]
		l.Node, l.For = v.near.nodes[uint32(l.Rank)], -1
		for k := range l.Ranges {
			r := &l.Ranges[k]
			if r.Op == "all" {
				return errSums
			}

			l.place(r, waits, offsets[r.Rank])
			v.From, v.To = min(v.From, r.StartNs), max(v.To, r.StartNs+r.DurNs)
		}

		l.settle()
	}

	return nil
}

// met reports whether the ranks that are shown are of one part.
func (v *View) met(parts map[uint32]int) bool {
	if len(v.Lines) == 0 {
		return false
	}

	first := parts[uint32(v.Lines[0].Rank)]
	return first != 0 && !slices.ContainsFunc(v.Lines, func(l Line) bool { return parts[uint32(l.Rank)] != first })
}

// partOf finds a rank's part in a collective again by its range.
func partOf(rank uint32, op string, start, end int64) call {
	return call{rank: rank, op: op, start: start, end: end}
}

// waits are, by each rank's part in the step's collectives, the last to enter.
func (v *View) waits(all [][]call) map[call]call {
	waits := map[call]call{}
	for _, members := range all {
		if members[0].step != v.Step || int(members[0].repeat) != v.at.Repeat {
			continue
		}

		last := slices.MaxFunc(members, byStart) // of those at one time the first listed
		for _, m := range members {
			waits[partOf(m.rank, m.op, m.start, m.end)] = last
		}
	}

	return waits
}

// place moves a range of the rank to the common clock, and says who was waited for in it.
func (l *Line) place(r *Range, waits map[call]call, offset int64) {
	if r.Node != "" {
		l.Node = r.Node
	}

	r.StartNs -= offset
	if r.HostStartNs != 0 {
		r.HostStartNs -= offset
	}

	last, met := waits[partOf(r.Rank, r.Op, r.StartNs, r.StartNs+r.DurNs)]
	if met && r.Kind == "Communication" {
		l.Collectives++
		switch {
		case last.rank == r.Rank:
			l.Last++
		case last.start > r.StartNs:
			r.Waits, r.For = min(last.start-r.StartNs, r.DurNs), int(last.rank)
		}
	}
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
