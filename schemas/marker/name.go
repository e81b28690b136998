package marker

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
)

// unnamed is the word of a range whose name is empty, "NULL" or "(null)": what a
// C NULL pointer prints as.
const unnamed = "unnamed"

// Bounds of the table of words, and of what is kept of a name: hostile ones cost allocations,
// never memory.
const (
	internMax   = 4096    // words
	internBytes = 256     // of one
	quickBytes  = 4 << 10 // of a communication's name
)

// word is a word of a name, and the operation or the element type that it means where it is one.
type word struct{ text, op, dtype string }

// word returns a word of a name. It remembers those it has seen, so that the ranges of a
// group share its name in memory, and a known operation is not taken apart again.
func (p *Pairer) word(b []byte) word {
	if w, ok := p.seen[string(b)]; ok {
		return w
	}

	text := string(b)
	if len(b) > record.MaxWord {
		if !p.replay {
			p.Clipped++
		}

		text = record.Clip(text, record.MaxWord)
	}

	w := word{text, record.BaseOp(text), record.BaseDtype(text)}
	if len(b) <= internBytes && len(p.seen) < internMax {
		if p.seen == nil {
			p.seen = make(map[string]word)
		}

		p.seen[text] = w
	}

	return w
}

// classify returns a record with the kind that a name in a domain stands for and
// what the name says of it. Times are not set.
//
// A step's name holds "step", in any case, and an integer as its second word; the
// other three light kinds have one name each. A name in the communication domain
// is a JSON object. Every other name is a kind of its own (record.Other), with the
// domain as its Group unless that is the default one.
func (p *Pairer) classify(name, domain []byte) record.Record {
	if string(domain) == CommunicationDomain {
		r := record.New(record.Communication)
		p.communication(&r, name)
		return r
	}

	switch {
	case bytes.EqualFold(name, []byte("forward")):
		return record.New(record.FP)
	case bytes.EqualFold(name, []byte("dataloader")):
		return record.New(record.DataLoader)
	case bytes.EqualFold(name, []byte("save_checkpoint")):
		return record.New(record.SaveCheckpoint)
	}

	if step, ok := stepOf(name); ok {
		r := record.New(record.Step)
		r.Step = step
		return r
	}

	r := record.New(record.Other)
	r.Name = unnamed
	if !null(name) {
		r.Name = p.word(name).text
	}

	if len(domain) > 0 && string(domain) != DefaultDomain && !null(domain) {
		r.Group = p.word(domain).text
	}

	return r
}

// null reports whether a name says nothing, see unnamed.
func null(b []byte) bool {
	return len(b) == 0 || string(b) == "NULL" || string(b) == "(null)"
}

// stepOf returns the number in a step's name: "step 12", "Train_Step 12 of 90".
func stepOf(name []byte) (int64, bool) {
	if !contains(name, "step") {
		return 0, false
	}

	words := 0
	for word := range bytes.FieldsFuncSeq(name, blank) {
		if words++; words == 2 {
			return natural(word)
		}
	}

	return 0, false
}

// blank reports whether r is white space as C has it, and so the library that reads the same
// names in the trainer (collector/mspti).
func blank(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// contains reports whether b holds the lower-case ASCII word w in any case.
func contains(b []byte, w string) bool {
	for i := 0; i+len(w) <= len(b); i++ {
		if bytes.EqualFold(b[i:i+len(w)], []byte(w)) {
			return true
		}
	}

	return false
}

// communication fills in what the name of a communication range says: a JSON
// object of strings in no stable order. A name that is none is kept as the
// operation's spelling.
func (p *Pairer) communication(r *record.Record, name []byte) {
	var f commFields
	p.names = cursor{b: name, texts: p.names.texts[:0]}
	if (len(name) > quickBytes || !f.quick(&p.names)) && !f.strict(name) {
		if !null(name) {
			p.setOp(r, name)
		}

		return
	}

	if len(f.op) > 0 {
		p.setOp(r, f.op)
	}

	r.Group = p.word(f.group).text
	r.Dtype = p.word(f.dtype).dtype
	if v, ok := natural(f.count); ok {
		r.Count = v
		r.Bytes = bytesOf(v, r.Dtype)
	}

	r.Peer = f.peer(r.Op)
}

// bytesOf is count × size, 0 where it is unknown or would not fit.
func bytesOf(count int64, dtype string) int64 {
	size := int64(record.DtypeSize(dtype))
	if size == 0 || count > 1<<62/size {
		return 0
	}

	return count * size
}

// setOp sets the operation, and the writer's spelling of it where that differs.
func (p *Pairer) setOp(r *record.Record, raw []byte) {
	w := p.word(raw)
	r.Op = w.op
	if w.text != w.op {
		r.OpRaw = w.text
	}
}

// commFields are the values of a communication name.
type commFields struct {
	op, group, dtype, count, src, dest []byte
}

// set keeps the value of a key that is needed; the others are skipped.
func (f *commFields) set(key string, v []byte) {
	switch key {
	case "opName":
		f.op = v
	case "groupName":
		f.group = v
	case "dataType":
		f.dtype = v
	case "count":
		f.count = v
	case "srcRank":
		f.src = v
	case "destRank":
		f.dest = v
	}
}

// peer returns the position in the group at the other end: of a recv the source, else the
// destination. Names may have both keys, or the other one alone.
func (f *commFields) peer(op string) int32 {
	v := f.dest
	if op == "recv" && len(f.src) > 0 || len(v) == 0 {
		v = f.src
	}

	n, ok := natural(v)
	if !ok || n > math.MaxInt32 {
		return record.NoPeer
	}

	return int32(n)
}

// natural reads a decimal number of at most 19 digits, which is what an int64 has.
func natural(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}

	v, err := strconv.ParseUint(string(b), 10, 63)
	return int64(v), err == nil
}

// quick reads an object of plain strings; it says "yes" or "not sure". After "not sure" what
// it has set is no result: strict begins anew.
func (f *commFields) quick(c *cursor) bool {
	for c.token("{"); !c.bad; c.token(",") {
		c.token(`"`)
		key := c.text()
		c.token(":")
		c.token(`"`)
		v := c.text()
		if c.bad {
			return false
		}

		f.set(string(key), v)
		if c.space(); c.skip("}") {
			c.space()
			return c.i == len(c.b)
		}
	}

	return false
}

// strict reads any JSON object; values that are no strings count as their text.
func (f *commFields) strict(b []byte) bool {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil || o == nil {
		return false
	}

	*f = commFields{}
	for key, raw := range o {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			f.set(key, []byte(s))
		} else {
			f.set(key, bytes.TrimSpace(raw))
		}
	}

	return true
}

// token is expect for what white space may stand before.
func (c *cursor) token(s string) {
	c.space()
	c.expect(s)
}

// space skips white space, JSON's four.
func (c *cursor) space() {
	for c.i < len(c.b) && (c.b[c.i] == ' ' || c.b[c.i] == '\t' || c.b[c.i] == '\n' || c.b[c.i] == '\r') {
		c.i++
	}
}

// clamp makes a time stamp an int64; one that does not fit is as good as none.
func clamp(ts uint64) int64 {
	if ts > 1<<63-1 {
		return 0
	}

	return int64(ts)
}
