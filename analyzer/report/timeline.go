package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Timeline writes one step of a few ranks in words and numbers: who worked, who waited for whom.
func (p *Printer) Timeline(v *frame.Timeline) error {
	p.printf("\n%s\n", p.in(bold, fmt.Sprintf("Step %d, side by side", v.Step)))
	p.wrapped("  ", TimelineClocks(v))
	aligned(p, []string{"RANK", "NODE", "", "STEP", "COMMUNICATES", "WAITED", "MOST FOR", "LAST IN"}, timelineRows(v), nil, nil)
	return p.err
}

// TimelineClocks says by which clocks the ranks of a step stand side by side, and how sure that is.
func TimelineClocks(v *frame.Timeline) string {
	if !v.Aligned {
		return "The ranks stand by their hosts' clocks as they were: no collective was recorded that all of them share and that ends on its members together, so who waits for whom isn't known."
	}

	return fmt.Sprintf("The ranks' clocks are aligned where collectives end, sure to ± %s. Communication counts as far as the trainer was blocked in it; what of that came before the last rank entered is waiting.", seconds(v.Unsure))
}

// timelineRows are the ranks of a step as words: rank, node, part, step, blocked, waited,
// for whom most, last in.
func timelineRows(v *frame.Timeline) (rows [][]string) {
	for _, l := range v.Lines {
		step, blocked, waited, most, last := "–", "–", "–", "–", "–"
		if l.Length > 0 {
			step = seconds(l.Length)
		}

		if l.Communications > 0 {
			blocked = seconds(l.Blocked)
		}

		if l.Collectives > 0 {
			waited, last = seconds(l.Waited), fmt.Sprintf("%d of %d", l.Last, l.Collectives)
		}

		if l.For >= 0 {
			most = fmt.Sprintf("rank %d", l.For)
		}

		rows = append(rows, []string{fmt.Sprint(l.Rank), plain(l.Node), l.Part, step, blocked, waited, most, last})
	}

	return rows
}

// The picture of a step, in units of its own: as many to a second as make it plotWide.
const (
	plotLeft  = 172.0 // room for the names of ranks and nodes
	plotWide  = 960.0
	plotTop   = 26.0 // room for the labels of the ticks
	workHigh  = 20.0 // of a rank's bar of work
	commHigh  = 13.0 // of a lane of transfers
	mostLanes = 3    // of transfers that overlap; those beyond share the last one
	tickWide  = 44.0 // of a tick's label
	finest    = 0.6  // narrower ones of a kind that lie side by side are one bar
)

// stepPicture is what the page's template draws of a step.
type stepPicture struct {
	Step          int64
	Clocks, Names string
	Width, Height float64
	Foot          float64
	Ticks         [][2]string // where, and how it is labelled
	Lines         []stepLine
	Rows          [][]string  // see timelineRows
	Kinds         [][2]string // of kindsOfBars, those that are drawn
}

// stepLine is a rank: its words at Text and Under, its bars.
type stepLine struct {
	Name, Below string
	Culprit     bool
	Text, Under float64
	Bars        []*bar

	x     func(ns int64) float64
	lanes []float64 // where the communication of each lane ends
}

// bar is one range, or several that are too narrow to be told apart.
type bar struct {
	Class     string
	Y, Height float64
	from, to  float64 // in time
	first     string  // what the first range is
	count     int
}

// X is where the bar begins, Width how wide it is drawn: never too narrow to be seen.
func (b *bar) X() float64     { return round(b.from, 2) }
func (b *bar) Width() float64 { return round(max(b.to-b.from, finest), 2) }

// Title says what the bar is.
func (b *bar) Title() string {
	if b.count > 1 {
		return fmt.Sprintf("%d times, the first: %s", b.count, b.first)
	}

	return b.first
}

// kindsOfBars explain the colours: the class of a bar, and what it is in words.
var kindsOfBars = [][2]string{
	{"own", "own work"}, {"forward", "forward"}, {"backward", "backward"}, {"load", "loading data"}, {"save", "saving"},
	{"blocked", "blocked"}, {"waits", "waits for a rank that has not entered"}, {"comm", "transfer"},
}

