package frame

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/topology"
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

// Communicators returns a window of each group that processes talk in, without anything that was
// measured, and numbers the groups in their Talks. Two groups may share a name (each data-parallel
// group of a mesh is called the same): where identities tell members, members decide, else the
// name does. A group whose members are those of a group of the layouts has that group's name and dimension.
func (w *World) Communicators(layouts ...*Layout) []Transfer {
	titles := map[string][]*Group{}
	for _, l := range layouts {
		for i := range l.Groups {
			k := memberKey("", slices.Sorted(slices.Values(l.Groups[i].Rows)))
			titles[k] = append(titles[k], &l.Groups[i])
		}
	}

	groups, members := w.number()
	all := make([]Transfer, len(groups))
	for n, g := range groups {
		all[n] = Transfer{Name: g.Name, Dim: g.Dim, Size: len(g.Ranks), Quickest: NaN}
		slices.Sort(members[n])
		list := titles[memberKey("", slices.Compact(members[n]))]
		if len(list) == 0 {
			continue
		}

		at := max(0, slices.IndexFunc(list, func(t *Group) bool { return t.Dim == g.Dim }))
		all[n].Name, all[n].Dim = list[at].Name, cmp.Or(g.Dim, list[at].Dim)
	}

	return all
}

// number numbers the groups that processes talk in, and returns them with the rows of their members: those
// that identities tell, else those that talk.
func (w *World) number() (groups []topology.Group, members [][]int32) {
	byKey := map[string]int32{}
	for _, p := range w.all {
		row := w.Row(p.Rank)
		for k := range p.Talks {
			t := &p.Talks[k]
			g, id := p.communicator(t)
			if t.Group = byKey[id]; t.Group == 0 {
				groups, members = append(groups, g), append(members, w.rows(g.Ranks))
				t.Group = int32(len(groups))
				byKey[id] = t.Group
			}

			if g.Ranks == nil && row >= 0 {
				members[t.Group-1] = append(members[t.Group-1], int32(row))
			}
		}
	}

	return groups, members
}

// communicator is the group that the process talks in, and a text that tells it from
// others.
func (p *Process) communicator(t *Talk) (topology.Group, string) {
	g := topology.Group{Name: t.Name, Dim: t.Dim}
	for n := range p.Meta.Groups {
		dim, called, members := p.group(n)
		if called != g.Name {
			continue
		}

		if g.Dim = dim; len(members) == 0 {
			break
		}

		g.Ranks = numbers(members)
		slices.Sort(g.Ranks)
		return g, memberKey("ranks:"+g.Name, g.Ranks)
	}

	return g, "name:" + g.Name
}
