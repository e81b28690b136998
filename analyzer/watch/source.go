package watch

import (
	"context"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
)

// Source tells jobs apart and follows each.
type Source interface {
	// Jobs returns the names of the jobs that are there now, sorted.
	Jobs(ctx context.Context) ([]string, error)
	// Newest returns about when the newest piece of the job came, the zero time when
	// that is not known: a job that is silent for long is not read at all.
	Newest(ctx context.Context, job string) (time.Time, error)
	// Follow begins to read a job where an earlier reader's cursor says, from the
	// beginning with nil. A cursor that can't be used any more is an error.
	Follow(ctx context.Context, job string, cursor []byte) (feed.Reader, error)
}
