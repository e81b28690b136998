package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path/filepath"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

const (
	// headLines are read of a rank's oldest segment: some steps, so every
	// communicator that is used in each step.
	headLines = 4096
	// tailBytes are read of the end of its newest segment.
	tailBytes = 64 << 10
)

// read returns when a rank wrote, and the communicators that it names. false: there
// is no line in it that tells a time.
func read(r segment.RankDir) (when extent, names []string, ok bool) {
	infos, err := segment.List(r.Path)
	if err != nil || len(infos) == 0 {
		return when, nil, false
	}

	s := sight{from: math.MaxInt64, names: map[string]bool{}}
	s.head(filepath.Join(r.Path, infos[0].Name))
	s.tail(filepath.Join(r.Path, infos[len(infos)-1].Name), infos[len(infos)-1])
	for name := range s.names {
		names = append(names, name)
	}

	names = append(names, communicators(filepath.Join(r.Path, topology.ParallelGroupFile))...)
	return extent{s.from, s.to}, names, s.to > 0
}

// sight is what lines tell of time and communicators.
type sight struct {
	from, to int64
	names    map[string]bool
	marker   marker.Parser
	record   record.Parser
}

func (s *sight) head(path string) {
	s.lines(path, 0, headLines)
}

func (s *sight) tail(path string, info segment.Info) {
	offset := int64(0)
	if !info.Compressed {
		offset = max(0, info.Size-tailBytes)
	}

	s.lines(path, offset, math.MaxInt)
}

func (s *sight) lines(path string, offset int64, most int) {
	f, err := segment.OpenReader(path)
	if err != nil {
		return
	}
	defer f.Close()
	if offset > 0 && f.SeekTo(offset) != nil {
		return
	}

	for n := 0; n < most; n++ {
		line, _, err := f.Next()
		if errors.Is(err, io.EOF) || err != nil {
			return
		}

		if n > 0 || offset == 0 { // else the rest of one
			s.line(line)
		}
	}
}

func (s *sight) line(line []byte) {
	if s.marker.Parse(line) == nil {
		m := &s.marker.Marker
		s.at(m.Timestamp)
		if string(m.Domain) == marker.CommunicationDomain {
			s.group(m.Name)
		}

		return
	}

	// Our own lines tell the time alone: their groups' names are not unique.
	if t, err := s.record.Parse(line); err == nil && t == record.LineRecord {
		s.at(uint64(max(0, s.record.Record.Start)))
	}
}

func (s *sight) at(ns uint64) {
	if ns == 0 || ns > math.MaxInt64 {
		return
	}

	s.from, s.to = min(s.from, int64(ns)), max(s.to, int64(ns))
}

var groupName = []byte(`groupName`)

// group takes the communicator's name out of a communication's.
func (s *sight) group(name []byte) {
	var c struct {
		Group string `json:"groupName"`
	}
	if bytes.Contains(name, groupName) && json.Unmarshal(name, &c) == nil && c.Group != "" && len(s.names) < 4096 {
		s.names[c.Group] = true
	}
}
