package feed

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// process is one incarnation of one rank, with what the layout of the job needs
// to know of it.
type process struct {
	// What every row of a step asks for stands together: a fleet's processes don't
	// fit a processor's cache, so each further line of it costs a row its time.
	ID         uint64
	LastStep   int64
	LastStart  int64
	first      stepKey // of First, as a copy
	early      int64   // start of Early
	Attempt    int
	Run        int   // how often it went back to an earlier step
	Newest     int64 // start of the newest row that came, placed or not
	LastRepeat int32
	Rows       int32 // that came
	Rank       uint32
	Stepped    bool
	Settled    bool
	Placed     bool // Attempt and Later are known
	Later      bool // it took a rank's place while the others went on
	Alone      bool // the only process of its rank so far
	Known      bool // an identity came
	copied     bool // first and early are those of First and Early

	// Sample holds its first steps while roles must be guessed from times.
	Sample []row.Step
	// Held are rows that wait until it is known what this process is: the first of
	// a new launch, or a rank that was restarted alone.
	Held []row.Step

	*Life
}

// Life is what a layout is made of: large, and hardly ever asked for. It is exported
// for encoding/gob only.
type Life struct {
	Meta  row.Rank // highest version
	First row.Step // its lowest step
	Early row.Step // its earliest start
}

// stepKey orders the steps of a process.
type stepKey struct {
	Step   uint64
	Repeat uint16
}

// begin is the best known start of the process, as the frame has it.
func (p *process) begin() int64 {
	if p.Meta.StartedNs > 0 {
		return p.Meta.StartedNs
	}
	return p.Early.StartNs
}

// era is a stretch of columns with one layout.
type era struct {
	Attempt int
	First   bool // the attempt's first; else it begins with From
	Run     int
	Step    int64
	Repeat  int32
	layout  *frame.Layout
}

// processes knows all processes of a job and who is who. The layouts come from the
// frame itself: it is built of the first steps of each process alone, which is
// all that a layout depends on, so they are those of `analyze`.
type processes struct {
	Ranks     map[uint32][]*process
	Order     []uint32 // ranks, ascending
	Eras      []era
	Rows      []int // global rank of each row of the columns
	WorldSize int
	Inferred  bool // a role comes from times or communicators: steps are needed first
	Told      bool // the roles, by identities or a file: nothing is sampled
	Comms     []row.Communication
	Dirty     bool
	offs      []frame.Off // when recording was off, where offKnown
	offKnown  bool
	rowOf     []int32    // rank → row + 1, dense
	newest    []*process // rank → the process asked for last, dense
}

// sampleSteps of each rank are looked at before roles are guessed; maxComms
// bounds the windows of communication that are kept for it.
const (
	sampleSteps = 32
	maxComms    = 1 << 20
)

func newProcesses() *processes {
	return &processes{Ranks: map[uint32][]*process{}}
}

// process finds or makes the process.
func (r *processes) process(rank uint32, id uint64) *process {
	if int(rank) < len(r.newest) {
		if p := r.newest[rank]; p != nil && p.ID == id {
			return p
		}
	} else if rank < denseRanks {
		r.newest = append(r.newest, make([]*process, int(rank)+1-len(r.newest))...)
	}
	p := r.find(rank, id)
	if rank < denseRanks {
		r.newest[rank] = p
	}
	return p
}

// denseRanks bounds the tables that are indexed by rank.
const denseRanks = 1 << 20

