package frame

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// world makes the layouts of a frame.
type world struct {
	b     *Builder
	f     *Frame
	topo  *topology.File
	rowOf []int32

	nodeOf  map[int]string // of the topology file
	shared  bool           // the topology and the processes use the same node names
	topDone bool
}

// prepare reads the node names of the topology file once.
func (w *world) prepare() {
	if w.topDone {
		return
	}
	w.topDone = true
	w.nodeOf = map[int]string{}
	if w.topo == nil {
		return
	}
	for name, ranks := range w.topo.Nodes {
		for _, r := range ranks {
			if old, ok := w.nodeOf[r]; !ok || name < old {
				w.nodeOf[r] = name
			}
		}
	}
	for _, r := range w.b.ranks {
		for _, i := range r.incs {
			if _, ok := w.topo.Nodes[i.nodeName()]; ok {
				w.shared = true
			}
		}
	}
}

// node is where a process runs. A name that the process told counts when the
// topology file speaks of the same names, or when the process moved; else the
// file's, which a person wrote, does.
func (w *world) node(i *incarnation, rank int) string {
	own, file := "", w.nodeOf[rank]
	if i != nil {
		own = i.nodeName()
		first := w.b.ranks[i.slot].incs[0]
		moved := own != "" && first != i && first.nodeName() != "" && first.nodeName() != own
		if own != "" && (file == "" || w.shared || moved) {
			return own
		}
	}
	if file != "" {
		return file
	}
	return "node-" + strconv.Itoa(rank)
}

// layouts makes the attempt's layouts: one from its first column on, and one more
// from each column in which a rank's process changed.
func (w *world) layouts(k int, a *attempt, s *span) {
	w.prepare()
	if len(s.keys) == 0 {
		return
	}
	current := map[int]*incarnation{} // row → process
	changes := map[int][]*incarnation{}
	for slot, row := range w.rowOf {
		if row == None {
			continue
		}
		if i := a.first[slot]; i != nil {
			current[int(row)] = i
		}
		for _, i := range a.later[slot] {
			if c := s.first(i); c >= 0 {
				changes[c] = append(changes[c], i)
			}
		}
	}
	at := make([]int, 0, len(changes)+1)
	for c := range changes {
		if c > 0 {
			at = append(at, c)
		}
	}
	slices.Sort(at)
	at = append([]int{0}, at...)
	for n, c := range at {
		for _, i := range changes[c] {
			if row := w.rowOf[i.slot]; row != None {
				current[int(row)] = i
			}
		}
		to := len(s.keys)
		if n+1 < len(at) {
			to = at[n+1]
		}
		l := w.layout(k, a, current)
		w.f.Layouts = append(w.f.Layouts, l)
		for j := c; j < to; j++ {
			w.f.Columns[s.from+j].Layout = len(w.f.Layouts) - 1
		}
	}
}

// first is the first column that a process recorded, -1 when none.
func (s *span) first(i *incarnation) int {
	least := int32(-1)
	for k := range i.len() {
		if n, ok := s.index[s.key(i, i.at(k), true)]; ok && (least < 0 || n < least) {
			least = n
		}
	}
	return int(least)
}

// freshSpan is how long before its first step a process may have started for
// that step to be one of its first: weights are loaded, kernels compiled.
const freshSpan = int64(1200e9)

func (w *world) layout(k int, a *attempt, current map[int]*incarnation) *Layout {
	n := len(w.f.Ranks)
	l := &Layout{
		Attempt: k, World: min(a.world, maxRows), Ranks: w.f.Ranks, Stages: 1, Certain: true,
		Present: make([]bool, n), Incarnation: make([]uint64, n), Fresh: make([]bool, n),
		Node: make([]int32, n), Device: make([]string, n),
	}
	if l.World == 0 && w.topo != nil {
		l.World = min(w.topo.WorldSize, maxRows)
	}
	index := map[string]int32{}
	models := make([]string, n)
	several := map[string]bool{}
	for r, rank := range w.f.Ranks {
		i := current[r]
		l.Node[r] = None
		_, listed := w.nodeOf[rank]
		fits := a.world == 0 || rank < a.world
		l.Present[r] = i != nil || fits && (listed || len(w.nodeOf) == 0 && w.f.Attempts == 1)
		if !l.Present[r] {
			continue
		}
		name := w.node(i, rank)
		id, ok := index[name]
		if !ok {
			id = int32(len(l.Nodes))
			index[name] = id
			l.Nodes = append(l.Nodes, name)
		}
		l.Node[r] = id
		if i == nil {
			continue
		}
		l.Incarnation[r] = i.id
		l.Device[r] = i.meta.Device
		l.Fresh[r] = i.fresh()
		if _, model, ok := strings.Cut(i.meta.Device, " "); ok {
			models[r] = model
			several[model] = true
		}
	}
	if len(several) < 2 {
		models = nil
	}
	w.setRoles(l, a, current, models)
	return l
}

