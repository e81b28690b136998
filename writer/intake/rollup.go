package intake

import (
	"fmt"

	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/rollup/roster"
	"github.com/laggard-dev/laggard/writer/rollup/scatter"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Rollup says how lines become rows.
type Rollup struct {
	Records rollup.Selection // which raw ranges are stored
	// Topology names nodes and groups where the files themselves do not (TaskD's);
	// nil is what topology.Discover finds beside them.
	Topology *topology.File
}

// plans finds the topology of each job once.
type plans struct {
	root  string
	o     Rollup
	found map[string]*roster.Roster
	note  func(error) // told of a topology file that can't be used

	scattered scatter.Result // jobs that lie in several directories
}

func (p *plans) of(job string) *roster.Roster {
	if l := p.found[job]; l != nil {
		return l
	}
	found, err := topology.DiscoverAll(p.root, p.scattered.Dirs(job))
	if err != nil {
		p.note(fmt.Errorf("find topology of job %s: %w", job, err))
	}
	l := roster.New(found.Groups, topology.Merge(p.o.Topology, found.Topology))
	p.found[job] = l
	return l
}

func (p *plans) options(d segment.RankDir) rollup.Options {
	return p.of(d.Job).Options(d, p.o.Records)
}
