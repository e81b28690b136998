package marker

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/laggard-dev/laggard/schemas/record"
)

var (
	errNoKind  = errors.New("no Kind")
	errMissing = errors.New("a marker has Flag, SourceKind, Timestamp and Id")
)

// strict reads a line with any key order, with encoding/json. It is the only one
// that rejects. Keys that a marker does not have are ignored, and of an unknown Kind all
// others: what it means is the Pairer's to say. What nobody can do without is required;
// a line without its process or device is read as that of process or device 0.
func (p *Parser) strict(line []byte) error {
	// A nil pointer: the key is missing, or null.
	var kind, flag, source *uint32
	var timestamp, id *uint64
	var name, domain string
	m := &p.Marker
	err := json.Unmarshal(line, &record.Object{
		"Kind": &kind, "Flag": &flag, "SourceKind": &source, "Timestamp": &timestamp, "Id": &id, "Name": &name, "Domain": &domain,
		"MsptiObjectId": &record.Object{
			"Pt": &record.Object{"ProcessId": &m.Process, "ThreadId": &m.Thread},
			"Ds": &record.Object{"DeviceId": &m.Device, "StreamId": &m.Stream},
		},
	})
	switch {
	case err != nil:
	case kind == nil:
		err = errNoKind
	case *kind != KindMarker:
		*m = Marker{Kind: *kind}
		return nil
	case flag == nil || source == nil || timestamp == nil || id == nil:
		err = errMissing
	}

	if err != nil {
		return fmt.Errorf("parse marker: %w", err)
	}

	m.Kind, m.Flag, m.Source, m.Timestamp, m.ID = KindMarker, *flag, *source, *timestamp, *id
	m.Name, m.Domain = []byte(name), []byte(domain)
	return nil
}
