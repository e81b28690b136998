package feed

import (
	"context"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Reader reads the rows of one job as they come: what a Feed is fed from. It holds nothing
// open between two Reads, so that whoever follows the job no more just drops it.
type Reader interface {
	// Read hands over a bounded portion of the rows that are new since the last
	// call, those of one process in the order of their starts; the Rows may be
	// reused. more says that there is another portion at once. The ranks advance
	// together: none is more than a portion ahead of another that has rows. at says what
	// may come behind all that is there: when it is Over, because the job is or nobody will
	// look again, what only waits for more to come is handed over, too.
	Read(ctx context.Context, at Stage, take func(*row.Rows) error) (more bool, err error)
	// Topology returns what is known of nodes and groups beside the rows that were
	// read, nil for nothing.
	Topology() *topology.File
	// Damaged lists the files that this reader could not read to their end,
	// with the reason: what follows the damage is left out.
	Damaged() []string
	// Cursor says where to go on after everything that was handed over.
	Cursor() []byte
}
