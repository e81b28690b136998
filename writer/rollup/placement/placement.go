// Package placement says what is known of the ranks of a job beside their lines: nodes
// and parallel groups, for files that name no identity themselves (TaskD's).
//
// Invariant: who stores a job's rows and who reads its files directly ask the same
// placement, so both see the same nodes and groups.
package placement

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Job is what is known of one job.
type Job struct {
	topology *topology.File // nil for nothing
	servers  *topology.File // what of it the rank tables say
	node     string         // this machine's name, "" unknown
	nodes    map[int]string // of the topology
	groups   map[int][]record.Group
}

// New returns the placement of a job's ranks. given, which may be nil, counts before what was found.
// node is this machine's name in the cluster, "" unknown: that of a rank whose files it
// wrote (segment.Local) where nothing but a rank table says otherwise.
func New(found *topology.Found, given *topology.File, node string) *Job {
	j := &Job{
		topology: topology.Merge(given, found.Topology), servers: found.Servers, node: node,
		nodes: map[int]string{}, groups: map[int][]record.Group{},
	}
	if j.topology == nil {
		return j
	}

	for node, ranks := range j.topology.Nodes {
		for _, rank := range ranks {
			j.nodes[rank] = node
		}
	}

	for _, g := range j.topology.Groups {
		for i, rank := range g.Ranks {
			j.groups[rank] = append(j.groups[rank], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
		}
	}

	return j
}

// Topology returns what is known of the job whose ranks lie in those directories; nil
// for nothing.
func (j *Job) Topology(dirs []segment.RankDir) *topology.File {
	if j.node == "" {
		return j.topology
	}

	here := &topology.File{Nodes: map[string][]int{}}
	for _, dir := range dirs {
		if j.nodeOf(dir) == j.node {
			here.Nodes[j.node] = append(here.Nodes[j.node], dir.Rank)
		}
	}

	return topology.Merge(here, j.topology)
}

// nodeOf returns the node of a rank, "" unknown.
func (j *Job) nodeOf(dir segment.RankDir) string {
	name, ok := j.nodes[dir.Rank]
	if j.node == "" || ok && (j.servers == nil || j.servers.NodeOf(dir.Rank) != name) || !segment.Local(dir.Path) {
		return name
	}

	return j.node
}

// Options configures the rollup of one rank of the job.
func (j *Job) Options(dir segment.RankDir, records rollup.Selection) rollup.Options {
	o := rollup.Options{Job: dir.Job, Rank: dir.Rank, Records: records, Node: j.nodeOf(dir), Groups: j.groupsOf(dir)}
	if j.topology != nil {
		o.WorldSize = j.topology.WorldSize
	}

	return o
}

// groupsOf tells the groups that a rank knows by their communicators, as they are now,
// and those of the topology beside them. A group that the rank knows already is the same
// group.
func (j *Job) groupsOf(dir segment.RankDir) func() []record.Group {
	file := topology.NewGroupFile(dir.Path)
	var own []record.Group
	all := j.groups[dir.Rank]
	return func() []record.Group {
		now := file.Groups()
		if len(now) == 0 || len(own) == len(now) && &own[0] == &now[0] {
			return all
		}

		own, all = now, slices.Clone(now)
		for _, g := range j.groups[dir.Rank] {
			if !slices.ContainsFunc(now, func(k record.Group) bool {
				return topology.Dim(k.Dim) == topology.Dim(g.Dim) && slices.Equal(k.Ranks, g.Ranks)
			}) {
				all = append(all, g)
			}
		}

		return all
	}
}
