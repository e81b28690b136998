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
	// mostShown bounds the ranges of a timeline.
	mostShown = 1 << 18
)

// Aligner makes the Timeline of a step: it takes ranges (Take), and Align puts them side by side.
type Aligner struct {
	made frame.Timeline
	at   *frame.Column
	near *Job // what aligns the clocks: ranges of the steps around it
	held int
	seen bool // a range of the job
}

// NewAligner returns one for a column. It takes the ranges of the ranks that have lines, and
// those of all as far as they tell who was waited for.
func NewAligner(f *frame.Frame, column int, lines []frame.Line) *Aligner {
	c := f.Columns[column]
	return &Aligner{made: frame.Timeline{Step: c.Step, Lines: slices.Clone(lines)}, at: c, near: NewJob()}
}

// Take takes identities and ranges, in any order and in parts; it keeps neither slice.
func (a *Aligner) Take(ranks []row.Rank, records []row.Record) {
	a.near.Take(ranks, nil)
	for i := range records {
		r := &records[i]
		a.seen = true
		if r.Step < a.made.Step-around || r.Step > a.made.Step+around || !a.ours(r) {
			continue
		}

		a.near.Take(nil, records[i:i+1])
		if r.Step != a.made.Step || int(r.Repeat) != a.at.Repeat || a.held >= mostShown {
			continue
		}

		if k := slices.IndexFunc(a.made.Lines, func(l frame.Line) bool { return l.Rank == int(r.Rank) }); k >= 0 {
			a.made.Lines[k].Ranges = append(a.made.Lines[k].Ranges, frame.Range{Record: *r, For: -1})
			a.held++
		}
	}
}

// ours reports whether the range is of the process that ran the step.
func (a *Aligner) ours(r *row.Record) bool {
	l := a.at.Layout
	i, ok := slices.BinarySearch(l.Ranks, int(r.Rank))
	return ok && (l.Incarnation == nil || l.Incarnation[i] == 0 || l.Incarnation[i] == r.Incarnation)
}

// Errors of Align say what the source lacks.
var (
	errNoRanges = errors.New("the source has no ranges, only sums of steps: give the folder with the files, or a store that was filled with --records all")
	errSums     = errors.New("the profiles hold sums of steps and not when anything was: a timeline needs a trace")
)

// Align puts the ranks side by side, once, when all ranges were taken.
func (a *Aligner) Align() (*frame.Timeline, error) {
	if !a.seen {
		return nil, errNoRanges
	}

	if a.held == 0 {
		return nil, fmt.Errorf("no range of step %d of the ranks that are to be shown is in the source; --step names another", a.made.Step)
	}

	var all [][]call
	if !a.near.more {
		all = a.near.collectives()
	}

	var offsets map[uint32]int64
	if len(all) > 0 {
		by, parts, unsure := align(all)
		// Clocks are aligned within a part alone: lines of two parts stand as their hosts' clocks were.
		if a.made.Aligned = a.met(parts); a.made.Aligned {
			offsets, a.made.Unsure = by, seconds(unsure)
		} else {
			all = nil
		}
	}

	waits := a.waits(all)
	a.made.From, a.made.To = 1<<62, -1<<62
	for i := range a.made.Lines {
		l := &a.made.Lines[i]
		l.Node, l.For = a.near.nodes[uint32(l.Rank)], -1
		for k := range l.Ranges {
			r := &l.Ranges[k]
			if r.Op == "all" {
				return nil, errSums
			}

			place(l, r, waits, offsets[r.Rank])
			a.made.From, a.made.To = min(a.made.From, r.StartNs), max(a.made.To, r.StartNs+r.DurNs)
		}

		settle(l)
	}

	return &a.made, nil
}

// met reports whether the ranks that are shown are of one part.
func (a *Aligner) met(parts map[uint32]int) bool {
	if len(a.made.Lines) == 0 {
		return false
	}

	first := parts[uint32(a.made.Lines[0].Rank)]
	return first != 0 && !slices.ContainsFunc(a.made.Lines, func(l frame.Line) bool { return parts[uint32(l.Rank)] != first })
}

// partOf finds a rank's part in a collective again by its range.
func partOf(rank uint32, op string, start, end int64) call {
	return call{rank: rank, op: op, start: start, end: end}
}

// waits are, by each rank's part in the step's collectives, the last to enter.
func (a *Aligner) waits(all [][]call) map[call]call {
	waits := map[call]call{}
	for _, members := range all {
		if members[0].step != a.made.Step || int(members[0].repeat) != a.at.Repeat {
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
func place(l *frame.Line, r *frame.Range, waits map[call]call, offset int64) {
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

// settle sorts the ranges of a rank and sums them up.
func settle(l *frame.Line) {
	slices.SortStableFunc(l.Ranges, func(a, b frame.Range) int {
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
