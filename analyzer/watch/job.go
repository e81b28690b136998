package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// job follows one job. It is used by one goroutine. Its exported fields, and those of what they point
// at, are its memory: they are kept over restarts as they are. The engine saves itself.
type job struct {
	Job     string
	Feed    *feed.Feed
	Cursor  []byte        // of the source
	Stated  []statement   // what was published last
	Unsent  []row.Verdict // decided, not yet acknowledged by the sink
	LastNs  int64         // start of the newest step that was judged
	Newest  int64         // start of the newest row that was read
	Changes uint64
	Moved   time.Time // when rows came last
	Judged  bool      // a step was: the engine follows in a state file

	engine  *detect.Engine
	reader  feed.Reader
	verdict *verdict.Verdict
	dirty   bool     // differs from what was saved
	taken   bool     // over, and nothing stored of it since; see unrepeated
	failing string   // why the last look could not read it, "" when it could
	damaged []string // files that this process said are damaged
}

// maxUnsent bounds what waits for a sink that fails; the oldest go first.
const maxUnsent = 4096

// newJob returns a job of which nothing was read.
func newJob(name string, cfg threshold.Config) *job {
	return &job{Job: name, Feed: feed.New(), engine: detect.New(cfg, nil)}
}

// observe gives a column to the engine.
func (j *job) observe(c *frame.Column) {
	// It is unknown where the lowest ranks are missing: the time of before stands then.
	if c.StartNs > 0 {
		j.LastNs = c.StartNs
	}

	j.engine.Observe(c)
}

// read takes everything that is new. It returns whether anything was.
func (j *job) read(ctx context.Context, lag time.Duration, last feed.Stage) (bool, error) {
	news := false
	for {
		more, err := j.reader.Read(ctx, last, func(rows *row.Rows) error {
			if rows.Len() == 0 {
				return nil
			}

			news = true
			for i := range rows.Steps {
				j.Newest = max(j.Newest, rows.Steps[i].StartNs)
			}

			j.Feed.Add(rows)
			return nil
		})
		if err != nil {
			return news, fmt.Errorf("read job %s: %w", j.Job, err)
		}

		// While the source has more, a rank that seems to be missing may be in the next part.
		at := feed.More
		if !more {
			at = last
		}

		went := j.Feed.Columns
		j.Feed.Settle(j.reader.Topology(), at == feed.Over)
		j.Feed.Release(at, lag, j.observe)
		j.dirty = j.dirty || news || went != j.Feed.Columns
		if !more {
			return news, nil
		}

		if err := ctx.Err(); err != nil {
			return news, err
		}
	}
}

// decide returns the verdict on what was observed so far, as analyze gives it.
func (j *job) decide(minImpact float64) *verdict.Verdict {
	f := j.Feed
	j.engine.Describe(j.Job, 2*f.Estimated > f.Accepted, 2*f.HostOnly > f.Accepted)
	v := j.engine.Verdict()
	detect.Tell(v, f.Off(), f.Overlap())
	v.Healthy = v.Exit(minImpact) == verdict.ExitHealthy
	return v
}
