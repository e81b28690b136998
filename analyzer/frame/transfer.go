package frame

import (
	"cmp"
	"slices"
)

// Transfer is the communication of one group in one window of steps. The
// shortest member's time is the transfer itself: whoever came last waited for
// nobody. For send and recv that holds for pairs only.
type Transfer struct {
	Name     string // of the topology group with the same ranks, else the communicator's
	Dim      string // tp, pp, dp, cp, ep, "" unknown
	Op       string
	Attempt  int
	From     int64 // first step of the window
	To       int64 // last
	Repeat   int
	Size     int       // ranks of the group, recorded or not; 0 unknown
	Rows     []int32   // ascending
	Seconds  []float32 // per step, of each of Rows
	Quickest float32   // seconds of the quickest call, NaN unknown
	Bytes    float64   // per step and rank
	Calls    float64   // per step and rank
	Steps    int       // most steps that a rank had in the window
}

// P2P reports whether the window counts sends or receives.
func (t *Transfer) P2P() bool { return p2p(t.Op) }

// p2p reports whether an op goes from one rank to another, without the rest of its group.
func p2p(op string) bool { return op == "send" || op == "recv" || op == "sendrecv" }

// Shortest returns the shortest member's seconds per step, the transfer.
func (t *Transfer) Shortest() float32 { return slices.Min(t.Seconds) }

// Finish orders the rows, drops what came twice and averages the volume.
func (t *Transfer) Finish() {
	n := float64(len(t.Rows))
	t.Bytes, t.Calls = t.Bytes/n, t.Calls/n
	if slices.IsSortedFunc(t.Rows, func(a, b int32) int { return cmp.Or(cmp.Compare(a, b), -1) }) {
		return // without twins
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

// Communicators are the groups that processes talk in. Two groups may share a name
// (each data-parallel group of a mesh is called the same): where identities tell
// members, members decide, else the name does.
type Communicators struct {
	groups []namedGroup         // ranks ascending, nil where no identity tells them
	of     map[*Process][]int32 // the group of each of its Talks
}

// Communicators numbers the groups. One whose members are those of a group of the
// layouts has that group's name and dimension.
func (w *World) Communicators(layouts ...*Layout) *Communicators {
	c := &Communicators{of: make(map[*Process][]int32, len(w.all))}
	byKey := map[string]int32{}
	var members [][]int32
	for _, p := range w.all {
		row := w.Row(p.Rank)
		of := make([]int32, len(p.Talks))
		for k := range p.Talks {
			g, id := p.communicator(&p.Talks[k])
			n, ok := byKey[id]
			if !ok {
				n = int32(len(c.groups))
				byKey[id] = n
				c.groups, members = append(c.groups, g), append(members, nil)
			}

			if of[k] = n; row >= 0 {
				members[n] = append(members[n], int32(row))
			}
		}

		c.of[p] = of
	}

	c.nameByMembers(w, layouts, members)
	return c
}

// Of returns the number of the group of a process's Talk, -1 unknown.
func (c *Communicators) Of(p *Process, talk int) int32 {
	if of := c.of[p]; talk < len(of) {
		return of[talk]
	}

	return -1
}

// Transfer returns a window of a group, without anything that was measured.
func (c *Communicators) Transfer(group int32) Transfer {
	g := &c.groups[group]
	return Transfer{Name: g.name, Dim: g.dim, Size: len(g.ranks), Quickest: NaN}
}

// communicator is the group that the process talks in, and a text that tells it from
// others.
func (p *Process) communicator(t *Talk) (namedGroup, string) {
	g := namedGroup{name: t.Name, dim: t.Dim}
	for n := range p.Meta.Groups {
		dim, called, members := p.group(n)
		if called != g.name {
			continue
		}

		if g.dim = dim; len(members) == 0 {
			break
		}

		g.ranks = numbers(members)
		slices.Sort(g.ranks)
		return g, memberKey("ranks:"+g.name, g.ranks)
	}

	return g, "name:" + g.name
}

// nameByMembers gives each group whose members are those of a group of the layouts
// that group's name and dimension.
func (c *Communicators) nameByMembers(w *World, layouts []*Layout, members [][]int32) {
	titles := map[string][]*Group{}
	for _, l := range layouts {
		for i := range l.Groups {
			k := memberKey("", slices.Sorted(slices.Values(l.Groups[i].Rows)))
			titles[k] = append(titles[k], &l.Groups[i])
		}
	}

	for n := range c.groups {
		g := &c.groups[n]
		rows := members[n]
		if g.ranks != nil {
			rows = rows[:0]
			for _, rank := range g.ranks {
				if k := w.Row(uint32(rank)); k >= 0 {
					rows = append(rows, int32(k))
				}
			}
		}

		slices.Sort(rows)
		list := titles[memberKey("", slices.Compact(rows))]
		if len(list) == 0 {
			continue
		}

		at := max(0, slices.IndexFunc(list, func(t *Group) bool { return t.Dim == g.dim }))
		g.name, g.dim = list[at].Name, cmp.Or(g.dim, list[at].Dim)
	}
}
