package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

var (
	errNotObject = errors.New("not a JSON object")
	errSyntax    = errors.New("not valid JSON")
)

// strict reads any line with encoding/json. It is the only one that rejects. The type comes
// first, so that a line which is damaged behind its first key is told as one of that type.
func (p *Parser) strict(line []byte) (LineType, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	t, err := firstKey(d)
	switch {
	case !json.Valid(line):
		return t, fmt.Errorf("parse line: %w", errSyntax)
	case err != nil:
		return t, fmt.Errorf("parse line: %w", err)
	}

	switch t {
	case LineRecord:
		return t, p.strictRecord(line)
	case LineMeta:
		p.Meta = Meta{}
		return t, decode(d, t, &p.Meta)
	case LineLoss:
		p.Loss = Loss{}
		return t, decode(d, t, &p.Loss)
	case LineSwitch:
		p.Switch = Switch{}
		return t, decode(d, t, &p.Switch)
	case LineEnd:
		p.End = End{}
		return t, decode(d, t, &p.End)
	default:
		return t, nil
	}
}

// firstKey tells the type of a line, which need not be valid JSON as a whole. d then
// stands before the key's value.
func firstKey(d *json.Decoder) (LineType, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return LineUnknown, errNotObject
	}

	if !d.More() {
		return LineUnknown, nil
	}

	key, err := d.Token()
	if err != nil {
		return LineUnknown, err
	}

	name, _ := key.(string)
	return LineType(max(slices.Index(firstKeys[:], name), 0)), nil
}

// decode reads the value of a control line.
func decode(d *json.Decoder, t LineType, v any) error {
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("parse %s line: %w", t, err)
	}

	return nil
}

// strictRecord reads a valid JSON object as a record.
func (p *Parser) strictRecord(line []byte) error {
	p.reset()
	p.Numbered = false
	r := &p.Record
	var kind string
	side := "host"
	fields := Object{
		"kind": &kind, "step": &r.Step, "start": &r.Start, "dur": &r.Dur, "side": &side,
		"host_start": &r.HostStart, "host_dur": &r.HostDur, "exposed": &r.Exposed,
		"ring": &r.Ring, "seq": &r.Seq, "thread": &r.Thread, "op": &r.Op, "op_raw": &r.OpRaw,
		"group": &r.Group, "peer": &r.Peer, "count": &r.Count, "dtype": &r.Dtype,
		"bytes": &r.Bytes, "tokens": &r.Tokens, "path": &r.Path, "open": &r.Open,
	}
	if err := fields.UnmarshalJSON(line); err != nil {
		return fmt.Errorf("parse record: %w", err)
	}

	if r.Kind = KindOf(kind); r.Kind == Other {
		r.Name = kind
	}

	switch side {
	case "host":
	case "device":
		r.Side = Device
	default:
		return fmt.Errorf("parse record: side %q: want host or device", side)
	}

	if r.Start == missing || r.Dur == missing {
		return fmt.Errorf("parse record: %w", errMissing)
	}

	return nil
}

// Object is where the values of a JSON object go, by key: pointers. Keys are matched
// exactly, whereas a struct's are folded by encoding/json; others are of a newer version,
// and skipped. As there, a null leaves its value as it is, and of a key that comes twice
// the last one counts.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o Object) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}

	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errNotObject
	}

	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}

		name, _ := key.(string)
		v, ours := o[name]
		if !ours {
			v = new(json.RawMessage)
		}

		if err := d.Decode(v); err != nil {
			return fmt.Errorf("key %q: %w", name, err)
		}
	}

	return nil
}
