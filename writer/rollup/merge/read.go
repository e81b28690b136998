package merge

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"slices"

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

	s := sight{extent: extent{from: math.MaxInt64}, names: map[string]bool{}}
	s.lines(filepath.Join(r.Path, infos[0].Name), 0, headLines)
	newest := infos[len(infos)-1]
	offset := int64(0)
	if !newest.Compressed {
		offset = max(0, newest.Size-tailBytes)
	}

	s.lines(filepath.Join(r.Path, newest.Name), offset, math.MaxInt)
	groups, _ := topology.ParallelGroup(filepath.Join(r.Path, topology.ParallelGroupFile)) // one that can't be read tells nothing
	for _, g := range groups {
		s.names[g.Name] = true
	}

	return s.extent, slices.Collect(maps.Keys(s.names)), s.to > 0
}

// sight is what lines tell of time and communicators.
type sight struct {
	extent
	names  map[string]bool
	marker marker.Parser
	record record.Parser
}

// lines reads so many lines at most from an offset on.
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
		if err != nil {
			return
		}

		if n > 0 || offset == 0 { // else the rest of one
			s.line(line)
		}
	}
}

// line takes what a line tells.
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

// at widens the extent; 0 and what no int64 holds are no times.
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