func (r *processes) find(rank uint32, id uint64) *process {
	list := r.Ranks[rank]
	for k := len(list) - 1; k >= 0; k-- {
		if list[k].ID == id {
			return list[k]
		}
	}
	p := &process{Rank: rank, ID: id, Alone: len(list) == 0, Life: &Life{}}
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

// identity takes a row of the table of ranks.
func (r *processes) identity(m *row.Rank) {
	p := r.process(m.Rank, m.Incarnation)
	if p.Known && m.Version < p.Meta.Version {
		return
	}
	old := p.Meta
	p.Meta = *m
	p.Meta.Groups = slices.Clone(m.Groups)
	p.Meta.GroupRanks = slices.Clone(m.GroupRanks)
	p.Meta.Off = slices.Clone(m.Off)
	if !slices.Equal(old.Off, p.Meta.Off) {
		r.offKnown = false
	}
	old.EndedNs, old.Version, old.Off = p.Meta.EndedNs, p.Meta.Version, p.Meta.Off // these change nothing of who is who
	if !p.Known || !reflect.DeepEqual(old, p.Meta) {
		r.Dirty = true
	}
	p.Known = true
}

// off returns when recording was off.
func (r *processes) off() []frame.Off {
	if !r.offKnown {
		var ranks []*row.Rank
		for _, rank := range r.Order {
			for _, p := range r.Ranks[rank] {
				if p.Known {
					ranks = append(ranks, &p.Meta)
				}
			}
		}
		r.offs, r.offKnown = frame.OffTimes(ranks), true
	}
	return r.offs
}

// step notes what the layout needs of a step.
func (r *processes) step(p *process, s *row.Step) {
	if !p.Stepped {
		p.Stepped, p.First, p.Early, p.copied = true, *s, *s, false
		r.Dirty = true
	}
	if !p.copied {
		p.first, p.early, p.copied = stepKey{p.First.Step, p.First.Repeat}, p.Early.StartNs, true
	}
	if s.Step < p.first.Step || s.Step == p.first.Step && s.Repeat < p.first.Repeat {
		p.First, p.copied = *s, false
		r.Dirty = true
	}
	if s.StartNs > 0 && s.StartNs < p.early {
		p.Early, p.copied = *s, false
		r.Dirty = true
	}
	p.Newest, p.Rows = max(p.Newest, s.StartNs), p.Rows+1
	if !r.Told && len(p.Sample) < sampleSteps && !slices.ContainsFunc(p.Sample, func(x row.Step) bool {
		return x.Step == s.Step && x.Repeat == s.Repeat
	}) {
		p.Sample = append(p.Sample, *s)
	}
}

// overlap tells of two runs under the job's name.
func (r *processes) overlap() *frame.Overlap {
	var all []frame.Stretch
	for _, rank := range r.Order {
		list := r.Ranks[rank]
		if len(list) < 2 {
			continue
		}
		for _, p := range list {
			all = append(all, frame.Stretch{Rank: p.Rank, Incarnation: p.ID, PID: p.Meta.PID, Node: cmp.Or(p.Meta.Node, p.First.Node),
				FromNs: p.Early.StartNs, ToNs: p.Newest, Steps: int(p.Rows)})
		}
	}
	return frame.FindOverlap(all, len(r.Order))
}

// communication keeps a window while roles may have to be inferred from it.
func (r *processes) communication(c *row.Communication) {
	if !r.Told && len(r.Comms) < maxComms {
		r.Comms = append(r.Comms, *c)
	}
}

// build makes the layouts anew. It reports whether any step is known at all.
func (r *processes) build(topo *topology.File, samples bool) bool {
	r.Dirty = false
	b := frame.NewBuilder()
	stepped := false
	for _, rank := range r.Order {
		for _, p := range r.Ranks[rank] {
			if p.Known {
				b.AddRank(&p.Meta)
			}
			if !p.Stepped {
				continue
			}
			stepped = true
			b.AddStep(&p.First)
			if p.Early.Step != p.First.Step || p.Early.Repeat != p.First.Repeat {
				b.AddStep(&p.Early)
			}
			if samples {
				for k := range p.Sample {
					if s := &p.Sample[k]; !same(s, &p.First) && !same(s, &p.Early) {
						b.AddStep(s)
					}
				}
			}
		}
	}
	if !stepped {
		return false
	}
	if samples {
		for k := range r.Comms {
			b.AddCommunication(&r.Comms[k])
		}
	}
	f, err := b.Build(topo)
	if err != nil { // it has steps, so there is no error it could return
		return false
	}
	r.take(f)
	return true
}

func same(a, b *row.Step) bool { return a.Step == b.Step && a.Repeat == b.Repeat }

// take makes eras of the frame's layouts. A layout that is as it was stays the
// same pointer: a new one tells the engine that something changed.
func (r *processes) take(f *frame.Frame) {
	r.WorldSize = f.WorldSize
	r.Rows = f.Ranks
	r.rowOf = nil
	old := r.Eras
	r.Eras, r.Inferred = nil, false
	runs := newest(f)
	last := -1
	for c, k := range f.Columns {
		if k.Layout == last {
			continue
		}
		l := f.Layouts[k.Layout]
		e := era{Attempt: k.Attempt, First: last < 0 || f.Layouts[last].Attempt != k.Attempt, Step: k.Step, Repeat: int32(k.Repeat), Run: runs[c], layout: l}
		last = k.Layout
		r.Inferred = r.Inferred || l.From == "inferred"
		for i := range old {
			if old[i].Attempt == e.Attempt && reflect.DeepEqual(old[i].layout, l) {
				e.layout = old[i].layout
				break
			}
		}
		r.Eras = append(r.Eras, e)
	}
	r.place()
	if !r.Inferred {
		r.Told, r.Comms = true, nil
		for _, list := range r.Ranks {
			for _, p := range list {
				p.Sample = nil
			}
		}
	} else if r.Told && slices.ContainsFunc(r.Eras, func(e era) bool { return e.layout.From == "inferred" && e.Attempt == r.Eras[len(r.Eras)-1].Attempt }) {
		r.Told = false
	}
}

// newest gives each column of the skeleton its run: how often the job had gone
// back before it, as the order of the columns tells.
func newest(f *frame.Frame) []int {
	runs := make([]int, len(f.Columns))
	for c := 1; c < len(f.Columns); c++ {
		if a, b := f.Columns[c-1], f.Columns[c]; a.Attempt == b.Attempt {
			runs[c] = runs[c-1]
			if b.Step <= a.Step {
				runs[c]++
			}
		}
	}
	return runs
}

// place finds each process's attempt in the layouts.
func (r *processes) place() {
	type who struct {
		rank int
		id   uint64
	}
	type where struct {
		attempt int
		later   bool
	}
	at := map[who]where{}
	for _, e := range r.Eras {
		for k, id := range e.layout.Incarnation {
			if !e.layout.Present[k] {
				continue
			}
			w := who{e.layout.Ranks[k], id}
			if _, ok := at[w]; !ok {
				at[w] = where{e.Attempt, !e.First}
			}
		}
	}
	for rank, list := range r.Ranks {
		known := where{}
		for _, p := range list {
			w, ok := at[who{int(rank), p.ID}]
			if !ok {
				w = known // replaced before it finished a column of its own
			}
			known = w
			p.Placed, p.Attempt, p.Later = p.Stepped, w.attempt, w.later
		}
	}
}

// layout returns the layout of a column, nil while none is known.
func (r *processes) layout(c *column) *frame.Layout {
	var found *frame.Layout
	for i := range r.Eras {
		e := &r.Eras[i]
		if e.Attempt == c.Attempt && (found == nil || !c.before(e.Run, e.Step, e.Repeat)) {
			found = e.layout
		}
	}
	return found
}

// row returns the row of a rank, -1 when it has none.
func (r *processes) row(rank uint32) int {
	if r.rowOf == nil {
		most := 0
		for _, k := range r.Rows {
			most = max(most, k+1)
		}
		r.rowOf = make([]int32, most)
		for i, k := range r.Rows {
			r.rowOf[k] = int32(i) + 1
		}
	}
	if int(rank) >= len(r.rowOf) {
		return -1
	}
	return int(r.rowOf[rank]) - 1
}
