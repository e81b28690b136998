package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A Chrome trace is one JSON document of up to gigabytes: {"traceEvents":[{…},{…}], …} or the
// list alone. scanTrace hands over one event after the other. It is a scanner of our own
// because the libraries hold the whole document (sonic), or read it token by token at a
// twentieth of the speed (encoding/json; BenchmarkTrace has both). jsontext, which is no
// release yet, splits a document as quickly, and every event would be read a second time for
// its seven fields.

const (
	traceChunk = 1 << 20
	// mostElement bounds one event, or one value beside the events.
	mostElement = 16 << 20
)

// event is one event of a Chrome trace. Its slices hold until the next one; texts are as they
// stand between their quotes.
type event struct {
	ph             byte
	cat, name, tid []byte
	pid, id        []byte
	ts, dur        int64 // ns
	args           []byte
}

var (
	errShort = errors.New("more is needed")
	errCut   = errors.New("cut: it ends in the middle of the trace")
)

// trace scans a Chrome trace.
type trace struct {
	r      io.Reader
	buf    []byte // what is read and not yet scanned
	start  int    // of buf within space
	space  []byte
	offset int64 // of buf in the document
	err    error // of r
}

// scanTrace calls each with the events of a trace, and beside with the key and value of all
// that stands beside them. The error says at which byte the document breaks off.
func scanTrace(r io.Reader, beside func(key, value []byte), each func(*event)) error {
	t := &trace{r: r, space: make([]byte, traceChunk)}
	err := t.document(beside, each)
	if errors.Is(err, errShort) {
		if err = t.err; err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCut
		}
	}
	if err != nil {
		return fmt.Errorf("at byte %d: %w", t.offset, err)
	}
	return nil
}

// more reads on; false at the end.
func (t *trace) more() bool {
	if t.err != nil || len(t.buf) >= mostElement {
		return false
	}
	if t.start > 0 {
		copy(t.space, t.buf)
		t.start = 0
	}
	n := len(t.buf)
	if n == len(t.space) {
		t.space = append(t.space, make([]byte, len(t.space))...)
	}
	var read int
	for read == 0 && t.err == nil {
		read, t.err = t.r.Read(t.space[n:])
	}
	t.buf = t.space[:n+read]
	return read > 0
}

// step goes on by n bytes.
func (t *trace) step(n int) {
	t.buf = t.buf[n:]
	t.start += n
	t.offset += int64(n)
}

// whole calls scan with what is buffered, with more of it until that is enough, and goes on
// behind what was scanned.
func (t *trace) whole(scan func(b []byte) (int, error)) error {
	for {
		n, err := scan(t.buf)
		if err == nil {
			t.step(n)
			return nil
		}
		if !errors.Is(err, errShort) {
			t.step(n)
			return err
		}
		if !t.more() {
			if len(t.buf) >= mostElement {
				return fmt.Errorf("an element is longer than %d bytes", mostElement)
			}
			return errShort
		}
	}
}

// next returns the next byte that is no space, without going over it.
func (t *trace) next() (c byte, err error) {
	err = t.whole(func(b []byte) (int, error) {
		i := space(b, 0)
		if i == len(b) {
			return i, errShort
		}
		c = b[i]
		return i, nil
	})
	return c, err
}

func (t *trace) document(beside func(key, value []byte), each func(*event)) error {
	c, err := t.next()
	if err != nil {
		return err
	}
	if c == '[' {
		return t.events(each)
	}
	if c != '{' {
		return fmt.Errorf("%q where a trace begins with { or [", c)
	}
	t.step(1)
	for first := true; ; first = false {
		if c, err = t.next(); err != nil {
			return err
		}
		switch {
		case c == '}':
			return nil
		case c == ',' && !first:
			t.step(1)
			if c, err = t.next(); err != nil {
				return err
			}
		}
		if c != '"' {
			return fmt.Errorf("%q where a key is wanted", c)
		}
		if err := t.member(beside, each); err != nil {
			return err
		}
	}
}

// member takes a key of the document with its value.
func (t *trace) member(beside func(key, value []byte), each func(*event)) error {
	events := false
	err := t.whole(func(b []byte) (int, error) {
		key, i, err := keyOf(b, 0)
		if err != nil {
			return 0, err
		}
		if events = string(key) == "traceEvents"; events {
			return i, nil
		}
		end, err := value(b, i)
		if err != nil {
			return 0, err
		}
		beside(key, b[i:end])
		return end, nil
	})
	if err != nil || !events {
		return err
	}
	if c, err := t.next(); err != nil || c != '[' {
		return errors.Join(err, errors.New("traceEvents is no list"))
	}
	return t.events(each)
}

