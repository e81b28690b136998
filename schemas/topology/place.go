package topology

import (
	"maps"
	"slices"
	"strconv"
)

// NodeOf returns the node of a rank: where Nodes says, else node-<rank>.
func (f *File) NodeOf(rank int) string {
	if f != nil {
		for _, n := range f.NodeNames() {
			if slices.Contains(f.Nodes[n], rank) {
				return n
			}
		}
	}

	return "node-" + strconv.Itoa(rank)
}

// Places returns NodeOf for every rank below world, at once.
func (f *File) Places(world int) []string {
	places := make([]string, max(world, 0))
	for r := range places {
		places[r] = "node-" + strconv.Itoa(r)
	}

	if f == nil {
		return places
	}

	for n, ranks := range f.Nodes {
		for _, r := range ranks {
			if r >= 0 && r < len(places) {
				places[r] = n
			}
		}
	}

	return places
}

// Names finds the group that a communicator is, by its ranks.
type Names struct {
	bySet map[string]string
}

// Names returns the rule "a communicator takes the name of the topology group with
// the same ranks". Where two groups have the same ranks, one with a role wins, then
// the first.
func (f *File) Names() *Names {
	n := &Names{bySet: map[string]string{}}
	if f == nil {
		return n
	}

	for _, roles := range [...]bool{true, false} {
		for _, g := range f.Groups {
			if key := setKey(g.Ranks); role(g.Dim) == roles && n.bySet[key] == "" {
				n.bySet[key] = g.Name
			}
		}
	}

	return n
}

// Of returns the name of the group with these ranks, in any order; own where there
// is none.
func (n *Names) Of(own string, ranks []int) string {
	if name, ok := n.bySet[setKey(ranks)]; ok && len(ranks) > 0 {
		return name
	}

	return own
}

// setKey returns the same text for the same set of ranks.
func setKey(ranks []int) string {
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	b := make([]byte, 0, 6*len(sorted))
	for _, r := range slices.Compact(sorted) {
		b = append(strconv.AppendInt(b, int64(r), 10), ',')
	}

	return string(b)
}

// Merge joins what several sources know, the first one first in doubt: a rank's
// node is that of the first source that has the rank, a group with the dimension and
// ranks of an earlier one is the same group. Sources may be nil; so is the result
// when none knows anything.
func Merge(files ...*File) *File {
	out := &File{}
	placed := map[int]bool{}
	known := map[string]bool{}
	for _, f := range files {
		if f == nil {
			continue
		}

		if out.WorldSize == 0 {
			out.WorldSize = f.WorldSize
		}

		out.addNodes(f, placed)
		for _, g := range f.Groups {
			key := Dim(g.Dim) + ":" + setKey(g.Ranks)
			if !known[key] {
				known[key] = true
				out.Groups = append(out.Groups, Group{Name: g.Name, Dim: Dim(g.Dim), Ranks: slices.Clone(g.Ranks)})
			}
		}
	}

	out.uniqueNames()
	if out.WorldSize == 0 && len(out.Nodes) == 0 && len(out.Groups) == 0 {
		return nil
	}

	return out
}

func (f *File) addNodes(from *File, placed map[int]bool) {
	before := maps.Clone(placed)
	for _, n := range from.NodeNames() {
		for _, r := range from.Nodes[n] {
			if before[r] || placed[r] {
				continue
			}

			placed[r] = true
			if f.Nodes == nil {
				f.Nodes = map[string][]int{}
			}

			f.Nodes[n] = append(f.Nodes[n], r)
		}
	}
}
