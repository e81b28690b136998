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
	topology *topology.File // nil for nothing
	servers  *topology.File // what of it the rank tables say
	node     string         // this machine's name, "" unknown
	nodes    map[int]string // of the topology
	groups   map[int][]record.Group
}

// New returns the roster of a job. given, which may be nil, counts before what was found.
// node is this machine's name in the cluster, "" unknown: that of a rank whose files it
// wrote (segment.Local) where nothing but a rank table says otherwise.
func New(found *topology.Found, given *topology.File, node string) *Roster {
	r := &Roster{
		topology: topology.Merge(given, found.Topology), servers: found.Servers, node: node,
		nodes: map[int]string{}, groups: map[int][]record.Group{},
	}
	if r.topology == nil {
		return r
	}
	for node, ranks := range r.topology.Nodes {
		for _, rank := range ranks {
			r.nodes[rank] = node
		}
	}
	for _, g := range r.topology.Groups {
		for i, rank := range g.Ranks {
			r.groups[rank] = append(r.groups[rank], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
		}
	}
	return r
}

// Topology returns what is known of the job whose ranks lie in those directories; nil
// for nothing.
func (r *Roster) Topology(dirs []segment.RankDir) *topology.File {
	if r.node == "" {
		return r.topology
	}
	here := &topology.File{Nodes: map[string][]int{}}
	for _, dir := range dirs {
		if r.nodeOf(dir) == r.node {
			here.Nodes[r.node] = append(here.Nodes[r.node], dir.Rank)
		}
	}
	return topology.Merge(here, r.topology)
}

// nodeOf returns the node of a rank, "" unknown.
func (r *Roster) nodeOf(dir segment.RankDir) string {
	name, ok := r.nodes[dir.Rank]
	if r.node == "" || ok && (r.servers == nil || r.servers.NodeOf(dir.Rank) != name) || !segment.Local(dir.Path) {
		return name
	}
	return r.node
}

// Options configures the rollup of one rank of the job.
func (r *Roster) Options(dir segment.RankDir, records rollup.Selection) rollup.Options {
	o := rollup.Options{Job: dir.Job, Rank: dir.Rank, Records: records, Node: r.nodeOf(dir), Groups: r.groupsOf(dir)}
	if r.topology != nil {
		o.WorldSize = r.topology.WorldSize
	}
	return o
}

// groupsOf tells the groups that a rank knows by their communicators, as they are now,
// and those of the topology beside them. A group that the rank knows already is the same
// group.
func (r *Roster) groupsOf(dir segment.RankDir) func() []record.Group {
	file := topology.NewGroupFile(dir.Path)
	var own []record.Group
	all := r.groups[dir.Rank]
	return func() []record.Group {
		now := file.Groups()
		if len(now) == 0 || len(own) == len(now) && &own[0] == &now[0] {
			return all
		}
		own, all = now, slices.Clone(now)
		for _, g := range r.groups[dir.Rank] {
			if !slices.ContainsFunc(now, func(k record.Group) bool {
				return topology.Dim(k.Dim) == topology.Dim(g.Dim) && slices.Equal(k.Ranks, g.Ranks)
			}) {
				all = append(all, g)
			}
		}
		return all
	}
}
