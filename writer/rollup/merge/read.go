package merge

import (
	"encoding/json"
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
	// mostNames bounds the communicators that its lines name.
	mostNames = 4096
)

// read returns when a rank wrote, and the communicators that it names. false: there
// is no line in it that tells a time.
func read(r segment.RankDir) (when extent, names map[string]bool, ok bool) {
	infos, err := segment.List(r.Path)
	if err != nil || len(infos) == 0 {
		return when, nil, false
	}

	when, names = extent{from: math.MaxInt64}, map[string]bool{}
	var markers marker.Parser
	var records record.Parser
	take := func(line []byte) {
		var ns uint64
		if m := &markers.Marker; markers.Parse(line) == nil {
			ns = m.Timestamp
			if name := groupOf(m); name != "" && len(names) < mostNames {
				names[name] = true
			}
		} else if t, err := records.Parse(line); err == nil && t == record.LineRecord {
			// Our own lines tell the time alone: their groups' names are not unique.
			ns = uint64(max(0, records.Record.Start))
		}

		if ns != 0 && ns <= math.MaxInt64 { // else it is no time
			when = when.join(extent{int64(ns), int64(ns)})
		}
	}
	lines(filepath.Join(r.Path, infos[0].Name), 0, headLines, take)
	newest := infos[len(infos)-1]
	offset := int64(0)
	if !newest.Compressed {
		offset = max(0, newest.Size-tailBytes)
	}

	lines(filepath.Join(r.Path, newest.Name), offset, math.MaxInt, take)
	groups, _ := topology.ParallelGroup(filepath.Join(r.Path, topology.ParallelGroupFile)) // one that can't be read tells nothing
	for _, g := range groups {
		names[g.Name] = true
	}

	return when, names, when.to > 0
}

// lines gives take so many lines at most from an offset on.
func lines(path string, offset int64, most int, take func(line []byte)) {
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
			take(line)
		}
	}
}

// groupOf returns the communicator that a line names, "" for none.
func groupOf(m *marker.Marker) string {
	var c struct {
		Group string `json:"groupName"`
	}
	if string(m.Domain) != marker.CommunicationDomain || json.Unmarshal(m.Name, &c) != nil {
		return ""
	}

	return c.Group
}
