package frame

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Builder collects the rows of one job in any order and makes a Frame of them.
// The zero value is ready to use. It is not safe for concurrent use; rows are
// copied, so the caller may reuse them.
type Builder struct {
	job   string
	slots map[uint32]int // rank → index into ranks
	dense []int32        // the same for small ranks: index + 1
	ranks []rankRows
	last  *incarnation
	rows  int

	open, switched, estimated, hostOnly int

	comms commBuilder
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder { return &Builder{} }

// denseRanks bounds the direct table; ranks beyond go through the map.
const denseRanks = 1 << 17

type rankRows struct {
	rank uint32
	incs []*incarnation
}

// incarnation is one process of one rank with its steps, in the order they came.
type incarnation struct {
	rank  uint32
	slot  int
	id    uint64
	meta  row.Rank // Version counts; zero when no identity came
	known bool
	node  string // of the first step row, when there is no identity

	steps  []int64
	reps   []uint16 // nil while all are 0
	starts []int64
	passes []uint16
	vals   [MetricCount][]float32
	order  []int32         // sorted order, nil when the rows came sorted
	tops   map[int64]int32 // highest repeat of a step, made on demand
}

// AddRank takes the identity of one incarnation; the highest version counts.
func (b *Builder) AddRank(r *row.Rank) {
	inc := b.incarnation(r.Rank, r.Incarnation)
	if b.job == "" {
		b.job = r.Job
	}
	if inc.known && r.Version < inc.meta.Version {
		return
	}
	inc.known = true
	inc.meta = *r
	inc.meta.Groups = slices.Clone(r.Groups)
	inc.meta.GroupRanks = slices.Clone(r.GroupRanks)
	inc.meta.Off = slices.Clone(r.Off)
}

// AddStep takes one step of one rank. A step that never ended has no duration
// worth comparing and is only counted.
func (b *Builder) AddStep(s *row.Step) {
	if s.Flags&row.FlagOpen != 0 {
		b.open++
		return
	}
	if s.StepNs < 0 || s.Step > 1<<62 {
		return
	}
	inc := b.incarnation(s.Rank, s.Incarnation)
	if b.job == "" {
		b.job = s.Job
	}
	if inc.node == "" {
		inc.node = s.Node
	}
	b.rows++
	if s.Flags&row.FlagEstimated != 0 {
		b.estimated++
	}
	if s.Flags&row.FlagHostOnly != 0 {
		b.hostOnly++
	}
	inc.addKey(int64(s.Step), s.Repeat, s.StartNs, uint16(min(s.FPCount, math.MaxUint16)))
	if s.Flags&row.FlagSwitched != 0 {
		b.switched++
	}
	var v [MetricCount]float32
	Cells(s, &v)
	for m, x := range v {
		if x == x {
			inc.put(Metric(m), x)
		}
	}
	inc.fill()
}

// Cells makes the cells of a step's column out of one rank's row, NaN where nothing
// was recorded. Of a step in which Communication was switched only the times without
// it count.
func Cells(s *row.Step, v *[MetricCount]float32) {
	*v = [MetricCount]float32{
		Step: seconds(s.StepNs), FP: seconds(s.FPNs), Backward: seconds(s.BackwardNs), HostFP: seconds(s.HostFPNs),
		DataLoader: seconds(s.DataLoaderNs), Checkpoint: seconds(s.CheckpointNs), Tokens: NaN,
		Comm: NaN, Exposed: NaN, TP: NaN, PP: NaN, DP: NaN, CP: NaN, EP: NaN, Other: NaN, Self: NaN,
	}
	if s.Tokens > 0 {
		v[Tokens] = float32(s.Tokens)
	}
	if s.Flags&row.FlagSwitched != 0 {
		return
	}
	v[Comm], v[Exposed], v[Self] = seconds(s.CommNs), seconds(s.ExposedNs), seconds(selfNs(s))
	v[TP], v[PP], v[DP] = seconds(s.CommTPNs), seconds(s.CommPPNs), seconds(s.CommDPNs)
	v[CP], v[EP], v[Other] = seconds(s.CommCPNs), seconds(s.CommEPNs), seconds(s.CommOtherNs)
}

// seconds is a duration of a row, NaN when it was not recorded.
func seconds(ns int64) float32 {
	if ns < 0 {
		return NaN
	}
	return float32(float64(ns) / 1e9)
}

// selfNs is the row's self time, made from its parts where it has none.
func selfNs(s *row.Step) int64 {
	if s.SelfNs >= 0 {
		return s.SelfNs
	}
	if s.ExposedNs < 0 || s.CommNs < 0 {
		return -1
	}
	return max(0, s.StepNs-s.ExposedNs-max(0, s.DataLoaderNs)-max(0, s.CheckpointNs))
}

// Columns is a batch of step rows as columns, for sources that have them so.
// Every slice that is not nil has len(Rank); values are ns, -1 = not recorded.
type Columns struct {
	Rank        []uint32
	Incarnation []uint64
	Step        []uint64
	Repeat      []uint16
	StartNs     []int64
	Flags       []uint32
	Passes      []uint32
	Node        []string
	Ns          [MetricCount][]int64 // Tokens: a count, -1 or 0 = not recorded
}

// AddColumns takes a batch of step rows; it does what AddStep does for each.
func (b *Builder) AddColumns(c *Columns) {
	var s row.Step
	at := func(m Metric, i int) int64 {
		if c.Ns[m] == nil {
			return -1
		}
		return c.Ns[m][i]
	}
	for i, rank := range c.Rank {
		s = row.Step{
			Rank: rank, Step: c.Step[i],
			StepNs: at(Step, i), FPNs: at(FP, i), BackwardNs: at(Backward, i),
			CommNs: at(Comm, i), ExposedNs: at(Exposed, i), CommTPNs: at(TP, i), CommPPNs: at(PP, i),
			CommDPNs: at(DP, i), CommCPNs: at(CP, i), CommEPNs: at(EP, i), CommOtherNs: at(Other, i),
			DataLoaderNs: at(DataLoader, i), CheckpointNs: at(Checkpoint, i), SelfNs: at(Self, i),
			HostFPNs: at(HostFP, i), Tokens: at(Tokens, i),
		}
		if c.Incarnation != nil {
			s.Incarnation = c.Incarnation[i]
		}
		if c.Repeat != nil {
			s.Repeat = c.Repeat[i]
		}
		if c.StartNs != nil {
			s.StartNs = c.StartNs[i]
		}
		if c.Flags != nil {
			s.Flags = c.Flags[i]
		}
		if c.Passes != nil {
			s.FPCount = c.Passes[i]
		}
		if c.Node != nil {
			s.Node = c.Node[i]
		}
		b.AddStep(&s)
	}
}

// AddCommunication takes one window of one rank's communication in one group.
func (b *Builder) AddCommunication(c *row.Communication) {
	if c.TotalNs < 0 || c.Calls == 0 {
		return
	}
	inc := b.incarnation(c.Rank, c.Incarnation)
	if inc.node == "" {
		inc.node = c.Node
	}
	b.comms.add(inc, c)
}

// incarnation finds or makes the incarnation of a rank.
func (b *Builder) incarnation(rank uint32, id uint64) *incarnation {
	if l := b.last; l != nil && l.rank == rank && l.id == id {
		return l
	}
	slot := b.slot(rank)
	r := &b.ranks[slot]
	for _, inc := range r.incs {
		if inc.id == id {
			b.last = inc
			return inc
		}
	}
	inc := &incarnation{rank: rank, slot: slot, id: id}
	r.incs = append(r.incs, inc)
	b.last = inc
	return inc
}

func (b *Builder) slot(rank uint32) int {
	if int(rank) < len(b.dense) && b.dense[rank] != 0 {
		return int(b.dense[rank]) - 1
	}
	if b.slots == nil {
		b.slots = map[uint32]int{}
	}
	if s, ok := b.slots[rank]; ok {
		return s
	}
	s := len(b.ranks)
	b.ranks = append(b.ranks, rankRows{rank: rank})
	b.slots[rank] = s
	if rank < denseRanks {
		if int(rank) >= len(b.dense) {
			b.dense = append(b.dense, make([]int32, int(rank)+1-len(b.dense))...)
		}
		b.dense[rank] = int32(s) + 1
	}
	return s
}

func (i *incarnation) addKey(step int64, rep uint16, start int64, passes uint16) {
	if rep != 0 && i.reps == nil {
		i.reps = make([]uint16, len(i.steps), cap(i.steps))
	}
	i.steps = append(i.steps, step)
	i.starts = append(i.starts, start)
	i.passes = append(i.passes, passes)
	if i.reps != nil {
		i.reps = append(i.reps, rep)
	}
}

func (i *incarnation) put(m Metric, v float32) {
	col := i.vals[m]
	for len(col) < len(i.steps)-1 {
		col = append(col, NaN)
	}
	i.vals[m] = append(col, v)
}

// fill pads every column in use to the length of the keys.
func (i *incarnation) fill() {
	for m := range i.vals {
		if i.vals[m] != nil && len(i.vals[m]) < len(i.steps) {
			i.vals[m] = append(i.vals[m], NaN)
		}
	}
}

func (i *incarnation) rep(k int) uint16 {
	if i.reps == nil {
		return 0
	}
	return i.reps[k]
}

// at returns the index of the k-th row in the order (step, repeat).
func (i *incarnation) at(k int) int {
	if i.order == nil {
		return k
	}
	return int(i.order[k])
}

// sort orders the rows by (step, repeat) and drops what came twice.
func (i *incarnation) sort() {
	less := func(a, b int) int {
		if c := cmp.Compare(i.steps[a], i.steps[b]); c != 0 {
			return c
		}
		return cmp.Compare(i.rep(a), i.rep(b))
	}
	sorted := true
	for k := 1; k < len(i.steps) && sorted; k++ {
		sorted = less(k-1, k) < 0
	}
	if sorted {
		return
	}
	i.order = make([]int32, len(i.steps))
	for k := range i.order {
		i.order[k] = int32(k)
	}
	slices.SortStableFunc(i.order, func(a, b int32) int { return less(int(a), int(b)) })
	i.order = slices.CompactFunc(i.order, func(a, b int32) bool { return less(int(a), int(b)) == 0 })
}

// len returns the number of distinct rows after sort.
func (i *incarnation) len() int {
	if i.order != nil {
		return len(i.order)
	}
	return len(i.steps)
}

// begin returns the best known start of the process, ns since the Unix epoch.
func (i *incarnation) begin() int64 {
	if i.meta.StartedNs > 0 {
		return i.meta.StartedNs
	}
	var first int64
	for _, s := range i.starts {
		if s > 0 && (first == 0 || s < first) {
			first = s
		}
	}
	return first
}

// nodeName is where the process ran, "" unknown.
func (i *incarnation) nodeName() string {
	if i.meta.Node != "" {
		return i.meta.Node
	}
	return i.node
}
