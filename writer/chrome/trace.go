// Package chrome writes raw ranges as a Chrome trace (the JSON that Perfetto and
// chrome://tracing open): a rank is a process, a kind of range a track.
//
// Invariant: ranges of one line nest or follow each other: those of a track that do
// neither lie on further lines of it, see lane. Times are microseconds with three
// decimals, from the base that stands in otherData, because a viewer's numbers don't
// hold ns since 1970.
//
// Caveat: everything that is written is in the viewer's memory; some millions of
// ranges are its limit. A range that is handed over after later ones of its track
// (records of a device may be) gets a line of its own though it might fit another.
package chrome

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Writer writes one trace. It is not safe for concurrent use.
type Writer struct {
	out    *bufio.Writer
	base   int64
	begun  bool // the head is written, and what it says is fixed
	some   bool
	tracks map[track][]*lane
	next   map[uint32]int             // last tid of a rank
	named  map[uint32]bool            // ranks whose process has a name
	quoted map[string]json.RawMessage // texts as JSON
	note   string
}

// track is what lies together in the viewer: ranges of one kind, by one thread or on one stream.
type track struct {
	rank   uint32
	kind   string
	side   string
	thread uint64
	ring   uint32
}

// NewWriter begins a trace. base is the time that shows as 0, in ns since the Unix
// epoch; 0 is the start of the first range.
func NewWriter(out io.Writer, base int64) *Writer {
	return &Writer{
		out: bufio.NewWriterSize(out, 1<<16), base: base,
		tracks: map[track][]*lane{}, next: map[uint32]int{}, named: map[uint32]bool{}, quoted: map[string]json.RawMessage{},
	}
}

// Note puts a sentence on the trace into its head; call it before all else.
func (w *Writer) Note(text string) { w.note = text }

// Rank names a rank's process after its node.
func (w *Writer) Rank(r *row.Rank) { w.process(r.Rank, r.Node, r.StartedNs) }

// process names a rank's process, once. at is the time of what told of it.
func (w *Writer) process(rank uint32, node string, at int64) {
	if w.named[rank] {
		return
	}

	w.named[rank] = true
	name := fmt.Sprintf("rank %d", rank)
	if node != "" {
		name += " (" + node + ")"
	}

	w.start(at)
	w.meta("process_name", rank, 0, "name", w.text(name))
	w.meta("process_sort_index", rank, 0, "sort_index", strconv.AppendUint(nil, uint64(rank), 10))
}

// Records writes raw ranges, in any order; it keeps none of them.
func (w *Writer) Records(records []row.Record) {
	sorted := make([]*row.Record, len(records))
	for i := range records {
		sorted[i] = &records[i]
	}

	slices.SortStableFunc(sorted, func(a, b *row.Record) int { // of two that begin together the longer one is around the other
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(b.DurNs, a.DurNs))
	})
	for _, r := range sorted {
		w.record(r)
	}
}

// record writes one range, as a slice on the track of its rank, kind, side and thread.
func (w *Writer) record(r *row.Record) {
	w.start(r.StartNs)
	w.process(r.Rank, r.Node, r.StartNs)
	name := r.Kind
	switch {
	case r.Op != "":
		name = r.Op
	case r.Kind == record.Step.String() && r.Step >= 0:
		name = "step " + strconv.FormatInt(r.Step, 10)
	}

	b := w.slice(name, r.Kind, track{r.Rank, r.Kind, r.Side, r.Thread, r.Ring}, r.StartNs, r.DurNs)
	b = strconv.AppendInt(append(b, `"step":`...), r.Step, 10)
	for _, a := range [...]struct {
		key, value string
	}{{"group", r.Group}, {"op_raw", r.OpRaw}, {"dtype", r.Dtype}, {"path", r.Path}} {
		if a.value != "" {
			b = append(append(append(b, `,"`...), a.key...), `":`...)
			b = append(b, w.text(a.value)...)
		}
	}

	b = number(b, "bytes", r.Bytes, r.Bytes != 0)
	b = number(b, "count", r.Count, r.Count != 0)
	b = number(b, "tokens", r.Tokens, r.Tokens != 0)
	b = number(b, "exposed_ns", r.ExposedNs, r.ExposedNs > 0)
	b = number(b, "open", int64(r.Open), r.Open != 0)
	w.write(append(b, "}}"...))
}

// number appends an argument of an event, if it was measured.
func number(b []byte, key string, v int64, measured bool) []byte {
	if !measured {
		return b
	}

	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, v, 10)
}

