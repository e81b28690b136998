package frame

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Transfer is the communication of one group in one window of steps. The
// shortest member's time is the transfer itself: whoever came last waited for
// nobody. For send and recv that holds for pairs only.
type Transfer struct {
	Name    string // of the topology group with the same ranks, else the communicator's
	Dim     string // tp, pp, dp, cp, ep, "" unknown
	Op      string
	Attempt int
	From    int64 // first step of the window
	To      int64 // last
	Repeat  int
	Size    int       // ranks of the group, recorded or not; 0 unknown
	Rows    []int32   // ascending
	Seconds []float32 // per step, of each of Rows
	Bytes   float64   // per step and rank
	Calls   float64   // per step and rank
	Steps   int       // most steps that a rank had in the window

	group int32 // number of the group
}

// P2P reports whether the window counts sends or receives.
func (t *Transfer) P2P() bool { return t.Op == "send" || t.Op == "recv" || t.Op == "sendrecv" }

// Shortest returns the shortest member's seconds per step, the transfer.
func (t *Transfer) Shortest() float32 { return slices.Min(t.Seconds) }

// commBuilder keeps one entry a row; names are numbered.
type commBuilder struct {
	names, ops   map[string]int32
	nameOf, opOf []string
	entries      []commEntry
	dimOf        []string // of a name, as the rows tell it
	incs         []*incarnation
	incOf        map[*incarnation]int32
	lastInc      *incarnation
	lastIdx      int32
	lastName     string
	lastNameIdx  int32
}

type commEntry struct {
	inc, name, op  int32
	repeat, steps  uint16
	from, to       int64
	seconds, bytes float32 // per step
	calls          float32
}

// maxNames bounds the communicators of a job; what is beyond is dropped.
const maxNames = 1 << 20

func (c *commBuilder) add(inc *incarnation, r *row.Communication) {
	if c.names == nil {
		c.names, c.ops, c.incOf = map[string]int32{}, map[string]int32{}, map[*incarnation]int32{}
	}
	if c.lastInc != inc {
		n, ok := c.incOf[inc]
		if !ok {
			n = int32(len(c.incs))
			c.incs = append(c.incs, inc)
			c.incOf[inc] = n
		}
		c.lastInc, c.lastIdx = inc, n
	}
	if c.lastName != r.Group || len(c.nameOf) == 0 {
		n, ok := c.names[r.Group]
		if !ok {
			if len(c.nameOf) >= maxNames {
				return
			}
			n = int32(len(c.nameOf))
			c.names[r.Group], c.nameOf = n, append(c.nameOf, r.Group)
			c.dimOf = append(c.dimOf, normalDim(r.Dim))
		}
		c.lastName, c.lastNameIdx = r.Group, n
	}
	op, ok := c.ops[r.Op]
	if !ok {
		if len(c.opOf) >= 1<<10 {
			return
		}
		op = int32(len(c.opOf))
		c.ops[r.Op], c.opOf = op, append(c.opOf, r.Op)
	}
	steps := max(1, r.Steps)
	c.entries = append(c.entries, commEntry{
		inc: c.lastIdx, name: c.lastNameIdx, op: op,
		repeat: r.Repeat, steps: uint16(min(steps, 1<<16-1)), from: int64(r.StepFrom), to: int64(r.StepTo),
		seconds: float32(float64(r.TotalNs) / 1e9 / float64(steps)),
		bytes:   float32(float64(max(0, r.Bytes)) / float64(steps)), calls: float32(r.Calls) / float32(steps),
	})
}

// communicator is a group as the rows name it: its members are known from the
// identity of a rank, or are those that recorded it.
type communicator struct {
	name, dim string
	ranks     []int // sorted; nil unknown
	ordered   []int // in group order
	size      int

	title, titleDim string // of the layouts' group with the same ranks
}

