package row

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Raw is a Record whose words are places in a list: half the size, and without pointers,
// so the garbage collector skips it. It has the columns of Record, the widest first, so
// that no padding lies between them.
type Raw struct {
	Segment     uint64      `col:"segment"`
	Offset      uint64      `col:"offset"`
	StartNs     int64       `col:"start_ns"`
	DurNs       int64       `col:"dur_ns"`
	HostStartNs int64       `col:"host_start_ns"`
	HostDurNs   int64       `col:"host_dur_ns"`
	ExposedNs   int64       `col:"exposed_ns"`
	Seq         uint64      `col:"seq"`
	Thread      uint64      `col:"thread"`
	Count       int64       `col:"count"`
	Bytes       int64       `col:"bytes"`
	Tokens      int64       `col:"tokens"`
	Incarnation uint64      `col:"incarnation"`
	Step        int64       `col:"step"`
	Job         record.Word `col:"job"`
	Rank        uint32      `col:"rank"`
	Node        record.Word `col:"node"`
	Kind        record.Word `col:"kind"`
	Side        record.Word `col:"side"`
	Ring        uint32      `col:"ring"`
	Op          record.Word `col:"op"`
	OpRaw       record.Word `col:"op_raw"`
	Group       record.Word `col:"group"`
	Peer        int32       `col:"peer"`
	Dtype       record.Word `col:"dtype"`
	Path        record.Word `col:"path"`
	Repeat      uint16      `col:"repeat"`
	Open        uint16      `col:"open"`
}

// Raws are rows and the list of their words.
type Raws struct {
	Rows  []Raw
	Words []string
	// Bytes is the memory of the words that are new with these rows, as far as it was
	// counted: mostly the rows before them brought all.
	Bytes int
}

// Record returns row i with its words.
func (r *Raws) Record(i int) Record {
	p, w := &r.Rows[i], r.Words
	return Record{
		Job: w[p.Job], Rank: p.Rank, Incarnation: p.Incarnation, Node: w[p.Node], Kind: w[p.Kind],
		Step: p.Step, Repeat: p.Repeat, StartNs: p.StartNs, DurNs: p.DurNs, Side: w[p.Side],
		HostStartNs: p.HostStartNs, HostDurNs: p.HostDurNs, ExposedNs: p.ExposedNs,
		Ring: p.Ring, Seq: p.Seq, Thread: p.Thread, Op: w[p.Op], OpRaw: w[p.OpRaw], Group: w[p.Group], Peer: p.Peer,
		Count: p.Count, Dtype: w[p.Dtype], Bytes: p.Bytes, Tokens: p.Tokens, Path: w[p.Path], Open: p.Open,
		Segment: p.Segment, Offset: p.Offset,
	}
}

// AppendTo appends the rows to dst.
func (r *Raws) AppendTo(dst []Record) []Record {
	dst = slices.Grow(dst, len(r.Rows))
	for i := range r.Rows {
		dst = append(dst, r.Record(i))
	}

	return dst
}

// Append appends the rows of o, whose words may be numbered otherwise; afterwards they are
// numbered as those of r.
func (r *Raws) Append(o *Raws) {
	if len(r.Rows) == 0 {
		*r = Raws{Rows: append(r.Rows, o.Rows...), Words: o.Words, Bytes: o.Bytes}
		return
	}

	if len(o.Rows) == 0 {
		return
	}

	var w record.Words
	r.Renumber(&w)
	o.Renumber(&w)
	*r = Raws{Rows: append(r.Rows, o.Rows...), Words: w.List(), Bytes: w.Bytes()}
}

// Pack returns records as raw rows.
func Pack(records ...Record) Raws {
	var w record.Words
	r := Raws{Rows: make([]Raw, len(records))}
	for i := range records {
		r.Rows[i] = PackInto(&w, &records[i])
	}

	r.Words, r.Bytes = w.List(), w.Bytes()

	return r
}

// PackInto returns r as a raw row whose words are in t.
func PackInto(t *record.Words, r *Record) Raw {
	return Raw{
		Job: t.Add(r.Job), Rank: r.Rank, Incarnation: r.Incarnation, Node: t.Add(r.Node), Kind: t.Add(r.Kind),
		Step: r.Step, Repeat: r.Repeat, StartNs: r.StartNs, DurNs: r.DurNs, Side: t.Add(r.Side),
		HostStartNs: r.HostStartNs, HostDurNs: r.HostDurNs, ExposedNs: r.ExposedNs,
		Ring: r.Ring, Seq: r.Seq, Thread: r.Thread, Op: t.Add(r.Op), OpRaw: t.Add(r.OpRaw), Group: t.Add(r.Group), Peer: r.Peer,
		Count: r.Count, Dtype: t.Add(r.Dtype), Bytes: r.Bytes, Tokens: r.Tokens, Path: t.Add(r.Path), Open: r.Open,
		Segment: r.Segment, Offset: r.Offset,
	}
}

// Renumber makes the words of the rows those of t.
func (r *Raws) Renumber(t *record.Words) {
	to := make([]record.Word, len(r.Words)) // 0 is not yet known, or the empty word
	word := func(w *record.Word) {
		if *w == 0 {
			return
		}

		if to[*w] == 0 {
			to[*w] = t.Add(r.Words[*w])
		}

		*w = to[*w]
	}
	for i := range r.Rows {
		p := &r.Rows[i]
		for _, w := range [...]*record.Word{&p.Job, &p.Node, &p.Kind, &p.Side, &p.Op, &p.OpRaw, &p.Group, &p.Dtype, &p.Path} {
			word(w)
		}
	}

	r.Words = t.List()
}