func (t *trace) events(each func(*event)) error {
	t.step(1)
	var e event
	for {
		done := false
		err := t.whole(func(b []byte) (int, error) {
			i := space(b, 0)
			if i < len(b) && b[i] == ',' {
				i = space(b, i+1)
			}
			switch {
			case i == len(b):
				return 0, errShort
			case b[i] == ']':
				done = true
				return i + 1, nil
			case b[i] != '{':
				return i, fmt.Errorf("%q where an event is wanted", b[i])
			}
			end, err := e.parse(b, i)
			if err == nil {
				each(&e)
			}
			return end, err
		})
		if err != nil || done {
			return err
		}
	}
}

// parse reads the event that begins at b[i] and returns where it ends.
func (e *event) parse(b []byte, i int) (int, error) {
	*e = event{}
	i = space(b, i+1)
	for {
		if i == len(b) {
			return 0, errShort
		}
		if b[i] == '}' {
			return i + 1, nil
		}
		if b[i] == ',' {
			i = space(b, i+1)
		}
		key, at, err := keyOf(b, i)
		if err != nil {
			return i, err
		}
		end, err := value(b, at)
		if err != nil {
			return at, err
		}
		e.set(key, b[at:end])
		i = space(b, end)
	}
}

func (e *event) set(key, v []byte) {
	switch string(key) {
	case "ph":
		if v = text(v); len(v) > 0 {
			e.ph = v[0]
		}
	case "cat":
		e.cat = text(v)
	case "name":
		e.name = text(v)
	case "pid":
		e.pid = text(v)
	case "tid":
		e.tid = text(v)
	case "id":
		e.id = text(v)
	case "ts":
		e.ts = micros(text(v))
	case "dur":
		e.dur = micros(text(v))
	case "args":
		e.args = v
	}
}

// arg returns the value of a key of the event's arguments, of a text what is between its quotes.
func (e *event) arg(key string) []byte { return memberOf(e.args, key) }

// memberOf returns the value of a key of an object; nil where it has none.
func memberOf(object []byte, key string) []byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for i := space(object, 1); i < len(object) && object[i] != '}'; {
		if object[i] == ',' {
			i = space(object, i+1)
		}
		k, at, err := keyOf(object, i)
		if err != nil {
			return nil
		}
		end, err := value(object, at)
		if err != nil {
			return nil
		}
		if string(k) == key {
			return text(object[at:end])
		}
		i = space(object, end)
	}
	return nil
}

// keyOf reads `"key":` at b[i] and returns where the value begins.
func keyOf(b []byte, i int) (key []byte, at int, err error) {
	if i == len(b) {
		return nil, i, errShort
	}
	if b[i] != '"' {
		return nil, i, fmt.Errorf("%q where a key is wanted", b[i])
	}
	end, err := quoted(b, i)
	if err != nil {
		return nil, i, err
	}
	key = b[i+1 : end-1]
	if at = space(b, end); at == len(b) {
		return nil, i, errShort
	}
	if b[at] != ':' {
		return nil, at, fmt.Errorf("%q where a colon is wanted", b[at])
	}
	if at = space(b, at+1); at == len(b) {
		return nil, i, errShort
	}
	return key, at, nil
}

// value returns where the value that begins at b[i] ends.
func value(b []byte, i int) (int, error) {
	switch b[i] {
	case '"':
		return quoted(b, i)
	case '{', '[':
		return nested(b, i)
	case ',', ':', '}', ']':
		return i, fmt.Errorf("%q where a value is wanted", b[i])
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i, nil
		case '"', '{', '[':
			return i, fmt.Errorf("%q within a number", b[i])
		}
	}
	return i, errShort
}

func nested(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, err := quoted(b, i)
			if err != nil {
				return i, err
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return i, errShort
}

// quoted returns where the string that begins at b[i] ends.
func quoted(b []byte, i int) (int, error) {
	for at := i + 1; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return i, errShort
		}
		at += n
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}
		if at++; slashes%2 == 0 {
			return at, nil
		}
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// text takes the quotes from a string; other values stay as they are.
func text(v []byte) []byte {
	if len(v) >= 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}
	return v
}

// micros reads decimal microseconds as ns; what is no number is 0.
func micros(v []byte) int64 {
	var ns int64
	i, neg := 0, false
	if len(v) > 0 && v[0] == '-' {
		i, neg = 1, true
	}
	digits := i
	for ; i < len(v) && v[i] >= '0' && v[i] <= '9' && i-digits < 16; i++ {
		ns = 10*ns + int64(v[i]-'0')
	}
	fraction := 0
	if i < len(v) && v[i] == '.' {
		for i++; i < len(v) && v[i] >= '0' && v[i] <= '9'; i++ {
			if fraction < 3 {
				ns = 10*ns + int64(v[i]-'0')
				fraction++
			}
		}
	}
	if i < len(v) { // an exponent, or more than there are microseconds in 300 years
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f*1e3 >= 1<<62 || f*1e3 <= -1<<62 {
			return 0
		}
		return int64(f * 1e3)
	}
	for ; fraction < 3; fraction++ {
		ns *= 10
	}
	if neg {
		return -ns
	}
	return ns
}

// number reads a decimal number; what is none is missing.
func number(v []byte, missing int64) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return missing
	}
	return n
}
