package marker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

var (
	errNotObject = errors.New("not a JSON object")
	errNoKind    = errors.New("no Kind")
)

// strict reads a line with any key order, with encoding/json. It is the only one
// that rejects. Keys that the line's Kind does not have are ignored, and an unknown Kind
// has none: what it means is the Pairer's to say. What nobody can do without is required;
// a line without its process or device is read as that of process or device 0.
func (p *Parser) strict(line []byte) error {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(line, &o); err != nil || o == nil {
		if err == nil {
			err = errNotObject
		}

		return fmt.Errorf("parse marker: %w", err)
	}

	m := &p.Marker
	if _, ok := o["Kind"]; !ok {
		return fmt.Errorf("parse marker: %w", errNoKind)
	}

	var failed error
	r := reader{o, &failed}
	m.Kind = r.u32("Kind", true)
	if m.Kind == KindMarker {
		m.Flag, m.Source = r.u32("Flag", true), r.u32("SourceKind", true)
		m.Timestamp, m.ID = r.u64("Timestamp", true), r.u64("Id", true)
		id := r.object("MsptiObjectId")
		pt, ds := id.object("Pt"), id.object("Ds")
		m.Process, m.Thread = pt.u32("ProcessId", false), pt.u32("ThreadId", false)
		m.Device, m.Stream = ds.u32("DeviceId", false), ds.u32("StreamId", false)
		m.Name, m.Domain = r.text("Name"), r.text("Domain")
	}

	return failed
}

// reader takes typed values out of a JSON object by exact key, of a repeated key the last;
// the first error stays.
type reader struct {
	o   map[string]json.RawMessage
	err *error // of the whole line
}

// raw returns a key's value; false: it is missing, or null, which encoding/json leaves out.
func (r reader) raw(key string) (json.RawMessage, bool) {
	v, ok := r.o[key]
	return v, ok && string(v) != "null"
}

func (r reader) u64(key string, required bool) uint64 {
	v, ok := r.raw(key)
	if !ok {
		if required {
			r.fail(key, errors.New("missing"))
		}

		return 0
	}

	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		r.fail(key, fmt.Errorf("%.40q is no unsigned number", v))
		return 0
	}

	return n
}

func (r reader) u32(key string, required bool) uint32 {
	n := r.u64(key, required)
	if n > 1<<32-1 {
		r.fail(key, fmt.Errorf("%d does not fit 32 bits", n))
		return 0
	}

	return uint32(n)
}

func (r reader) text(key string) []byte {
	v, ok := r.raw(key)
	if !ok {
		return nil
	}

	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		r.fail(key, err)
	}

	if s == "" {
		return nil
	}

	return []byte(s)
}

// object returns a reader of an object within; of a missing one every key is missing.
func (r reader) object(key string) reader {
	sub := reader{err: r.err}
	if v, ok := r.raw(key); ok {
		if err := json.Unmarshal(v, &sub.o); err != nil {
			r.fail(key, err)
		}
	}

	return sub
}

func (r reader) fail(key string, err error) {
	if *r.err == nil {
		*r.err = fmt.Errorf("parse marker: key %s: %w", key, err)
	}
}
