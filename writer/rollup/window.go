package rollup

import (
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
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

var dimWords = [dimCount]string{"other", "tp", "pp", "dp", "cp", "ep"}

// dimOf returns the dimension that a word names. "exp" is TaskD's word for ep.
func dimOf(word string) dim {
	switch strings.ToLower(word) {
	case "tp":
		return dimTP
	case "pp":
		return dimPP
	case "dp":
		return dimDP
	case "cp":
		return dimCP
	case "ep", "exp":
		return dimEP
	}

	return dimOther
}

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

// window sums the Communication of row.Window steps.
type window struct {
	number int64 // of the first step / row.Window
	repeat uint16
	open   bool
	start  int64 // of the first step seen in it

	names []callName
	bytes int // of names
	index map[callName]int32
	calls []call // by index of names
	order []int32
}

type callName struct{ group, op string }

type call struct {
	count, steps    uint32
	serial          uint64 // of the step counted last, plus one
	total, min, max int64
	bytes           int64
}

// find returns the index of a group and op, a new one where it is the first call of them. When the
// window is full, further names share the empty one.
func (w *window) find(n callName) int32 {
	if i, ok := w.index[n]; ok {
		return i
	}

	if w.index == nil {
		w.index = map[callName]int32{}
	}

	if w.full() {
		n = callName{}
		if i, ok := w.index[n]; ok {
			return i
		}
	}

	i := int32(len(w.names))
	w.names = append(w.names, n)
	w.bytes += len(n.group) + len(n.op)
	w.calls = append(w.calls, call{})
	w.index[n] = i
	return i
}

func (w *window) full() bool { return len(w.names) >= maxCalls || w.bytes >= maxCallBytes }

// first returns the first step of the open window, 0 without one.
func (w *window) first() int64 {
	if !w.open {
		return 0
	}

	return w.number * row.Window
}

// openWindow makes the window of a step the open one.
func (s *Stream) openWindow(inc *incarnation, step, start int64) {
	w := &inc.window
	n := step / row.Window
	if w.open && w.number == n {
		return
	}

	s.flushWindow(inc)
	w.open, w.number, w.start, w.repeat = true, n, start, inc.windows.count(n)
}

// named returns the place of a Communication's group and op.
func (s *Stream) named(inc *incarnation, r *record.Record) int32 {
	w := &inc.window
	n := callName{r.Group, r.Op}
	i := w.find(n)
	if w.full() && w.names[i] != n {
		s.count(&s.counts.Clipped)
	}

	return i
}

// addCall adds one Communication to the open window.
func (s *Stream) addCall(inc *incarnation, name int32, dur, bytes int64) {
	w := &inc.window
	c := &w.calls[name]
	if c.count == 0 {
		w.order = append(w.order, name)
		c.min = dur
	}

	if c.serial != inc.serial+1 {
		c.serial = inc.serial + 1
		c.steps++
	}

	c.count++
	c.total += dur
	c.min, c.max = min(c.min, dur), max(c.max, dur)
	c.bytes += bytes
}

// flushWindow gives out the open window.
func (s *Stream) flushWindow(inc *incarnation) {
	w := &inc.window
	if !w.open {
		return
	}

	w.open = false
	if len(w.order) == 0 {
		return
	}

	inc.windows.add(w.number)
	for _, i := range w.order {
		c, n := &w.calls[i], w.names[i]
		from := uint64(w.number * row.Window)
		s.rows.Communications = append(s.rows.Communications, row.Communication{
			Job: s.job(inc), Rank: uint32(s.o.Rank), Incarnation: uint64(inc.id), Node: s.node(inc),
			StepFrom: from, StepTo: from + row.Window - 1, Repeat: w.repeat, StartNs: w.start,
			Group: n.group, Dim: dimWords[s.dim(inc, n.group)], Op: n.op,
			Steps: c.steps, Calls: c.count, TotalNs: c.total, MinNs: c.min, MaxNs: c.max, Bytes: c.bytes,
		})
		*c = call{}
	}

	w.order = w.order[:0]
	s.taken = false
	if w.full() {
		w.forget(inc.pending)
	}
}

// forget drops the names that no waiting range needs: a job that makes a
// communicator a step must not fill the table for good.
func (w *window) forget(pending []pendingRange) {
	names := w.names
	w.names, w.calls, w.index, w.bytes = nil, nil, nil, 0
	for i := range pending {
		if p := &pending[i]; p.call >= 0 {
			p.call = w.find(names[p.call])
		}
	}
}

// dim returns the dimension of a communicator.
func (s *Stream) dim(inc *incarnation, group string) dim {
	if d, ok := inc.dims[group]; ok {
		return d
	}

	return s.dims[group]
}
