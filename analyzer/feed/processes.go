package feed

import (
	"math"
	"reflect"
	"slices"
	"unique"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// sampleSteps of each rank are looked at before roles are guessed.
const sampleSteps = 32

// process finds or makes the process: from the newest backwards, since that is who is asked for.
func (f *Feed) process(rank uint32, id uint64) *process {
	k, known := f.at(rank)
	if !known {
		f.Order, f.Ranks = slices.Insert(f.Order, k, rank), slices.Insert(f.Ranks, k, nil)
	}

	for _, p := range slices.Backward(f.Ranks[k]) {
		if p.ID == id {
			return p
		}
	}

	p := &process{Rank: rank, ID: id}
	f.Ranks[k] = append(f.Ranks[k], p)
	return p
}

// at is where a rank is in Order, or belongs. They are numbered from 0, so it is there where none is missing.
func (f *Feed) at(rank uint32) (k int, known bool) {
	if k = int(rank); k < len(f.Order) && f.Order[k] == rank {
		return k, true
	}

	return slices.BinarySearch(f.Order, rank)
}

// each calls visit with every process, by rank.
func (f *Feed) each(visit func(*process)) {
	for _, list := range f.Ranks {
		for _, p := range list {
			visit(p)
		}
	}
}

// identity takes a row of the table of ranks; the highest version counts.
func (f *Feed) identity(m *row.Rank) {
	p := f.process(m.Rank, m.Incarnation)
	known, old := p.Known, p.Meta
	if known && m.Version < old.Version {
		return
	}

	p.Known, p.Meta = true, *m
	p.Meta.Groups, p.Meta.GroupRanks, p.Meta.Off = slices.Clone(m.Groups), slices.Clone(m.GroupRanks), slices.Clone(m.Off)
	p.Tells = p.tellsRoles()
	if !slices.Equal(old.Off, p.Meta.Off) {
		f.offKnown = false
	}

	old.EndedNs, old.Version, old.Off = p.Meta.EndedNs, p.Meta.Version, p.Meta.Off // these change nothing of who is who
	if !known || !reflect.DeepEqual(old, p.Meta) {
		f.Dirty = true
	}
}

// Off returns when recording was off.
func (f *Feed) Off() []frame.Off {
	if !f.offKnown {
		var ranks []*row.Rank
		f.each(func(p *process) {
			if p.Known {
				ranks = append(ranks, &p.Meta)
			}
		})
		f.offs, f.offKnown = frame.OffTimes(ranks), true
	}

	return f.offs
}

// sample notes what the layout needs of a step.
func (f *Feed) sample(p *process, s *row.Step) {
	at := place{Step: int64(s.Step), Repeat: int32(s.Repeat)}
	if p.Steps == 0 || at.Compare(p.First) < 0 {
		p.First, p.FirstNs = at, s.StartNs
		if p.Node == "" {
			p.Node = unique.Make(s.Node).Value() // one copy of each
		}

		f.Dirty = true
	}

	if s.StartNs > 0 && (p.EarlyNs == 0 || s.StartNs < p.EarlyNs) {
		p.EarlyNs = s.StartNs
		f.Dirty = true
	}

	p.LateNs, p.Steps = max(p.LateNs, s.StartNs), p.Steps+1
	if len(p.Own) < f.samples && !p.Tells {
		var v [frame.MetricCount]float32
		frame.Cells(s, &v)
		for m, x := range v {
			f.Seen[m] = f.Seen[m] || x == x
		}

		p.Forward, p.Own = append(p.Forward, v[frame.FP]), append(p.Own, v[frame.Self])
	}
}

// Overlap tells of two runs under the job's name, nil where there is one.
func (f *Feed) Overlap() *frame.Overlap {
	var all []*process
	for _, list := range f.Ranks {
		if len(list) > 1 {
			all = append(all, list...)
		}
	}

	return findOverlap(all, len(f.Order))
}

// build finds the launches anew, and each process's place in them. It reports whether
// any step is known at all.
func (f *Feed) build(topo *topology.File) bool {
	f.Dirty = false
	var all []*process
	stepped := false
	f.each(func(p *process) {
		if p.Known || p.Steps > 0 { // of who only communicated nothing is known yet
			all = append(all, p)
		}

		stepped = stepped || p.Steps > 0
	})
	if !stepped {
		return false
	}

	f.world = newWorld(all, f.Seen, topo)
	f.Rows = f.world.ranks
	for _, list := range f.Ranks {
		for _, p := range list {
			p.row, p.turn = rowOf(f.world.ranks, int(p.Rank)), turn(p, list)
		}
	}

	return true
}

// turn numbers the processes of a rank by their starts, from 1.
func turn(p *process, all []*process) uint16 {
	n := uint16(1)
	for _, q := range all {
		if q.begin() < p.begin() && n < math.MaxUint16 {
			n++
		}
	}

	return n
}
