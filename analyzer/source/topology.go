package source

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// layoutOf finds the topology of a job's files, or takes the one that was given
// before what is found, and fills the Info's. parts are the job's directories, ranks
// those of its ranks.
func layoutOf(info *Info, o Options, dir string, parts []string, ranks []segment.RankDir) (*rollup.Placement, error) {
	found, err := topology.DiscoverAll(dir, parts)
	info.note(err) // what can't be used is told, not hidden; the rest is used
	info.Roles = found.Roles
	var given *topology.File
	if o.Topology != "" {
		if given, err = loadTopology(o.Topology); err != nil {
			return nil, err
		}

		if len(given.Groups) > 0 {
			info.Roles = topology.FromFile
		}

		highest := 0
		for _, r := range ranks {
			highest = max(highest, r.Rank)
		}

		info.noteMisfit(given, o.Topology, highest)
	}

	r := rollup.NewPlacement(found, given, o.Node)
	info.Topology = r.Topology(ranks)
	return r, nil
}

func loadTopology(path string) (*topology.File, error) {
	f, err := topology.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(err.Error() + ": check the path given with --topology")
	}

	return f, err
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
		highest := 0
		for i := range ranks {
			highest = max(highest, int(ranks[i].Rank))
		}

		info.noteMisfit(given, o.Topology, highest)

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

// noteMisfit says that the highest rank is beyond the world of the topology that was given.
func (i *Info) noteMisfit(given *topology.File, path string, highest int) {
	if given.WorldSize > 0 && highest >= given.WorldSize {
		i.Notes = append(i.Notes, fmt.Sprintf("topology %s has world_size %d, and rank %d was recorded: is it another job's?", path, given.WorldSize, highest))
	}
}

// fromSegments is the word of verdict.Verdict.Roles for groups that the ranks named.
const fromSegments = "segments"

// note adds each line of an error as a sentence for a person.
func (i *Info) note(err error) {
	if err != nil {
		i.Notes = append(i.Notes, strings.Split(err.Error(), "\n")...)
	}
}
