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

// object is a JSON object's values by exact key; of a repeated key the last.
type object map[string]json.RawMessage

// strict reads a line with any key order, with encoding/json. It is the only one
// that rejects.
func (p *Parser) strict(line []byte) error {
	var o object
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

	r := reader{o: o}
	m.Kind = r.u32("Kind", true)
	switch m.Kind {
	case KindMarker:
		m.Flag, m.Source = r.u32("Flag", true), r.u32("SourceKind", true)
		m.Timestamp, m.ID = r.u64("Timestamp", true), r.u64("Id", true)
		id := r.object("MsptiObjectId")
		pt, ds := id.object("Pt"), id.object("Ds")
		m.Process, m.Thread = pt.u32("ProcessId", false), pt.u32("ThreadId", false)
		m.Device, m.Stream = ds.u32("DeviceId", false), ds.u32("StreamId", false)
		m.Name, m.Domain = r.text("Name"), r.text("Domain")
		r.join(id, pt, ds)
	case KindAPI:
		m.Timestamp, m.End, m.ID = r.u64("Start", true), r.u64("End", true), r.u64("CorrelationId", false)
		pt := r.object("Pt")
		m.Process, m.Thread = pt.u32("ProcessId", false), pt.u32("ThreadId", false)
		m.Device, m.Stream = m.Process, m.Thread
		m.Name = r.text("Name")
		r.join(pt)
	case KindKernel:
		m.Source = DeviceSide
		m.Timestamp, m.End, m.ID = r.u64("Start", true), r.u64("End", true), r.u64("CorrelationId", false)
		ds := r.object("Ds")
		m.Device, m.Stream = ds.u32("DeviceId", false), ds.u32("StreamId", false)
		m.Process, m.Thread = m.Device, m.Stream
		m.Type, m.Name = r.text("Type"), r.text("Name")
		r.join(ds)
	}

	return r.err
}

// reader takes typed values out of an object; the first error stays.
type reader struct {
	o   object
	err error
}

func (r *reader) raw(key string) (json.RawMessage, bool) {
	v, ok := r.o[key]
	return v, ok && string(v) != "null"
}

func (r *reader) u64(key string, required bool) uint64 {
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

func (r *reader) u32(key string, required bool) uint32 {
	n := r.u64(key, required)
	if n > 1<<32-1 {
		r.fail(key, fmt.Errorf("%d does not fit 32 bits", n))
		return 0
	}

	return uint32(n)
}

func (r *reader) text(key string) []byte {
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

func (r *reader) object(key string) *reader {
	sub := &reader{}
	if v, ok := r.raw(key); ok {
		if err := json.Unmarshal(v, &sub.o); err != nil {
			r.fail(key, err)
		}
	}

	return sub
}

func (r *reader) fail(key string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("parse marker: key %s: %w", key, err)
	}
}

// join takes over the first error of the objects inside.
func (r *reader) join(subs ...*reader) {
	for _, s := range subs {
		if r.err == nil {
			r.err = s.err
		}
	}
}
