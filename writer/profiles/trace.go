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

// scanTrace calls each with the events of a trace, and beside with the key and value of all
// that stands beside them. The error says at which byte the document breaks off.
func scanTrace(r io.Reader, beside func(key, value []byte), each func(*event)) error {
	var e event
	return scanDocument(r, "traceEvents", beside, func(b []byte, i int) (int, error) {
		end, err := e.parse(b, i)
		if err == nil {
			each(&e)
		}

		return end, err
	})
}
