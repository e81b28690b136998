// Package topology says which rank runs where and with whom: nodes, and
// parallel groups with their dimension.
//
// Invariant: a File is plain data in the schema of --topology; every other
// source of the same knowledge (segment identity lines, parallel_group.json,
// hccl.json rank tables) is turned into one.
package topology

import (
	"slices"
	"strconv"
)

// File is a topology file.
type File struct {
	WorldSize int              `json:"world_size"`
	Nodes     map[string][]int `json:"nodes,omitempty"` // node → global ranks; a rank in none belongs to node-<rank>
	Groups    []Group          `json:"groups,omitempty"`
}

// Group is one parallel group.
type Group struct {
	Name  string `json:"name"`
	Dim   string `json:"dim"`   // tp, pp, dp, cp, ep ("exp" reads as ep); others define no role
	Ranks []int  `json:"ranks"` // in a pp group the order is the stage order
}

// NodeOf returns the node of a rank: where Nodes says, else node-<rank>.
func (f *File) NodeOf(rank int) string {
	if f != nil {
		for _, n := range f.nodeNames() {
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
	for _, n := range from.nodeNames() {
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