// Step writes a step of the table steps, for a source without raw ranges.
func (w *Writer) Step(s *row.Step) {
	w.start(s.StartNs)
	w.process(s.Rank, s.Node, s.StartNs)
	kind := record.Step.String()
	b := w.slice("step "+strconv.FormatUint(s.Step, 10), kind, track{rank: s.Rank, kind: kind}, s.StartNs, s.StepNs)
	b = strconv.AppendUint(append(b, `"step":`...), s.Step, 10)
	b = number(b, "fp_ns", s.FPNs, s.FPNs >= 0)
	b = number(b, "comm_ns", s.CommNs, s.CommNs >= 0)
	b = number(b, "exposed_ns", s.ExposedNs, s.ExposedNs >= 0)
	b = number(b, "dataloader_ns", s.DataLoaderNs, s.DataLoaderNs >= 0)
	b = number(b, "checkpoint_ns", s.CheckpointNs, s.CheckpointNs >= 0)
	b = number(b, "self_ns", s.SelfNs, s.SelfNs >= 0)
	w.write(append(b, "}}"...))
}

// start fixes the base and writes the head.
func (w *Writer) start(at int64) {
	if w.begun {
		return
	}

	w.begun, w.base = true, cmp.Or(w.base, at)
	note := ""
	if w.note != "" {
		note = fmt.Sprintf(`,"note":%s`, w.text(w.note))
	}

	w.write(fmt.Appendf(nil, `{"displayTimeUnit":"ms","otherData":{"writer":"laggard","base_ns":"%d"%s},"traceEvents":[`, w.base, note))
}

// slice begins a complete event up to its args.
func (w *Writer) slice(name, category string, t track, start, dur int64) []byte {
	tid := w.lane(t, start, start+max(dur, 0))
	b := append(w.event(), `{"ph":"X","name":`...)
	b = append(b, w.text(name)...)
	b = append(append(b, `,"cat":`...), w.text(category)...)
	b = strconv.AppendUint(append(b, `,"pid":`...), uint64(t.rank), 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), int64(tid), 10)
	b = micros(append(b, `,"ts":`...), start-w.base)
	b = micros(append(b, `,"dur":`...), max(dur, 0))
	return append(b, `,"args":{`...)
}

// lane returns the line of the track on which [start, end) ns fits, a new one where it
// fits none.
func (w *Writer) lane(t track, start, end int64) (tid int) {
	lanes := w.tracks[t]
	for _, l := range lanes {
		if l.take(start, end) {
			return l.tid
		}
	}

	if len(lanes) == maxLanes {
		return lanes[maxLanes-1].tid
	}

	w.next[t.rank]++
	tid = w.next[t.rank]
	label := t.kind
	if t.side == record.Device.String() {
		label += " on device"
	}

	if t.thread != 0 {
		label += " " + strconv.FormatUint(t.thread, 10)
	}

	if n := len(lanes); n > 0 {
		label += " (" + strconv.Itoa(n+1) + ")"
	}

	w.meta("thread_name", t.rank, tid, "name", w.text(label))
	w.meta("thread_sort_index", t.rank, tid, "sort_index", strconv.AppendInt(nil, int64(slices.Index(order, record.KindOf(t.kind))*1000+tid), 10))
	w.tracks[t] = append(lanes, &lane{tid: tid, last: start, ends: []int64{end}})
	return tid
}

// order is that of a rank's tracks, as people read them.
var order = []record.Kind{record.Step, record.DataLoader, record.FP, record.Other, record.Communication, record.SaveCheckpoint}

// micros appends ns as microseconds with three decimals.
func micros(b []byte, ns int64) []byte {
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}

	b = strconv.AppendInt(b, ns/1000, 10)
	rest := ns % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

func (w *Writer) meta(name string, rank uint32, tid int, key string, value []byte) {
	w.write(fmt.Appendf(w.event(), `{"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"%s":%s}}`, name, rank, tid, key, value))
}

// text is s as JSON.
func (w *Writer) text(s string) []byte {
	if q, ok := w.quoted[s]; ok {
		return q
	}

	q, err := json.Marshal(s)
	if err != nil {
		panic("BUG: marshal text: " + err.Error())
	}

	if len(w.quoted) < 1<<16 { // paths and step names are many
		w.quoted[s] = q
	}

	return q
}

// event begins an event, in the buffer that takes it: nothing may be written before it is.
func (w *Writer) event() []byte {
	b := w.out.AvailableBuffer()
	if w.some {
		b = append(b, ",\n"...)
	}

	w.some = true
	return b
}

// write writes; the buffer keeps the first error for Close.
func (w *Writer) write(b []byte) { _, _ = w.out.Write(b) }

// Close ends the trace and returns the first error of any write.
func (w *Writer) Close() error {
	w.start(0)
	w.write([]byte("]}\n"))
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write Chrome trace: %w", err)
	}

	return nil
}