// build sums the entries into windows, in the order (attempt, repeat, to, group, op).
func (c *commBuilder) build(f *Frame, tries []*attempt, rowOf []int32) []Transfer {
	if len(c.entries) == 0 {
		return nil
	}
	attemptOf := map[*incarnation]int{}
	for k, a := range tries {
		for slot := range rowOf {
			for _, i := range a.all(slot) {
				attemptOf[i] = k
			}
		}
	}
	r := &resolver{c: c, byKey: map[string]int32{}, cache: map[[2]int32]int32{}}
	var members []map[int32]bool
	for _, e := range c.entries {
		g := r.group(e.inc, e.name)
		for len(members) < len(r.groups) {
			members = append(members, map[int32]bool{})
		}
		if row := rowOf[c.incs[e.inc].slot]; row != None {
			members[g][row] = true
		}
	}
	r.nameByMembers(f, members)
	groups := r.groups
	type key struct {
		attempt, group, op int32
		repeat             uint16
		from               int64
	}
	index := make(map[key]int32, len(c.entries)/8)
	var out []Transfer
	var last key
	lastN := int32(-1)
	for _, e := range c.entries {
		row := rowOf[c.incs[e.inc].slot]
		if row == None {
			continue
		}
		g := r.group(e.inc, e.name)
		k := key{int32(attemptOf[c.incs[e.inc]]), g, e.op, e.repeat, e.from}
		n := lastN
		if k != last || n < 0 {
			var ok bool
			if n, ok = index[k]; !ok {
				n = int32(len(out))
				index[k] = n
				out = append(out, Transfer{Name: groups[g].name, Dim: groups[g].dim, Op: c.opOf[e.op], Attempt: int(k.attempt),
					From: e.from, To: e.to, Repeat: int(e.repeat), Size: groups[g].size, group: g})
			}
			last, lastN = k, n
		}
		t := &out[n]
		t.Rows = append(t.Rows, row)
		t.Seconds = append(t.Seconds, e.seconds)
		t.To = max(t.To, e.to)
		t.Bytes += float64(e.bytes)
		t.Calls += float64(e.calls)
		t.Steps = max(t.Steps, int(e.steps))
	}
	for n := range out {
		out[n].finish()
	}
	slices.SortStableFunc(out, func(a, b Transfer) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.To, b.To), cmp.Compare(a.Repeat, b.Repeat),
			cmp.Compare(a.group, b.group), cmp.Compare(a.Op, b.Op))
	})
	return out
}

// finish orders the rows, drops what came twice and averages the volume.
func (t *Transfer) finish() {
	n := float64(len(t.Rows))
	t.Bytes, t.Calls = t.Bytes/n, t.Calls/n
	if slices.IsSorted(t.Rows) && !hasTwins(t.Rows) {
		return
	}
	order := make([]int, len(t.Rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Rows[a], t.Rows[b]) })
	order = slices.CompactFunc(order, func(a, b int) bool { return t.Rows[a] == t.Rows[b] })
	rows, secs := make([]int32, len(order)), make([]float32, len(order))
	for i, o := range order {
		rows[i], secs[i] = t.Rows[o], t.Seconds[o]
	}
	t.Rows, t.Seconds = rows, secs
}

func hasTwins(rows []int32) bool {
	for i := 1; i < len(rows); i++ {
		if rows[i] == rows[i-1] {
			return true
		}
	}
	return false
}

// resolver numbers the groups. Two groups may share a name (each data-parallel
// group of a mesh is called the same): where identities tell members, members
// decide, else the name does.
type resolver struct {
	c      *commBuilder
	groups []communicator
	byKey  map[string]int32
	cache  map[[2]int32]int32
}

func (r *resolver) group(inc, name int32) int32 {
	ref := [2]int32{inc, name}
	if g, ok := r.cache[ref]; ok {
		return g
	}
	g := communicator{name: r.c.nameOf[name], dim: r.c.dimOf[name]}
	meta := &r.c.incs[inc].meta
	for n, text := range meta.Groups {
		dim, called := splitGroup(text)
		if called != g.name {
			continue
		}
		g.dim = normalDim(dim)
		if n < len(meta.GroupRanks) && len(meta.GroupRanks[n]) > 0 {
			for _, v := range meta.GroupRanks[n] {
				g.ordered = append(g.ordered, int(v))
			}
			g.ranks = slices.Sorted(slices.Values(g.ordered))
			g.size = len(g.ranks)
		}
		break
	}
	id := "name:" + g.name
	if g.ranks != nil {
		id = "ranks:" + g.name + fmt.Sprint(g.ranks)
	}
	n, ok := r.byKey[id]
	if !ok {
		n = int32(len(r.groups))
		r.byKey[id] = n
		r.groups = append(r.groups, g)
	}
	r.cache[ref] = n
	return n
}

// nameByMembers gives each group whose members are those of a group of the layouts
// that group's name and dimension.
func (r *resolver) nameByMembers(f *Frame, members []map[int32]bool) {
	type title struct{ name, dim string }
	titles := map[string][]title{}
	for _, l := range f.Layouts {
		for _, g := range l.Groups {
			k := fmt.Sprint(slices.Sorted(slices.Values(g.Rows)))
			t := title{g.Name, g.Dim}
			if !slices.Contains(titles[k], t) {
				titles[k] = append(titles[k], t)
			}
		}
	}
	for n := range r.groups {
		g := &r.groups[n]
		var rows []int32
		if g.ranks != nil {
			for _, rank := range g.ranks {
				if k, ok := slices.BinarySearch(f.Ranks, rank); ok {
					rows = append(rows, int32(k))
				}
			}
		} else {
			for k := range members[n] {
				rows = append(rows, k)
			}
		}
		slices.Sort(rows)
		list := titles[fmt.Sprint(rows)]
		for i, t := range list {
			if i == 0 || t.dim == g.dim {
				g.title, g.titleDim = t.name, t.dim
			}
			if t.dim == g.dim {
				break
			}
		}
		if g.title != "" {
			g.name = g.title
			if g.dim == "" {
				g.dim = g.titleDim
			}
		}
	}
}
