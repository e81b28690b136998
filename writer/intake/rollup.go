package intake

import (
	"fmt"

	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/rollup/placement"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Rollup says how lines become rows.
type Rollup struct {
	Records rollup.Selection // which raw ranges are stored
	// Node is this machine's name in the cluster, for files that say none (TaskD's) on a
	// disk of its own, see placement.New; "" is unknown.
	Node string
}

// plans finds the topology of each job once.
type plans struct {
	root  string
	o     Rollup
	found map[string]*placement.Job
	note  func(error) // told of a topology file that can't be used

	merged merge.Result // jobs that lie in several directories
}

func (p *plans) of(job string) *placement.Job {
	if l := p.found[job]; l != nil {
		return l
	}

	found, err := topology.DiscoverAll(p.root, p.merged.Dirs(job))
	if err != nil {
		p.note(fmt.Errorf("find topology of job %s: %w", job, err))
	}

	l := placement.New(found, nil, p.o.Node)
	p.found[job] = l
	return l
}

func (p *plans) options(d segment.RankDir) rollup.Options {
	return p.of(d.Job).Options(d, p.o.Records)
}
