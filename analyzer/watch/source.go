package watch

import (
	"context"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Source tells jobs apart and follows each.
type Source interface {
	// Jobs returns the names of the jobs that are there now, sorted.
	Jobs(ctx context.Context) ([]string, error)
	// Newest returns about when the newest piece of the job came, the zero time when
	// that is not known: a job that is silent for long is not read at all.
	Newest(ctx context.Context, job string) (time.Time, error)
	// Follow begins to read a job where an earlier Reader's cursor says, from the
	// beginning with nil. A cursor that can't be used any more is an error.
	Follow(ctx context.Context, job string, cursor []byte) (Reader, error)
}

// Reader reads the rows of one job as they come. It is an alias so that the Follow of a
// source that does not know this package has the same type.
type Reader = interface {
	// Read hands over a bounded portion of the rows that are new since the last
	// call, those of one process in the order of their starts; the Rows may be
	// reused. more says that there is another portion at once. The ranks advance
	// together: none is more than a portion ahead of another that has rows.
	Read(ctx context.Context, take func(*row.Rows) error) (more bool, err error)
	// Topology returns what is known of nodes and groups beside the rows, nil for
	// nothing.
	Topology(ctx context.Context) (*topology.File, error)
	// Drain makes the next Reads hand over what only waits for more to come: the
	// job is over, or nobody will look again.
	Drain()
	// Damaged lists the files that this reader could not read to their end,
	// with the reason: what follows the damage is left out.
	Damaged() []string
	// Cursor says where to go on after everything that was handed over.
	Cursor() ([]byte, error)
	Close() error
}
