package feed

import (
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// process is one incarnation of one rank: how far its rows came, and what layouts need to know of it. What each
// of its rows asks for comes first, in few cache lines: the next row is mostly another process's.
type process struct {
	Rank uint32
	ID   uint64
	// Steps is how many it recorded. First is the lowest, FirstNs its start; EarlyNs and
	// LateNs are the earliest and the latest start of all, 0 unknown.
	Steps           int32
	First           place
	FirstNs         int64
	EarlyNs, LateNs int64

	// By the world that was made last of it.
	Attempt int    // number of the launch
	row     int    // of the columns; -1 without one
	turn    uint16 // its place among the processes of its rank, by their starts, from 1
	Later   bool   // it took a rank's place while the others went on
	Running bool   // the last column that went shows it in its rank's place

	Settled   bool
	Tells     bool // roles, by its identity
	LastStep  int64
	LastStart int64
	Run       int   // how often it went back to an earlier step
	at        place // of its last row that was placed, for a History

	// Own and Forward are times of its first steps, in seconds and NaN where not recorded, where
	// roles may have to be guessed from them.
	Own, Forward []float32

	// Talks are the communicators that it used, in the order they came.
	Talks []talk
	Node  string   // where its rows say it ran
	Known bool     // an identity came
	Meta  row.Rank // of the highest version
	// Held are rows that wait until it is known what this process is: the first of
	// a new launch, or a rank that was restarted alone.
	Held []row.Step

	begun   bool  // of a History: a row was placed
	number  int32 // in a History
	waiting int32 // rows of a History that were not placed yet
}

// talk is what one process did in one communicator.
type talk struct {
	Name, Dim string
	P2P       bool
	Group     int32 // number of the group, from 1, by world.communicators; 0 unknown
}

// mostTalks bounds the communicators of a process; what is beyond is left out.
const mostTalks = 1 << 10

// tellsRoles reports whether the process's own identity names groups that make roles.
func (p *process) tellsRoles() bool {
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

// begin is the best known start of the process, ns since the Unix epoch.
func (p *process) begin() int64 {
	if p.Meta.StartedNs > 0 {
		return p.Meta.StartedNs
	}

	return p.EarlyNs
}

// nodeName is where the process ran, "" unknown.
func (p *process) nodeName() string {
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
func (p *process) fresh() bool {
	if p.Steps == 0 {
		return false
	}

	if p.First.Step <= 1 {
		return true
	}

	return p.Meta.Writer != record.TaskD && p.Meta.StartedNs > 0 && p.FirstNs > 0 && p.FirstNs-p.Meta.StartedNs < freshSpan
}
