package rollup

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// dim is a parallel dimension.
type dim uint8

const (
	dimOther dim = iota
	dimTP
	dimPP
	dimDP
	dimCP
	dimEP
	dimCount
)

// dimWords are the dimensions as topologies have them, by dim.
var dimWords = [dimCount]string{"other", "tp", "pp", "dp", "cp", "ep"}

// dimOf returns the dimension that a word names.
func dimOf(word string) dim { return dim(max(slices.Index(dimWords[:], topology.Dim(word)), 0)) }

// addDims notes of which dimension each named group is.
func addDims(m map[string]dim, groups []record.Group) {
	for _, g := range groups {
		if g.Name != "" {
			m[g.Name] = dimOf(g.Dim)
		}
	}
}

// maxCalls and maxCallBytes bound the (group, op) pairs of an incarnation and their
// bytes; what comes beyond is summed up under "", and counted as clipped.
const (
	maxCalls     = 1 << 12
	maxCallBytes = 1 << 20
)

// window sums the Communication of row.Window steps. Its exported fields are part of
// Position.State.
type window struct {
	Number int64   `json:"number"` // of the first step / row.Window
	Repeat uint16  `json:"repeat,omitempty"`
	Open   bool    `json:"open"`
	Start  int64   `json:"start"`           // of the first step seen in it
	Calls  []*call `json:"calls,omitempty"` // that were seen in it, in the order they came

	all   []*call        // of every name, by pendingRange.call
	bytes int            // of the names
	index map[pair]int32 // of all
}

// pair is a group and an op, by their numbers.
type pair uint64

func pairOf(group, op record.Word) pair { return pair(group)<<32 | pair(op) }

// call sums the calls of one group and op.
type call struct {
	Group, Op            string
	Count, Steps         uint32
	Serial               uint64 // of the step counted last, plus one
	Total, Min, Max, Sum int64  // Sum is of bytes, the others are of ns

	dim   dim // of the group, as of learnt
	asked int // see Stream.learnt
}

// find returns the index of a group and op, a new one where it is the first call of them. When the
// window is full, further names share the empty one.
func (w *window) find(words *record.Words, group, op record.Word) int32 {
	if i, ok := w.index[pairOf(group, op)]; ok {
		return i
	}

	if w.index == nil {
		w.index = map[pair]int32{}
	}

	if w.full() {
		group, op = 0, 0
		if i, ok := w.index[0]; ok {
			return i
		}
	}

	i := int32(len(w.all))
	c := &call{Group: words.Text(group), Op: words.Text(op)}
	w.all = append(w.all, c)
	w.bytes += len(c.Group) + len(c.Op)
	w.index[pairOf(group, op)] = i
	return i
}

// named is find for strings.
func (w *window) named(words *record.Words, group, op string) int32 {
	return w.find(words, words.Add(group), words.Add(op))
}

// renumber makes the index one of other words' numbers.
func (w *window) renumber(words *record.Words) {
	clear(w.index)
	for i, c := range w.all {
		w.index[pairOf(words.Add(c.Group), words.Add(c.Op))] = int32(i)
	}
}

// full reports whether no new name has room.
func (w *window) full() bool { return len(w.all) >= maxCalls || w.bytes >= maxCallBytes }

// first returns the first step of the open window, 0 without one.
func (w *window) first() int64 {
	if !w.Open {
		return 0
	}

	return w.Number * row.Window
}

// openWindow makes the window of a step the open one.
func (s *Stream) openWindow(inc *incarnation, step, start int64) {
	w := &inc.Window
	n := step / row.Window
	if w.Open && w.Number == n {
		return
	}

	s.flushWindow(inc)
	w.Open, w.Number, w.Start, w.Repeat = true, n, start, inc.Windows.count(n)
}

// called returns the place of a Communication's group and op.
func (s *Stream) called(inc *incarnation, n record.Numbers) int32 {
	w := &inc.Window
	i := w.find(&s.words, n.Group, n.Op)
	if c := w.all[i]; w.full() && (c.Group != s.words.Text(n.Group) || c.Op != s.words.Text(n.Op)) {
		s.counts.Clipped++
	}

	return i
}

// addCall adds one Communication to the open window.
func (s *Stream) addCall(inc *incarnation, name int32, dur, bytes int64) {
	w := &inc.Window
	c := w.all[name]
	if c.Count == 0 {
		w.Calls = append(w.Calls, c)
		c.Min = dur
	}

	if c.Serial != inc.Serial+1 {
		c.Serial = inc.Serial + 1
		c.Steps++
	}

	c.Count++
	c.Total += dur
	c.Min, c.Max = min(c.Min, dur), max(c.Max, dur)
	c.Sum += bytes
}

// flushWindow gives out the open window.
func (s *Stream) flushWindow(inc *incarnation) {
	w := &inc.Window
	if !w.Open {
		return
	}

	w.Open = false
	if len(w.Calls) == 0 {
		return
	}

	inc.Windows.add(w.Number, maxRuns)
	from := uint64(w.Number * row.Window)
	for _, c := range w.Calls {
		s.rows.Communications = append(s.rows.Communications, row.Communication{
			Job: s.job(inc), Rank: uint32(s.o.Rank), Incarnation: uint64(inc.ID), Node: s.node(inc),
			StepFrom: from, StepTo: from + row.Window - 1, Repeat: w.Repeat, StartNs: w.Start,
			Group: c.Group, Dim: dimWords[s.dim(inc, c)], Op: c.Op,
			Steps: c.Steps, Calls: c.Count, TotalNs: c.Total, MinNs: c.Min, MaxNs: c.Max, Bytes: c.Sum,
		})
		*c = call{Group: c.Group, Op: c.Op, dim: c.dim, asked: c.asked}
	}

	w.Calls = w.Calls[:0]
	if w.full() {
		w.forget(&s.words, inc.pending)
	}
}

// forget drops the names that no waiting range needs: a job that makes a
// communicator a step must not fill the table for good.
func (w *window) forget(words *record.Words, pending []pendingRange) {
	all := w.all
	w.all, w.index, w.bytes = nil, nil, 0
	for i := range pending {
		if p := &pending[i]; p.call >= 0 {
			p.call = w.named(words, all[p.call].Group, all[p.call].Op)
		}
	}
}

// dim returns the dimension of a communicator, which is looked up once while nothing is learnt.
func (s *Stream) dim(inc *incarnation, c *call) dim {
	if c.asked != s.learnt {
		d, own := inc.dims[c.Group]
		if !own {
			d = s.dims[c.Group]
		}

		c.dim, c.asked = d, s.learnt
	}

	return c.dim
}
