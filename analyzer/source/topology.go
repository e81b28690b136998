package source

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"laggard/schemas/record"
	"laggard/schemas/row"
	"laggard/schemas/topology"
	"laggard/writer/rollup"
	"laggard/writer/segment"
)

// plan is what is known of the ranks of one job in files: for lines that name
// no identity (TaskD's), and for groups that no line names.
type plan struct {
	world  int
	node   map[int]string
	groups map[int][]record.Group
}

// layoutOf finds the topology of a job's files, or takes the one that was given
// before what is found, and fills the Info's. parts are the job's directories.
func layoutOf(info *Info, o Options, dir string, parts []string) (*plan, error) {
	found, err := topology.DiscoverAll(dir, parts)
	info.note(err) // what can't be used is told, not hidden; the rest is used
	info.Topology, info.Roles = found.Topology, found.Roles
	if o.Topology != "" {
		given, err := loadTopology(o.Topology)
		if err != nil {
			return nil, err
		}
		info.Topology = topology.Merge(given, found.Topology)
		if len(given.Groups) > 0 {
			info.Roles = topology.FromFile
		}
	}
	l := &plan{node: map[int]string{}, groups: map[int][]record.Group{}}
	for rank, groups := range found.Groups {
		l.groups[rank] = slices.Clone(groups)
	}
	l.take(info.Topology)
	return l, nil
}

func loadTopology(path string) (*topology.File, error) {
	f, err := topology.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(err.Error() + ": check the path given with --topology")
	}
	return f, err
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
			if !knows(l.groups[r], g) {
				l.groups[r] = append(l.groups[r], record.Group{Dim: g.Dim, Name: g.Name, Index: i, Size: len(g.Ranks), Ranks: g.Ranks})
			}
		}
	}
}

func knows(groups []record.Group, g topology.Group) bool {
	return slices.ContainsFunc(groups, func(k record.Group) bool {
		return topology.Dim(k.Dim) == g.Dim && slices.Equal(k.Ranks, g.Ranks)
	})
}

// options configures the rollup of one rank.
func (l *plan) options(dir segment.RankDir) rollup.Options {
	return rollup.Options{
		Job: dir.Job, Rank: dir.Rank, Records: rollup.None,
		WorldSize: l.world, Node: l.node[dir.Rank], Groups: l.groups[dir.Rank],
	}
}

// useTopology fills the Info's topology from the file that was given; without one
// the groups in the ranks' rows are what is known.
func useTopology(info *Info, o Options, ranks []row.Rank) error {
	if o.Topology != "" {
		given, err := loadTopology(o.Topology)
		if err != nil {
			return err
		}
		info.Topology = given
		if len(given.Groups) > 0 {
			info.Roles = topology.FromFile
			return nil
		}
	}
	if slices.ContainsFunc(ranks, func(r row.Rank) bool { return len(r.Groups) > 0 }) {
		info.Roles = fromSegments
	}
	return nil
}

// fromSegments is the word of verdict.Verdict.Roles for groups that the ranks named.
const fromSegments = "segments"

// note adds each line of an error as a sentence for a person.
func (i *Info) note(err error) {
	if err != nil {
		i.Notes = append(i.Notes, strings.Split(err.Error(), "\n")...)
	}
}
