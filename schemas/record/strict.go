package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	errNotObject = errors.New("not a JSON object")
	errSyntax    = errors.New("not valid JSON")
)

// strict reads any line with encoding/json. It is the only one that rejects.
func (p *Parser) strict(line []byte) (LineType, error) {
	if !json.Valid(line) {
		return p.firstKey(line), fmt.Errorf("parse line: %w", errSyntax)
	}

	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return LineUnknown, fmt.Errorf("parse line: %w", errNotObject)
	}

	if !d.More() {
		return LineUnknown, nil
	}

	key, err := d.Token()
	if err != nil {
		return LineUnknown, fmt.Errorf("parse line: %w", err)
	}

	switch t := typeOf(key); t {
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

// typeOf returns the type of a line whose first key is the token key.
func typeOf(key json.Token) LineType {
	switch key {
	case "kind":
		return LineRecord
	case "meta":
		return LineMeta
	case "loss":
		return LineLoss
	case "switch":
		return LineSwitch
	case "end":
		return LineEnd
	case "Kind":
		return LineTaskD
	}

	return LineUnknown
}

// firstKey tells the type of a line that is not valid JSON as a whole.
func (p *Parser) firstKey(line []byte) LineType {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return LineUnknown
	}

	key, err := d.Token()
	if err != nil {
		return LineUnknown
	}

	return typeOf(key)
}

// decode reads the value of a control line.
func decode(d *json.Decoder, t LineType, v any) error {
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("parse %s line: %w", t, err)
	}

	return nil
}

// strictRecord walks the keys of a valid JSON object one by one: json.Unmarshal
// into a struct would fold the case of keys.
func (p *Parser) strictRecord(line []byte) error {
	p.reset()
	r := &p.Record
	var kind string
	side := "host"
	fields := map[string]any{
		"kind": &kind, "step": &r.Step, "start": &r.Start, "dur": &r.Dur, "side": &side,
		"host_start": &r.HostStart, "host_dur": &r.HostDur, "exposed": &r.Exposed,
		"ring": &r.Ring, "seq": &r.Seq, "thread": &r.Thread, "op": &r.Op, "op_raw": &r.OpRaw,
		"group": &r.Group, "peer": &r.Peer, "count": &r.Count, "dtype": &r.Dtype,
		"bytes": &r.Bytes, "tokens": &r.Tokens, "path": &r.Path, "open": &r.Open,
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("parse record: %w", err)
	}

	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("parse record: %w", err)
		}

		name, _ := key.(string)
		v, ours := fields[name]
		if !ours {
			v = new(json.RawMessage)
		}

		if err := d.Decode(v); err != nil {
			return fmt.Errorf("parse record: key %q: %w", name, err)
		}
	}

	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) {
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

	return p.check()
}
