package ship

import (
	"context"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Tally is what a store has of one job, in numbers.
type Tally struct {
	Records        map[SegmentKind]Held
	Steps          map[Process]Held
	Communications map[Process]Held
	Calls          map[Process]uint64 // sum of communications.calls
	Ledger         []row.Ledger
}

// SegmentKind names the raw rows of one kind from one segment.
type SegmentKind struct {
	Rank    uint32
	Segment uint64
	Kind    string
}

// Process names one process of one rank.
type Process struct {
	Rank        uint32
	Incarnation uint64
}

// Held is a number of rows, how many different ones are among them, and how many of
// these complete windows that other rows began (row.IsComplement).
type Held struct{ Rows, Distinct, Complements uint64 }

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{
		Records: map[SegmentKind]Held{}, Steps: map[Process]Held{},
		Communications: map[Process]Held{}, Calls: map[Process]uint64{},
	}
}

// Counter is a sink that can count what it holds of a job.
type Counter interface {
	Tally(ctx context.Context, job string) (*Tally, error)
}
