package rollup

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Placement is what is known of the ranks of a job beside their lines: nodes and parallel
// groups, for files that name no identity themselves (TaskD's). Who stores a job's rows and who
// reads its files directly ask the same placement, so both see the same nodes and groups.
type Placement struct {
	topology *topology.File // nil for nothing
	servers  *topology.File // what of it the rank tables say
	node     string         // this machine's name, "" unknown
	nodes    map[int]string // of the topology
	groups   map[int][]record.Group
}

// NewPlacement returns the placement of a job's ranks. given, which may be nil, counts before
// what was found; servers is what of that the rank tables say. node is this machine's name in the cluster, "" unknown: that of a rank whose
// files it wrote (segment.Local) where nothing but a rank table says otherwise.
func NewPlacement(found, servers, given *topology.File, node string) *Placement {
	p := &Placement{
		topology: topology.Merge(given, found), servers: servers, node: node,
		nodes: map[int]string{}, groups: map[int][]record.Group{},
	}
	if p.topology == nil {
		return p
	}

	for node, ranks := range p.topology.Nodes {
		for _, rank := range ranks {
			p.nodes[rank] = node
		}
	}

	for _, g := range p.topology.Groups {
		for i, rank := range g.Ranks {
			p.groups[rank] = append(p.groups[rank], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
		}
	}

	return p
}

// Topology returns what is known of the job whose ranks lie in those directories; nil
// for nothing.
func (p *Placement) Topology(dirs []segment.RankDir) *topology.File {
	if p.node == "" {
		return p.topology
	}

	here := &topology.File{Nodes: map[string][]int{}}
	for _, dir := range dirs {
		if p.nodeOf(dir) == p.node {
			here.Nodes[p.node] = append(here.Nodes[p.node], dir.Rank)
		}
	}

	return topology.Merge(here, p.topology)
}

// nodeOf returns the node of a rank, "" unknown.
func (p *Placement) nodeOf(dir segment.RankDir) string {
	name, ok := p.nodes[dir.Rank]
	if p.node == "" || ok && (p.servers == nil || p.servers.NodeOf(dir.Rank) != name) || !segment.Local(dir.Path) {
		return name
	}

	return p.node
}

// Options configures the roll-up of one rank of the job.
func (p *Placement) Options(dir segment.RankDir, records Selection) Options {
	o := Options{Job: dir.Job, Rank: dir.Rank, Records: records, Node: p.nodeOf(dir), Groups: p.groupsOf(dir)}
	if p.topology != nil {
		o.WorldSize = p.topology.WorldSize
	}

	return o
}

// groupsOf tells the groups that a rank knows by their communicators, as they are now,
// and those of the topology beside them. A group that the rank knows already is the same
// group.
func (p *Placement) groupsOf(dir segment.RankDir) func() []record.Group {
	read := topology.GroupsOf(dir.Path)
	var own []record.Group
	all := p.groups[dir.Rank]
	return func() []record.Group {
		now := read()
		if len(now) == 0 || len(own) == len(now) && &own[0] == &now[0] {
			return all
		}

		own, all = now, slices.Clone(now)
		for _, g := range p.groups[dir.Rank] {
			if !slices.ContainsFunc(now, func(k record.Group) bool {
				return topology.Dim(k.Dim) == topology.Dim(g.Dim) && slices.Equal(k.Ranks, g.Ranks)
			}) {
				all = append(all, g)
			}
		}

		return all
	}
}
