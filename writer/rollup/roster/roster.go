// Package roster says what is known of the ranks of a job beside their lines: nodes
// and parallel groups, for files that name no identity themselves (TaskD's).
//
// Invariant: who stores a job's rows and who reads its files directly ask the same
// roster, so both see the same nodes and groups.
package roster

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Roster is what is known of one job.
type Roster struct {
	world  int
	node   map[int]string
	groups map[int][]record.Group
}

// New returns the roster of a job whose ranks know those groups by their
// communicators; topo adds nodes and groups, nil adds nothing. Neither is changed. A
// group that a rank knows already is the same group.
func New(known map[int][]record.Group, topo *topology.File) *Roster {
	r := &Roster{node: map[int]string{}, groups: map[int][]record.Group{}}
	for rank, groups := range known {
		r.groups[rank] = slices.Clone(groups)
	}
	if topo == nil {
		return r
	}
	r.world = topo.WorldSize
	for node, ranks := range topo.Nodes {
		for _, rank := range ranks {
			r.node[rank] = node
		}
	}
	for _, g := range topo.Groups {
		for i, rank := range g.Ranks {
			if !knows(r.groups[rank], g) {
				r.groups[rank] = append(r.groups[rank], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
			}
		}
	}
	return r
}

func knows(groups []record.Group, g topology.Group) bool {
	return slices.ContainsFunc(groups, func(k record.Group) bool {
		return topology.Dim(k.Dim) == topology.Dim(g.Dim) && slices.Equal(k.Ranks, g.Ranks)
	})
}

// Options configures the rollup of one rank of the job.
func (r *Roster) Options(dir segment.RankDir, records rollup.Selection) rollup.Options {
	return rollup.Options{
		Job: dir.Job, Rank: dir.Rank, Records: records,
		WorldSize: r.world, Node: r.node[dir.Rank], Groups: r.groups[dir.Rank],
	}
}