// pictureOfStep draws a step; nil where there is none.
func pictureOfStep(v *frame.Timeline) *stepPicture {
	if v == nil || len(v.Lines) == 0 || v.To <= v.From {
		return nil
	}

	s := &stepPicture{Step: v.Step, Clocks: TimelineClocks(v), Width: plotLeft + plotWide + 12, Rows: timelineRows(v)}
	scale := plotWide / float64(v.To-v.From)
	x := func(ns int64) float64 { return plotLeft + float64(ns-v.From)*scale }
	y, used := plotTop, map[string]bool{}
	var ranks []string
	for i := range v.Lines {
		l := &v.Lines[i]
		ranks = append(ranks, fmt.Sprint(l.Rank))
		line := stepLine{
			Name: fmt.Sprintf("rank %d", l.Rank), Below: plain(l.Node), Culprit: l.Part == frame.Culprit, Text: y + 11, Under: y + 25, x: x,
		}
		if l.Part != "" {
			line.Below = strings.TrimPrefix(plain(l.Node)+" · "+l.Part, " · ")
		}

		line.draw(l, y)
		for _, b := range line.Bars {
			used[b.Class] = true
		}

		s.Lines = append(s.Lines, line)
		y += max(workHigh+float64(len(line.lanes))*(commHigh+2), 30) + 16
	}

	s.Foot, s.Height = y-8, y
	s.Names = strings.Join(ranks, ", ")
	for _, k := range kindsOfBars {
		if used[k[0]] {
			s.Kinds = append(s.Kinds, k)
		}
	}

	each := tickOf(seconds64(v.To - v.From))
	for k := 0; ; k++ {
		at := float64(k) * each
		if at > seconds64(v.To-v.From) {
			return s
		}

		where, label := round(plotLeft+at*1e9*scale, 2), seconds(at)
		if s.Width-where < tickWide {
			label = "" // it would be cut
		}

		s.Ticks = append(s.Ticks, [2]string{fmt.Sprint(where), label})
	}
}

// seconds64 turns nanoseconds into seconds.
func seconds64(ns int64) float64 { return float64(ns) / 1e9 }

// tickOf is a round number of seconds of which some eight make the whole.
func tickOf(whole float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(whole/8)))
	for _, m := range []float64{1, 2, 5} {
		if whole/(unit*m) <= 8 {
			return unit * m
		}
	}

	return 10 * unit
}

// draw draws the ranges of a rank from y on: the step below all, then what it worked on, then what
// blocked it, and transfers in lanes of their own underneath.
func (s *stepLine) draw(l *frame.Line, y float64) {
	for i := range l.Ranges {
		if r := &l.Ranges[i]; r.Kind == "Step" {
			s.add("own", y, workHigh, r.StartNs, r.DurNs, "step", r.DurNs)
		}
	}

	for i := range l.Ranges {
		r := &l.Ranges[i]
		if r.Kind == "Step" || r.Kind == "Communication" {
			continue
		}

		class, what := "own", plain(r.Kind)
		switch r.Kind {
		case "DataLoader":
			class, what = "load", "loading data"
		case "SaveCheckpoint":
			class, what = "save", "saving a checkpoint"
		case "FP":
			class, what = "forward", "forward pass"
		case "backward":
			class = "backward"
		}

		s.add(class, y, workHigh, r.StartNs, r.DurNs, what, r.DurNs)
	}

	for i := range l.Ranges {
		r := &l.Ranges[i]
		if r.Kind != "Communication" {
			continue
		}

		if e := r.Blocked(); e > 0 {
			s.add("blocked", y, workHigh, r.StartNs+r.DurNs-e, e, "blocked in "+plain(r.Op), e)
		}

		lane := y + workHigh + 2 + float64(s.lane(s.x(r.StartNs), s.x(r.StartNs+r.DurNs)))*(commHigh+2)
		what := plain(r.Op)
		if r.Group != "" {
			what += " in group " + plain(r.Group)
		}

		if r.For >= 0 && r.Waits > 0 {
			s.add("waits", lane, commHigh, r.StartNs, r.Waits, fmt.Sprintf("%s: waits for rank %d", what, r.For), r.Waits)
		}

		s.add("comm", lane, commHigh, r.StartNs+r.Waits, r.DurNs-r.Waits, what, r.DurNs)
	}
}

// lane returns the lane of a communication, the first one that is free: ranges that overlap lie
// below each other. What finds none shares the last.
func (s *stepLine) lane(from, to float64) int {
	for i := range s.lanes {
		if s.lanes[i] <= from {
			s.lanes[i] = to
			return i
		}
	}

	if len(s.lanes) < mostLanes {
		s.lanes = append(s.lanes, to)
		return len(s.lanes) - 1
	}

	s.lanes[mostLanes-1] = max(s.lanes[mostLanes-1], to)
	return mostLanes - 1
}

// add draws a range, or makes the bar before it longer where both are too narrow.
func (s *stepLine) add(class string, y, high float64, start, dur int64, what string, told int64) {
	from, to := s.x(start), s.x(start+max(dur, 0))
	for _, b := range slices.Backward(s.Bars) {
		if b.Class != class || b.Y != y {
			continue
		}

		if from-b.to < finest && to-from < finest && b.to-b.from < plotWide/8 && (b.count > 1 || b.to-b.from < finest) {
			b.to, b.count = max(b.to, to), b.count+1
			return
		}

		break
	}

	s.Bars = append(s.Bars, &bar{Class: class, Y: y, Height: high, from: from, to: to, first: what + ", " + seconds(seconds64(told)), count: 1})
}
