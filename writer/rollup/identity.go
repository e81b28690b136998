package rollup

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

const (
	// maxGroups bounds the groups of one identity.
	maxGroups = 256
	// maxMembers bounds the members of groups that a rank keeps, those of all its processes
	// together, where equal lists, as after a restart, count once: some 100 KiB. It is the
	// largest group of a job of 65,536 ranks with eight of them in each model replica.
	maxMembers = 1 << 13
)

// fitting returns an identity as an incarnation keeps it: words cut, and no more groups and
// members than there is room for. A group beyond keeps its name, dimension and place; the
// smallest ones have their members first.
func (s *Stream) fitting(inc *incarnation, m *record.Meta) record.Meta {
	out := *m
	cut := clip(record.MaxWord, &out.Job, &out.Node, &out.Device, &out.Pod, &out.BootID, &out.Writer)
	if n := len(m.Groups); n > maxGroups {
		s.counts.Shortened += uint64(n - maxGroups)
		out.Groups = m.Groups[:maxGroups]
	}

	out.Groups = slices.Clone(out.Groups)
	for i := range out.Groups {
		cut = clip(record.MaxWord, &out.Groups[i].Dim, &out.Groups[i].Name) || cut
	}

	if cut {
		s.counts.Clipped++
	}

	s.fitMembers(inc, out.Groups)
	return out
}

// fitMembers takes the members of groups away that are too many, and shares equal lists.
func (s *Stream) fitMembers(of *incarnation, groups []record.Group) {
	var lists [][]int
	held := 0
	keep := func(list []int) {
		if len(list) > 0 && !slices.ContainsFunc(lists, func(l []int) bool { return len(l) == len(list) && &l[0] == &list[0] }) {
			lists = append(lists, list)
			held += len(list)
		}
	}
	for _, inc := range s.incarnations {
		if inc != of {
			for _, g := range inc.Meta.Groups {
				keep(g.Ranks)
			}
		}
	}

	order := make([]*record.Group, len(groups))
	for i := range groups {
		order[i] = &groups[i]
	}

	slices.SortStableFunc(order, func(a, b *record.Group) int { return cmp.Compare(len(a.Ranks), len(b.Ranks)) })
	for _, g := range order {
		if len(g.Ranks) == 0 {
			if g.Size > maxMembers { // its file's members were too many to be held
				s.counts.Shortened++
			}

			continue
		}

		if i := slices.IndexFunc(lists, func(l []int) bool { return slices.Equal(l, g.Ranks) }); i >= 0 {
			g.Ranks = lists[i]
			continue
		}

		if held+len(g.Ranks) > maxMembers {
			g.Ranks = nil
			s.counts.Shortened++
			continue
		}

		g.Ranks = slices.Clone(g.Ranks) // the parser's may have room for twice as many
		keep(g.Ranks)
	}
}
