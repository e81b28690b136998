package frame

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Process is one incarnation of one rank, as far as layouts depend on it.
type Process struct {
	Rank  uint32
	ID    uint64
	Known bool     // an identity came
	Meta  row.Rank // of the highest version
	Node  string   // where its rows say it ran
	// Steps is how many it recorded. First is the lowest, FirstNs its start; EarlyNs and
	// LateNs are the earliest and the latest start of all, 0 unknown.
	Steps           int32
	First           Place
	FirstNs         int64
	EarlyNs, LateNs int64
	// Talks are the communicators that it used, in the order they came.
	Talks []Talk
	// Forward and Own are times of its first steps, in seconds and NaN where not recorded, where
	// roles may have to be guessed from them.
	Forward, Own []float32

	// By the World that was made last of it.
	Attempt int  // number of the launch
	Later   bool // it took a rank's place while the others went on
	Running bool // the last column that went shows it in its rank's place
}

// Place is where a step stands among those of the job. Those of one process are told apart by
// step and repeat.
type Place struct {
	Attempt int
	Run     int // how often the loop of the attempt went back to an earlier step
	Step    int64
	Repeat  int32
}

// Compare is the order in which the job ran: a step that comes back after a restart of the loop is
// behind what ran before it, though its number is lower.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Attempt, q.Attempt), cmp.Compare(p.Run, q.Run), cmp.Compare(p.Step, q.Step), cmp.Compare(p.Repeat, q.Repeat))
}

// Same reports whether both are one column: in which run it stands is how it is found.
func (p Place) Same(q Place) bool {
	return p.Attempt == q.Attempt && p.Step == q.Step && p.Repeat == q.Repeat
}

// Talk is what one process did in one communicator.
type Talk struct {
	Name, Dim string
	P2P       bool
	Group     int32 // number of the group, from 1, by World.Communicators; 0 unknown
}

// TellsRoles reports whether the process's own identity names groups that make roles.
func (p *Process) TellsRoles() bool {
	for n := range p.Meta.Groups {
		switch dim, _, members := p.group(n); dim {
		case "tp", "pp", "cp", "dp":
			if len(members) > 1 {
				return true
			}
		}
	}

	return false
}

// Identify takes a row of the table of ranks; the highest version counts. It reports
// whether the row says something new.
func (p *Process) Identify(m *row.Rank) bool {
	if p.Known && m.Version < p.Meta.Version {
		return false
	}

	p.Known, p.Meta = true, *m
	p.Meta.Groups, p.Meta.GroupRanks, p.Meta.Off = slices.Clone(m.Groups), slices.Clone(m.GroupRanks), slices.Clone(m.Off)
	return true
}

// Communicate notes a window of the process's communication. It returns the number of its
// Talk, -1 for one that is left out.
func (p *Process) Communicate(c *row.Communication) int {
	if p.Node == "" {
		p.Node = c.Node
	}

	k := slices.IndexFunc(p.Talks, func(t Talk) bool { return t.Name == c.Group })
	if k < 0 {
		if len(p.Talks) >= mostTalks {
			return -1
		}

		k = len(p.Talks)
		p.Talks = append(p.Talks, Talk{Name: c.Group, Dim: normalDim(c.Dim)})
	}

	t := &p.Talks[k]
	t.P2P = t.P2P || p2p(c.Op)
	return k
}

// mostTalks bounds the communicators of a process; what is beyond is left out.
const mostTalks = 1 << 10

// Begin is the best known start of the process, ns since the Unix epoch.
func (p *Process) Begin() int64 {
	if p.Meta.StartedNs > 0 {
		return p.Meta.StartedNs
	}

	return p.EarlyNs
}

// NodeName is where the process ran, "" unknown.
func (p *Process) NodeName() string {
	if p.Meta.Node != "" {
		return p.Meta.Node
	}

	return p.Node
}

// freshSpan is how long before its first step a process may have started for
// that step to be one of its first: weights are loaded, kernels compiled.
const freshSpan = int64(1200e9)

// fresh reports whether the process's first recorded step is one of its first. Of
// a process of TaskD's no start is recorded: its StartedNs is its first stamp.
func (p *Process) fresh() bool {
	if p.Steps == 0 {
		return false
	}

	if p.First.Step <= 1 {
		return true
	}

	return p.Meta.Writer != record.TaskD && p.Meta.StartedNs > 0 && p.FirstNs > 0 && p.FirstNs-p.Meta.StartedNs < freshSpan
}
