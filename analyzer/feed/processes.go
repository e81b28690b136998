package feed

import (
	"cmp"
	"reflect"
	"slices"
	"unique"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// process is one incarnation of one rank: how far its rows came, and what the layout of
// the job needs to know of it.
type process struct {
	LastStep  int64
	LastStart int64
	Run       int   // how often it went back to an earlier step
	Newest    int64 // start of the newest row that came, placed or not
	Rows      int32 // that came
	Settled   bool
	Running   bool // the last column that went shows it in its rank's place
	Alone     bool // the only process of its rank so far
	Tells     bool // roles, by its identity
	begun     bool // of a History: a row was placed

	row     int   // of the columns, by the last build; -1 without one
	number  int32 // in a History
	waiting int32 // rows of a History that were not placed yet
	at      place // of its last row that was, from then on

	// Held are rows that wait until it is known what this process is: the first of
	// a new launch, or a rank that was restarted alone.
	Held []row.Step

	*frame.Process
}

// processes knows all processes of a job and who is who.
type processes struct {
	Ranks map[uint32][]*process
	Order []uint32 // ranks, ascending
	Rows  []int    // global rank of each row of the columns
	Told  bool     // the roles, by identities or a file: nothing is sampled
	Seen  [frame.MetricCount]bool
	Dirty bool

	world    *frame.World // nil before a build, and so after a Restore: rows wait for the next
	samples  int          // of each process; 0 means sampleSteps
	offs     []frame.Off  // when recording was off, where offKnown
	offKnown bool
}

// sampleSteps of each rank are looked at before roles are guessed.
const sampleSteps = 32

func newProcesses() *processes { return &processes{Ranks: map[uint32][]*process{}} }

// process finds or makes the process: from the newest backwards, since that is who is asked for.
func (r *processes) process(rank uint32, id uint64) *process {
	list := r.Ranks[rank]
	for k := len(list) - 1; k >= 0; k-- {
		if list[k].ID == id {
			return list[k]
		}
	}

	p := &process{Alone: len(list) == 0, Process: &frame.Process{Rank: rank, ID: id}}
	for _, q := range list {
		q.Alone = false
	}

	if len(list) == 0 {
		k, _ := slices.BinarySearch(r.Order, rank)
		r.Order = slices.Insert(r.Order, k, rank)
	}

	r.Ranks[rank] = append(list, p)
	return p
}

// each calls visit with every process, by rank.
func (r *processes) each(visit func(*process)) {
	for _, rank := range r.Order {
		for _, p := range r.Ranks[rank] {
			visit(p)
		}
	}
}

// identity takes a row of the table of ranks.
func (r *processes) identity(m *row.Rank) {
	p := r.process(m.Rank, m.Incarnation)
	known, old := p.Known, p.Meta
	if !p.Identify(m) {
		return
	}

	p.Tells = p.TellsRoles()
	if !slices.Equal(old.Off, p.Meta.Off) {
		r.offKnown = false
	}

	old.EndedNs, old.Version, old.Off = p.Meta.EndedNs, p.Meta.Version, p.Meta.Off // these change nothing of who is who
	if !known || !reflect.DeepEqual(old, p.Meta) {
		r.Dirty = true
	}
}

// off returns when recording was off.
func (r *processes) off() []frame.Off {
	if !r.offKnown {
		var ranks []*row.Rank
		r.each(func(p *process) {
			if p.Known {
				ranks = append(ranks, &p.Meta)
			}
		})
		r.offs, r.offKnown = frame.OffTimes(ranks), true
	}

	return r.offs
}

// step notes what the layout needs of a step.
func (r *processes) step(p *process, s *row.Step) {
	at := frame.Place{Step: s.Step, Repeat: s.Repeat}
	if p.Rows == 0 || at.Before(p.First) {
		p.Stepped, p.First, p.FirstNs = true, at, s.StartNs
		if p.Node == "" {
			p.Node = unique.Make(s.Node).Value() // one copy of each
		}

		r.Dirty = true
	}

	if s.StartNs > 0 && (p.EarlyNs == 0 || s.StartNs < p.EarlyNs) {
		p.EarlyNs = s.StartNs
		r.Dirty = true
	}

	p.Newest, p.Rows = max(p.Newest, s.StartNs), p.Rows+1
	if !r.Told && len(p.Samples) < cmp.Or(r.samples, sampleSteps) && !p.Tells {
		var v [frame.MetricCount]float32
		frame.Cells(s, &v)
		for m, x := range v {
			r.Seen[m] = r.Seen[m] || x == x
		}

		p.Samples = append(p.Samples, frame.Sample{FP: v[frame.FP], Self: v[frame.Self]})
	}
}

// overlap tells of two runs under the job's name.
func (r *processes) overlap() *frame.Overlap {
	var all []frame.Stretch
	r.each(func(p *process) {
		if !p.Alone {
			all = append(all, frame.Stretch{Rank: p.Rank, Incarnation: p.ID, PID: p.Meta.PID, Node: p.NodeName(),
				FromNs: p.EarlyNs, ToNs: p.Newest, Steps: int(p.Rows)})
		}
	})
	return frame.FindOverlap(all, len(r.Order))
}

// build finds the launches anew, and each process's place in them. It reports whether
// any step is known at all.
func (r *processes) build(topo *topology.File) bool {
	r.Dirty = false
	var all []*frame.Process
	stepped := false
	r.each(func(p *process) {
		if p.Known || p.Stepped { // of who only communicated nothing is known yet
			all = append(all, p.Process)
		}

		stepped = stepped || p.Stepped
	})
	if !stepped {
		return false
	}

	r.world = frame.NewWorld(all, r.Seen, topo)
	r.Rows = r.world.Ranks
	r.each(func(p *process) { p.row = r.world.Row(p.Rank) })
	return true
}

// told notes whether roles need samples: not when the layout has them from identities
// or a file.
func (r *processes) told(l *frame.Layout) {
	if was := r.Told; was != (l.From == "inferred") {
		return
	}

	if r.Told = l.From != "inferred"; r.Told {
		r.each(func(p *process) { p.Samples = nil })
	}
}

// running returns the processes that a launch's columns show now, by row.
func (r *processes) running(attempt int) []*frame.Process {
	current := r.world.Beginning(attempt)
	for k, rank := range r.Rows {
		for _, p := range r.Ranks[uint32(rank)] {
			if p.Running && p.Attempt == attempt {
				current[k] = p.Process
			}
		}
	}

	return current
}
