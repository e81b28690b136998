package feed

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// window is one process's communication in one group and window of steps, per step. The spool
// keeps it as encoding/binary writes it: 48 bytes, in this order.
type window struct {
	Process        int32
	Talk           int32       // number of the process's
	Op             record.Word // of the name
	Repeat, Steps  uint16
	From, To       int64
	Seconds, Bytes float32
	Calls          float32
	Quickest       float32 // seconds of a call, NaN unknown
}

// windowOf makes the window of a row; what is numbered is the caller's.
func windowOf(c *row.Communication) *window {
	steps := max(1, c.Steps)
	w := &window{
		Repeat: c.Repeat, Steps: uint16(min(steps, math.MaxUint16)), From: int64(c.StepFrom), To: int64(c.StepTo),
		Seconds: float32(float64(c.TotalNs) / 1e9 / float64(steps)), Quickest: frame.NaN,
		Bytes: float32(float64(max(0, c.Bytes)) / float64(steps)), Calls: float32(c.Calls) / float32(steps),
	}
	if c.MinNs > 0 {
		w.Quickest = float32(float64(c.MinNs) / 1e9)
	}

	return w
}

// transferKey tells the windows that are one transfer.
type transferKey struct {
	attempt, group int32
	op             record.Word
	repeat         uint16
	from           int64
}

// talked finds the groups that windows are of. A group has the name that the layouts give it.
func (h *History) talked() {
	h.transfers = map[transferKey]*frame.Transfer{}
	w := h.feed.world
	if !w.talks {
		return
	}

	var layouts []*frame.Layout
	// Every launch has a layout of its own, and a group may exist in one of them alone.
	for k := range w.attempts {
		layouts = append(layouts, w.layout(k))
	}

	h.groups = w.communicators(layouts...)
}

// transfer takes a window of the process.
func (h *History) transfer(p *process, w *window) {
	g := p.Talks[w.Talk].Group
	if g == 0 || p.row < 0 {
		return
	}

	key := transferKey{int32(p.Attempt), g, w.Op, w.Repeat, w.From}
	x := h.transfers[key]
	if x == nil {
		made := h.groups[g-1]
		made.Op, made.Attempt, made.From, made.Repeat = h.operations.List()[w.Op], p.Attempt, w.From, int(w.Repeat)
		x = &made
		h.transfers[key] = x
	}

	x.Rows, x.Seconds, x.Quickest = append(x.Rows, int32(p.row)), append(x.Seconds, w.Seconds), append(x.Quickest, w.Quickest)
	x.Counts = append(x.Counts, w.Calls*float32(w.Steps))
	x.To, x.Steps = max(x.To, w.To), max(x.Steps, int(w.Steps))
	x.Bytes += float64(w.Bytes)
	x.Calls += float64(w.Calls)
}

// handOver hands over the windows that ended before a step of an attempt, in order.
func (h *History) handOver(attempt int, step int64, take func(*frame.Transfer)) {
	var due []transferKey
	for k, x := range h.transfers {
		if x.Attempt < attempt || x.Attempt == attempt && x.To < step {
			due = append(due, k)
		}
	}

	// A map's order is chance; sums of floats come out alike only in one order.
	slices.SortFunc(due, func(a, b transferKey) int {
		return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(h.transfers[a].To, h.transfers[b].To), cmp.Compare(a.repeat, b.repeat),
			cmp.Compare(a.group, b.group), cmp.Compare(a.op, b.op), cmp.Compare(a.from, b.from))
	})
	for _, k := range due {
		x := h.transfers[k]
		x.Finish()
		take(x)
		delete(h.transfers, k)
	}
}
