package topology

import (
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

// setKey returns the same text for the same set of ranks, whatever their order, as the key
// of a map.
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

// addNodes takes over where ranks run, but for those that are placed already, and notes
// those that are then.
func (f *File) addNodes(from *File, placed map[int]bool) {
	for _, n := range from.NodeNames() {
		for _, r := range from.Nodes[n] {
			if placed[r] {
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
