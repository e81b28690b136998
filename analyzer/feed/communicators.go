package feed

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// communicators returns a window of each group that processes talk in, without anything that was
// measured, and numbers the groups in their talks. Two groups may share a name (each data-parallel
// group of a mesh is called the same): where identities tell members, members decide, else the
// name does. A group whose members are those of a group of the layouts has that group's name and dimension.
func (w *world) communicators(layouts ...*frame.Layout) []frame.Transfer {
	titles := map[string][]*frame.Group{}
	for _, l := range layouts {
		for i := range l.Groups {
			k := memberKey("", slices.Sorted(slices.Values(l.Groups[i].Rows)))
			titles[k] = append(titles[k], &l.Groups[i])
		}
	}

	groups, members := w.number()
	all := make([]frame.Transfer, len(groups))
	for n, g := range groups {
		all[n] = frame.Transfer{Name: g.Name, Dim: g.Dim, Size: len(g.Ranks)}
		slices.Sort(members[n])
		list := titles[memberKey("", slices.Compact(members[n]))]
		if len(list) == 0 {
			continue
		}

		at := max(0, slices.IndexFunc(list, func(t *frame.Group) bool { return t.Dim == g.Dim }))
		all[n].Name, all[n].Dim = list[at].Name, cmp.Or(g.Dim, list[at].Dim)
	}

	return all
}

// number numbers the groups that processes talk in, and returns them with the rows of their members: those
// that identities tell, else those that talk.
func (w *world) number() (groups []topology.Group, members [][]int32) {
	byKey := map[string]int32{}
	for _, p := range w.all {
		for k := range p.Talks {
			t := &p.Talks[k]
			g, id := p.communicator(t)
			if t.Group = byKey[id]; t.Group == 0 {
				groups, members = append(groups, g), append(members, rowsOf(w.ranks, g.Ranks))
				t.Group = int32(len(groups))
				byKey[id] = t.Group
			}

			if g.Ranks == nil && p.row >= 0 {
				members[t.Group-1] = append(members[t.Group-1], int32(p.row))
			}
		}
	}

	return groups, members
}

// communicator is the group that the process talks in, and a text that tells it from
// others.
func (p *process) communicator(t *talk) (topology.Group, string) {
	g := topology.Group{Name: t.Name, Dim: t.Dim}
	for n := range p.Meta.Groups {
		dim, called, members := p.group(n)
		if called != g.Name {
			continue
		}

		if g.Dim = dim; len(members) == 0 {
			break
		}

		g.Ranks = ints(members)
		slices.Sort(g.Ranks)
		return g, memberKey("ranks:"+g.Name, g.Ranks)
	}

	return g, "name:" + g.Name
}
