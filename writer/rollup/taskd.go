package rollup

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// readMarker takes a TaskD line; false means that it is none.
func (s *Stream) readMarker(offset int64, line []byte) bool {
	if s.marker.Parse(line) != nil {
		return false
	}

	at := s.place(offset)
	if !s.timely(timeOf(&s.marker.Marker)) {
		s.refuse(offset, line, "", BadTime)
		return true
	}

	res := s.pairer.Add(&s.marker.Marker, at)
	if res.Over != nil {
		if inc := s.foreign(res.Over); inc != nil {
			s.depart(inc)
		}
	}

	if res.Begun != nil {
		s.beginForeign(res.Begun)
	}

	if res.Process != nil && !s.replay {
		if inc := s.foreign(res.Process); inc != nil {
			s.revive(inc)
		}
	}

	switch {
	case res.Unknown:
		s.counts.Unknown++
	case res.Late:
		s.lateStart(res.Process)
	case res.Range != nil:
		s.complete(res.Range)
	case res.Ended != nil:
		s.hostEnded(res.Ended)
	}

	return true
}

// foreign returns the incarnation of a process that wrote no identity, nil for none.
func (s *Stream) foreign(p *marker.Process) *incarnation {
	for _, inc := range s.incarnations {
		if inc.process == p {
			return inc
		}
	}

	return nil
}

// beginForeign makes an incarnation of a process that wrote no identity.
func (s *Stream) beginForeign(p *marker.Process) {
	id := record.HashID(s.o.Job, strconv.Itoa(s.o.Rank), strconv.FormatUint(uint64(p.PID), 10), strconv.FormatUint(p.First, 10))
	for s.find(id) != nil { // the same line again, of a process that was taken for dead
		id = record.HashID(id.String(), "again")
	}

	inc := s.begin(id)
	inc.process, inc.Process = p, &p.Index
	inc.Version = 1
	inc.Meta = record.Meta{
		Job: s.o.Job, Rank: s.o.Rank, Incarnation: id, WorldSize: s.o.WorldSize,
		PID: int(p.PID), StartedNs: int64(min(p.First, 1<<62)), Writer: record.TaskD,
	}
	s.Learn()
	inc.join(s.groups)
	p.Floor = inc.Floor
	s.giveRank(inc)
}

// lateStart counts the start of a range whose step is closed: TaskD's lines give
// no more to store.
func (s *Stream) lateStart(p *marker.Process) {
	s.counts.Late++
	s.counts.count(emitted, record.Other, record.Other.String())
	s.counts.Lose("", LateRange, 1)
	if inc := s.foreign(p); inc != nil && !s.replay {
		inc.Late = true
	}
}

// complete takes a range all of whose lines have come. The first one that ran on a device
// tells the process's: TaskD's files say it nowhere else, and a rank has one.
func (s *Stream) complete(r *marker.Range) {
	inc := s.foreign(r.Process)
	if inc == nil {
		return
	}

	if r.Record.Kind == record.Step {
		s.Learn()
	}

	if npu, ok := r.Device(); ok && inc.Meta.Device == "" {
		inc.Meta.Device, inc.Meta.LocalRank = fmt.Sprintf("npu:%d", npu), int(npu)
		inc.Version++
		s.giveRank(inc)
	}

	s.addRange(inc, r)
	s.advance(inc)
}

// hostEnded takes a step whose host window is known and whose device lines are
// still to come.
func (s *Stream) hostEnded(r *marker.Range) {
	inc := s.foreign(r.Process)
	if inc == nil || r.Record.Kind != record.Step || r.HostEnd() == 0 {
		return
	}

	if s.Learn(); r.Begin < inc.Floor {
		return
	}

	inc.insert(step{Begin: r.Begin, End: max(r.HostEnd(), r.Begin+1), Number: r.Record.Step, id: r.ID})
	s.advance(inc)
}

// groupsVersion is what groups add to the version of a TaskD process's row: a row that
// knows them counts before any that does not, whoever wrote it.
const groupsVersion = 1 << 16

// Learn asks for the parallel groups (Options.Groups) and closes the steps that were
// held for them. A stream asks itself while steps come; call it now and then beside
// that. Steps that were closed before keep their communication in the dimension other.
func (s *Stream) Learn() {
	if s.o.Groups == nil || s.ended {
		return
	}

	groups := s.o.Groups()
	if len(groups) == 0 || len(groups) == len(s.groups) && &groups[0] == &s.groups[0] {
		return
	}

	s.groups = groups
	addDims(s.dims, groups)
	s.learnt++
	live := s.live()
	for i, inc := range live {
		// An older process beside the one that wrote the file has groups of its own.
		if inc.process != nil && (i == len(live)-1 || len(inc.Meta.Groups) == 0) && inc.join(groups) {
			s.giveRank(inc)
		}

		s.advance(inc)
	}
}

// join makes groups those of a TaskD process; false: they are already.
func (inc *incarnation) join(groups []record.Group) bool {
	same := slices.EqualFunc(groups, inc.Meta.Groups, func(a, b record.Group) bool {
		return topology.FormatGroup(a) == topology.FormatGroup(b) && slices.Equal(a.Ranks, b.Ranks)
	})
	if same {
		return false
	}

	inc.Meta.Groups = groups
	inc.Version += groupsVersion
	return true
}

// Held reports whether steps wait for the groups of their process. End would close them
// without.
func (s *Stream) Held() bool {
	return slices.ContainsFunc(s.live(), func(inc *incarnation) bool { return len(inc.steps) > 0 && s.held(inc) })
}

// held reports whether the steps of a TaskD process wait for its groups.
func (s *Stream) held(inc *incarnation) bool {
	return inc.process != nil && inc.Serial+uint64(len(inc.steps)) <= GroupPatience && s.ungrouped(inc)
}

// ungrouped reports whether a TaskD process names communicators of which none is known.
func (s *Stream) ungrouped(inc *incarnation) bool {
	if s.o.Groups == nil || inc.process == nil {
		return false
	}

	named := func(c *call) bool { return c.Group != "" }
	known := func(c *call) bool {
		_, own := inc.dims[c.Group]
		_, ok := s.dims[c.Group]
		return own || ok
	}
	return slices.ContainsFunc(inc.Window.all, named) && !slices.ContainsFunc(inc.Window.all, known)
}
