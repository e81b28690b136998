package intake

import (
	"fmt"
	"slices"

	"laggard/schemas/record"
	"laggard/schemas/topology"
	"laggard/writer/rollup"
	"laggard/writer/rollup/scatter"
	"laggard/writer/segment"
)

// Rollup says how lines become rows.
type Rollup struct {
	Records rollup.Selection // which raw ranges are stored
	// Topology names nodes and groups where the files themselves do not (TaskD's);
	// nil is what topology.Discover finds beside them.
	Topology *topology.File
}

// plan is what is known of the ranks of one job beside their lines.
type plan struct {
	world  int
	node   map[int]string
	groups map[int][]record.Group
}

// plans finds the topology of each job once.
type plans struct {
	root  string
	o     Rollup
	found map[string]*plan
	note  func(error) // told of a topology file that can't be used

	scattered scatter.Result // jobs that lie in several directories
}

func (p *plans) of(job string) *plan {
	if l := p.found[job]; l != nil {
		return l
	}
	l := &plan{node: map[int]string{}, groups: map[int][]record.Group{}}
	found, err := topology.DiscoverAll(p.root, p.scattered.Dirs(job))
	if err != nil {
		p.note(fmt.Errorf("find topology of job %s: %w", job, err))
	}
	for rank, groups := range found.Groups {
		l.groups[rank] = slices.Clone(groups)
	}
	l.take(topology.Merge(p.o.Topology, found.Topology))
	p.found[job] = l
	return l
}

// take adds the nodes and groups of a topology. A group that a rank knows by its
// communicator already is the same group.
func (l *plan) take(f *topology.File) {
	if f == nil {
		return
	}
	l.world = f.WorldSize
	for node, ranks := range f.Nodes {
		for _, r := range ranks {
			l.node[r] = node
		}
	}
	for _, g := range f.Groups {
		for i, r := range g.Ranks {
			known := slices.ContainsFunc(l.groups[r], func(k record.Group) bool {
				return topology.Dim(k.Dim) == topology.Dim(g.Dim) && slices.Equal(k.Ranks, g.Ranks)
			})
			if !known {
				l.groups[r] = append(l.groups[r], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
			}
		}
	}
}

func (p *plans) options(d segment.RankDir) rollup.Options {
	l := p.of(d.Job)
	return rollup.Options{
		Job: d.Job, Rank: d.Rank, Records: p.o.Records,
		WorldSize: l.world, Node: l.node[d.Rank], Groups: l.groups[d.Rank],
	}
}
