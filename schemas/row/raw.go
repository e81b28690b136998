package row

import (
	"slices"
	"strings"
)

// Raw is a Record whose words are places in a list: half the size, and without pointers,
// so the garbage collector skips it. It has the columns of Record, the widest first, so
// that no padding lies between them.
type Raw struct {
	Segment     uint64 `col:"segment"`
	Offset      uint64 `col:"offset"`
	StartNs     int64  `col:"start_ns"`
	DurNs       int64  `col:"dur_ns"`
	HostStartNs int64  `col:"host_start_ns"`
	HostDurNs   int64  `col:"host_dur_ns"`
	ExposedNs   int64  `col:"exposed_ns"`
	Seq         uint64 `col:"seq"`
	Thread      uint64 `col:"thread"`
	Count       int64  `col:"count"`
	Bytes       int64  `col:"bytes"`
	Tokens      int64  `col:"tokens"`
	Incarnation uint64 `col:"incarnation"`
	Step        int64  `col:"step"`
	Job         Word   `col:"job"`
	Rank        uint32 `col:"rank"`
	Node        Word   `col:"node"`
	Kind        Word   `col:"kind"`
	Side        Word   `col:"side"`
	Ring        uint32 `col:"ring"`
	Op          Word   `col:"op"`
	OpRaw       Word   `col:"op_raw"`
	Group       Word   `col:"group"`
	Peer        int32  `col:"peer"`
	Dtype       Word   `col:"dtype"`
	Path        Word   `col:"path"`
	Repeat      uint16 `col:"repeat"`
	Open        uint16 `col:"open"`
}

// Word is the place of a string in the list that comes with the rows.
type Word uint32

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

	var w Words
	w.Renumber(r)
	w.Renumber(o)
	*r = Raws{Rows: append(r.Rows, o.Rows...), Words: w.List(), Bytes: w.Bytes()}
}

// Pack returns records as raw rows.
func Pack(records ...Record) Raws {
	var w Words
	r := Raws{Rows: make([]Raw, len(records))}
	for i := range records {
		r.Rows[i] = w.Pack(&records[i])
	}

	r.Words, r.Bytes = w.List(), w.Bytes()

	return r
}

// Words numbers strings, of which it keeps copies. The zero value is ready; it is not safe for concurrent use.
//
// Invariant: a word's number stays, and List()[0] is "". A list that was handed out
// may be read while more words are added.
type Words struct {
	list  []string
	index map[string]Word
	bytes int
	// Of these, the ones that were needed when the list was begun: see Needed.
	neededWords, neededBytes int
}

const (
	// Words beyond those needed and these are better numbered anew: lines are hostile
	// input.
	mostWords     = 1 << 14
	mostWordBytes = 1 << 20
)

// List returns the words so far by their numbers.
func (t *Words) List() []string {
	t.begin()
	return t.list[:len(t.list):len(t.list)]
}

// Bytes returns the bytes of all words.
func (t *Words) Bytes() int { return t.bytes }

// Full reports whether the words are so many that it is better to begin anew.
func (t *Words) Full() bool {
	return len(t.list)-t.neededWords > mostWords || t.bytes-t.neededBytes > mostWordBytes
}

// Needed says that the words so far are needed: to begin anew would number them again.
func (t *Words) Needed() { t.neededWords, t.neededBytes = len(t.list), t.bytes }

// begin puts the empty word first, once.
func (t *Words) begin() {
	if t.list == nil {
		t.list, t.index = make([]string, 1, 64), map[string]Word{"": 0}
	}
}

// Add returns the number of s.
func (t *Words) Add(s string) Word {
	if len(s) == 0 {
		return 0
	}

	t.begin()
	w, ok := t.index[s]
	if !ok {
		s, w = strings.Clone(s), Word(len(t.list))
		t.list = append(t.list, s)
		t.index[s] = w
		t.bytes += len(s)
	}

	return w
}

// Pack returns r with its words in t.
func (t *Words) Pack(r *Record) Raw {
	return Raw{
		Job: t.Add(r.Job), Rank: r.Rank, Incarnation: r.Incarnation, Node: t.Add(r.Node), Kind: t.Add(r.Kind),
		Step: r.Step, Repeat: r.Repeat, StartNs: r.StartNs, DurNs: r.DurNs, Side: t.Add(r.Side),
		HostStartNs: r.HostStartNs, HostDurNs: r.HostDurNs, ExposedNs: r.ExposedNs,
		Ring: r.Ring, Seq: r.Seq, Thread: r.Thread, Op: t.Add(r.Op), OpRaw: t.Add(r.OpRaw), Group: t.Add(r.Group), Peer: r.Peer,
		Count: r.Count, Dtype: t.Add(r.Dtype), Bytes: r.Bytes, Tokens: r.Tokens, Path: t.Add(r.Path), Open: r.Open,
		Segment: r.Segment, Offset: r.Offset,
	}
}

// Renumber makes the words of rows those of t.
func (t *Words) Renumber(r *Raws) {
	to := make([]Word, len(r.Words)) // 0 is not yet known, or the empty word
	word := func(w *Word) {
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
		for _, w := range [...]*Word{&p.Job, &p.Node, &p.Kind, &p.Side, &p.Op, &p.OpRaw, &p.Group, &p.Dtype, &p.Path} {
			word(w)
		}
	}

	r.Words = t.List()
}
