package rollup

import (
	"strconv"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
)

// readMarker takes a TaskD line; false means that it is none.
func (s *Stream) readMarker(offset int64, line []byte) bool {
	if s.marker.Parse(line) != nil {
		return false
	}
	if s.segments[s.current] == nil {
		s.Segment(0, "")
	}
	if !s.bounds.hold(timeOf(&s.marker.Marker)) {
		s.refuse(offset, line, "")
		return true
	}
	res := s.pairer.Add(&s.marker.Marker, marker.Place{Segment: s.current, Offset: offset})
	if res.Over != nil {
		if inc := s.foreign[res.Over]; inc != nil {
			s.depart(inc)
		}
	}
	if res.Begun != nil {
		s.beginForeign(res.Begun)
	}
	if res.Process != nil && !s.replay {
		if inc := s.foreign[res.Process]; inc != nil {
			s.revive(inc)
		}
	}
	switch {
	case res.Unknown:
		s.count(&s.counts.Unknown)
	case res.Late:
		s.lateStart(res.Process)
	case res.Range != nil:
		s.complete(res.Range)
	case res.Ended != nil:
		s.hostEnded(res.Ended)
	}
	return true
}

// beginForeign makes an incarnation of a process that wrote no identity.
func (s *Stream) beginForeign(p *marker.Process) {
	id := record.HashID(s.o.Job, strconv.Itoa(s.o.Rank), strconv.FormatUint(uint64(p.PID), 10), strconv.FormatUint(p.First, 10))
	for s.find(id) != nil { // the same line again, of a process that was taken for dead
		id = record.HashID(id.String(), "again")
	}
	inc := s.begin(id)
	inc.process = p
	inc.version = 1
	inc.meta = record.Meta{
		Job: s.o.Job, Rank: s.o.Rank, Incarnation: id, WorldSize: s.o.WorldSize, LocalRank: s.o.LocalRank,
		PID: int(p.PID), StartedNs: int64(min(p.First, 1<<62)), Groups: s.o.Groups, Writer: record.TaskD,
	}
	addDims(inc.dims, s.o.Groups)
	p.Floor = inc.floor
	s.foreign[p] = inc
	s.giveRank(inc)
}

// lateStart counts the start of a range whose step is closed: TaskD's lines give
// no more to store.
func (s *Stream) lateStart(p *marker.Process) {
	if s.replay {
		return
	}
	s.counts.Late++
	s.counts.kind(record.Other, record.Other.String()).Emitted++
	add(&s.counts.Lost, LateRange, 1)
	if inc := s.foreign[p]; inc != nil {
		inc.late = true
	}
}

// complete takes a range all of whose lines have come.
func (s *Stream) complete(r *marker.Range) {
	inc := s.foreign[r.Process]
	if inc == nil {
		return
	}
	s.addRange(inc, r)
	s.advance(inc)
}

// hostEnded takes a step whose host window is known and whose device lines are
// still to come.
func (s *Stream) hostEnded(r *marker.Range) {
	inc := s.foreign[r.Process]
	if inc == nil || r.Record.Kind != record.Step || r.HostEnd() == 0 || r.Begin < inc.floor {
		return
	}
	inc.insert(openStep{begin: r.Begin, end: max(r.HostEnd(), r.Begin+1), number: r.Record.Step, id: r.ID})
	s.advance(inc)
}

// Groups tells the parallel groups of files without identity lines when they are
// learnt after the first line (TaskD writes parallel_group.json some steps into a
// job). Rows closed before keep the dimension other. Unlike the lines this is no
// content: a stream that is told at another line gives other rows.
func (s *Stream) Groups(groups []record.Group) {
	s.o.Groups = groups
	addDims(s.dims, groups)
	for _, inc := range s.live() {
		if inc.process == nil {
			continue
		}
		inc.meta.Groups = groups
		addDims(inc.dims, groups)
		inc.version++
		s.giveRank(inc)
	}
}
