package source

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// layoutOf finds the topology of a job's files, or takes the one that was given
// before what is found, and fills the Info's. parts are the job's directories, ranks
// those of its ranks.
func layoutOf(info *Info, o Options, dir string, parts []string, ranks []segment.RankDir) (*rollup.Placement, error) {
	found, servers, err := topology.DiscoverAll(dir, parts)
	info.note(err) // what can't be used is told, not hidden; the rest is used
	highest := 0
	for _, r := range ranks {
		highest = max(highest, r.Rank)
	}

	given, err := info.given(o, highest)
	if err != nil {
		return nil, err
	}

	r := rollup.NewPlacement(found, servers, given, o.Node)
	info.Topology = r.Topology(ranks)
	return r, nil
}

// givenTopology reads the topology file of the options, nil without one.
func (o Options) givenTopology() (*topology.File, error) {
	if o.Topology == "" {
		return nil, nil
	}

	f, err := topology.Load(o.Topology)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(err.Error() + ": check the path given with --topology")
	}

	return f, err
}

// given reads the topology file of the options, nil without one, and notes a world that is too
// small for the highest rank.
func (i *Info) given(o Options, highest int) (*topology.File, error) {
	given, err := o.givenTopology()
	if given == nil {
		return nil, err
	}

	// A file of another job is the usual mistake, and its groups would blame the wrong ranks.
	if given.WorldSize > 0 && highest >= given.WorldSize {
		i.Notes = append(i.Notes, fmt.Sprintf("topology %s has world_size %d, and rank %d was recorded: is it another job's?", o.Topology, given.WorldSize, highest))
	}

	return given, nil
}

// note adds each line of an error as a sentence for a person.
func (i *Info) note(err error) {
	if err != nil {
		i.Notes = append(i.Notes, strings.Split(err.Error(), "\n")...)
	}
}
