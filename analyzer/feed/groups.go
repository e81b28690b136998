package feed

import (
	"encoding/binary"
	"slices"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// fromTopology takes the groups of a topology file for a world of that size.
func fromTopology(t *topology.File, world int) []topology.Group {
	var out []topology.Group
	for _, g := range t.Groups {
		ranks := slices.Clone(g.Ranks)
		if world > 0 {
			ranks = slices.DeleteFunc(ranks, func(r int) bool { return r >= world })
		}

		out = append(out, topology.Group{Name: g.Name, Dim: normalDim(g.Dim), Ranks: ranks})
	}

	return out
}

// contradicted returns a group that processes told and that the file's groups of the
// same dimension cut through, nil when there is none.
func contradicted(file, own []topology.Group) *topology.Group {
	type member struct {
		dim  string
		rank int
	}
	in := map[member]int{}
	for i, g := range file {
		for _, r := range g.Ranks {
			in[member{g.Dim, r}] = i
		}
	}

	for i := range own {
		g := &own[i]
		if g.Dim == "" || len(g.Ranks) < 2 {
			continue
		}

		shared := map[int]int{}
		for _, r := range g.Ranks {
			if k, ok := in[member{g.Dim, r}]; ok {
				shared[k]++
			}
		}

		for k, n := range shared {
			if n < min(len(file[k].Ranks), len(g.Ranks)) {
				return g
			}
		}
	}

	return nil
}

// rankGroups collects the groups that the processes' identities tell, each once.
func rankGroups(current []*process) []topology.Group {
	var out []topology.Group
	seen := map[string]bool{}
	for _, p := range current {
		if p == nil {
			continue
		}

		for n := range p.Meta.Groups {
			dim, name, members := p.group(n)
			if len(members) == 0 {
				continue
			}

			if id := memberKey(dim, members); !seen[id] {
				seen[id] = true
				out = append(out, topology.Group{Name: name, Dim: dim, Ranks: ints(members)})
			}
		}
	}

	return out
}

// memberKey tells groups apart by a word and their members, in order.
func memberKey[T int | int32 | uint32](word string, members []T) string {
	b := append(make([]byte, 0, len(word)+1+4*len(members)), word...)
	b = append(b, 0)
	for _, r := range members {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}

	return string(b)
}

// ints are ranks as layouts have them.
func ints(ranks []uint32) []int {
	out := make([]int, len(ranks))
	for k, r := range ranks {
		out[k] = int(r)
	}

	return out
}

// group is the n-th group of the process's identity; no members where that tells none.
func (p *process) group(n int) (dim, name string, members []uint32) {
	dim, name, _ = topology.SplitGroup(p.Meta.Groups[n])
	if n < len(p.Meta.GroupRanks) {
		members = p.Meta.GroupRanks[n]
	}

	return normalDim(dim), name, members
}

// normalDim maps a dimension's word to tp, pp, dp, cp or ep, else "".
func normalDim(d string) string {
	switch d = topology.Dim(d); d {
	case "tp", "pp", "dp", "cp", "ep":
		return d
	}

	return ""
}