// fresh reports whether the process's first recorded step is one of its first. Of
// a process of TaskD's no start is recorded: its StartedNs is its first stamp.
func (i *incarnation) fresh() bool {
	if len(i.steps) == 0 {
		return false
	}
	if slices.Min(i.steps) <= 1 {
		return true
	}
	first := i.starts[i.at(0)]
	return i.meta.Writer != record.TaskD && i.meta.StartedNs > 0 && first > 0 && first-i.meta.StartedNs < freshSpan
}

// setRoles takes the groups that fit this attempt: the topology file's, unless it speaks
// of a world of another size or contradicts the groups that the processes told.
func (w *world) setRoles(l *Layout, a *attempt, current map[int]*incarnation, models []string) {
	own := rankGroups(l, current)
	var file []namedGroup
	if w.topo != nil && (a.world == 0 || w.topo.WorldSize == 0 || a.world == w.topo.WorldSize) {
		file = fromTopology(w.topo, a.world)
	}
	if g := contradicted(file, own); g != nil {
		w.note(fmt.Sprintf("the topology file contradicts group %s of dimension %s, as its processes told it, in attempt %d: the file's groups are not used", g.name, g.dim, l.Attempt+1))
		file = nil
	}
	type offer struct {
		groups []namedGroup
		from   string
	}
	for n, o := range []offer{{file, "topology"}, {own, "segments"}} {
		if len(o.groups) > 0 && l.assign(o.groups, models) {
			l.From = o.from
			l.setGroups(append(o.groups, [][]namedGroup{own, file}[n]...))
			if w.f.RolesFrom == "" {
				w.f.RolesFrom = o.from
			}
			return
		}
	}
	l.From = "inferred"
	l.alike(models)
	l.setGroups(append(file, own...))
}

// contradicted returns a group that processes told and that the file's groups of the
// same dimension cut through, nil when there is none.
func contradicted(file, own []namedGroup) *namedGroup {
	type seat struct {
		dim  string
		rank int
	}
	in := map[seat]int{}
	for i, g := range file {
		for _, r := range g.ranks {
			in[seat{g.dim, r}] = i
		}
	}
	for i := range own {
		g := &own[i]
		if g.dim == "" || len(g.ranks) < 2 {
			continue
		}
		shared := map[int]int{}
		for _, r := range g.ranks {
			if k, ok := in[seat{g.dim, r}]; ok {
				shared[k]++
			}
		}
		for k, n := range shared {
			if n < min(len(file[k].ranks), len(g.ranks)) {
				return g
			}
		}
	}
	return nil
}

// note says something to a person, once.
func (w *world) note(text string) {
	if !slices.Contains(w.f.Notes, text) {
		w.f.Notes = append(w.f.Notes, text)
	}
}

// rankGroups collects the groups that the processes' identities tell.
func rankGroups(l *Layout, current map[int]*incarnation) []namedGroup {
	var out []namedGroup
	seen := map[string]bool{}
	for r := range l.Ranks {
		i := current[r]
		if i == nil {
			continue
		}
		for n, text := range i.meta.Groups {
			if n >= len(i.meta.GroupRanks) || len(i.meta.GroupRanks[n]) == 0 {
				continue
			}
			dim, name := splitGroup(text)
			ranks := make([]int, len(i.meta.GroupRanks[n]))
			for k, v := range i.meta.GroupRanks[n] {
				ranks[k] = int(v)
			}
			id := dim + fmt.Sprint(ranks)
			if !seen[id] {
				seen[id] = true
				out = append(out, namedGroup{name, normalDim(dim), ranks})
			}
		}
	}
	return out
}

// splitGroup takes dim:name:index:size apart; the name may hold colons.
func splitGroup(text string) (dim, name string) {
	dim, rest, _ := strings.Cut(text, ":")
	for range 2 {
		if k := strings.LastIndexByte(rest, ':'); k >= 0 {
			rest = rest[:k]
		}
	}
	return dim, rest
}
