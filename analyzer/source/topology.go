package source

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup/placement"
	"github.com/laggard-dev/laggard/writer/segment"
)

// layoutOf finds the topology of a job's files, or takes the one that was given
// before what is found, and fills the Info's. parts are the job's directories, ranks
// those of its ranks.
func layoutOf(info *Info, o Options, dir string, parts []string, ranks []segment.RankDir) (*placement.Job, error) {
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
	}

	r := placement.New(found, given, o.Node)
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
