package profiles

import "io"

// event is one event of a Chrome trace. Its slices hold until the next one; texts are as they
// stand between their quotes.
type event struct {
	ph        byte
	cat, name []byte
	tid, id   []byte
	ts, dur   int64 // ns
	args      []byte
}

// set takes a key of the event; it never asks to stop.
func (e *event) set(key, v []byte) (more bool) {
	switch string(key) {
	case "ph":
		if v = text(v); len(v) > 0 {
			e.ph = v[0]
		}
	case "cat":
		e.cat = text(v)
	case "name":
		e.name = text(v)
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

	return true
}

// arg returns the value of a key of the event's arguments, of a text what is between its quotes.
func (e *event) arg(key string) []byte { return memberOf(e.args, key) }

// scanTrace calls each with the events of a trace, and beside with the key and value of all
// that stands beside them. The error says at which byte the document breaks off.
func scanTrace(r io.Reader, beside func(key, value []byte), each func(*event)) error {
	var e event
	set := e.set
	return scanDocument(r, "traceEvents", beside, func(b []byte, i int) (int, error) {
		e = event{}
		end, err := members(b, i, set)
		if err == nil {
			each(&e)
		}

		return end, err
	})
}
