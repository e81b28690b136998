package source

import (
	"context"
	"sync"

	"github.com/laggard-dev/laggard/schemas/row"
)

// tables are a job's rows in a store. P is what one worker reads of a table at a time: a span of
// a Parquet file, or a range of ranks in ClickHouse.
type tables[P any] interface {
	Source
	ranks(ctx context.Context, job string, o Options, info *Info) ([]row.Rank, error)
	// split cuts a table of the job, and counts the files that it stands in.
	split(ctx context.Context, table, job string, info *Info) ([]P, error)
	// steps and communications read a part into a buffer, which they overwrite and may replace.
	steps(ctx context.Context, part P, job string, buffer []row.Step) ([]row.Step, error)
	communications(ctx context.Context, part P, job string, buffer []row.Communication) ([]row.Communication, error)
}

// loadTables is Source.Load of a store: the ranks, then the other tables part by part.
func loadTables[P any](ctx context.Context, s tables[P], name, job string, take func(*row.Rows), o Options) (Info, error) {
	job, err := Pick(ctx, s, name, job)
	if err != nil {
		return Info{}, err
	}

	info := Info{Job: job}
	ranks, err := s.ranks(ctx, job, o, &info)
	if err != nil {
		return info, err
	}

	// Before the large tables: a wrong topology file is said in a second, not in a minute.
	if err := useTopology(&info, o, ranks); err != nil {
		return info, err
	}

	// Identities come first: with groups of their own the feed samples no times of steps.
	info.hand(take, &row.Rows{Ranks: ranks})
	steps, err := s.split(ctx, row.StepsTable, job, &info)
	if err != nil {
		return info, err
	}

	var communications []P
	if !o.NoCommunications {
		if communications, err = s.split(ctx, row.CommunicationsTable, job, &info); err != nil {
			return info, err
		}
	}

	total := len(steps) + len(communications)
	var buffers sync.Pool // of *row.Rows: who takes rows copies what it keeps, so they serve again
	err = inOrder(ctx, total, o.workers(), func(ctx context.Context, i int) (rows *row.Rows, err error) {
		rows, ok := buffers.Get().(*row.Rows)
		if !ok {
			rows = &row.Rows{}
		}

		if i < len(steps) {
			rows.Steps, err = s.steps(ctx, steps[i], job, rows.Steps)
			return rows, err
		}

		rows.Steps = nil // no more of them come
		rows.Communications, err = s.communications(ctx, communications[i-len(steps)], job, rows.Communications)
		return rows, err
	}, func(i int, rows *row.Rows) error {
		info.hand(take, rows)
		buffers.Put(rows)
		o.progress(i+1, total)
		return nil
	})
	return info, err
}

// hand hands rows over and counts them.
func (i *Info) hand(take func(*row.Rows), rows *row.Rows) {
	take(rows)
	i.Ranks += len(rows.Ranks)
	i.Steps += len(rows.Steps)
	i.Communications += len(rows.Communications)
}
