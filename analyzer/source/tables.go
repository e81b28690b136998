package source

import (
	"context"
	"sync"

	"github.com/laggard-dev/laggard/schemas/row"
)

// tables are the rows of jobs in a store, Parquet files or ClickHouse.
type tables interface {
	Source
	// ranks reads the table of ranks, the highest version of each incarnation; sign is another text
	// when that has changed.
	ranks(ctx context.Context, job string, o Options) ([]row.Rank, error)
	sign(ctx context.Context, job string) (string, error)
	// split cuts a job's steps or communications into parts.
	split(ctx context.Context, table, job string) ([]part, error)
}

// part reads what one worker reads of a table at a time (a span of a Parquet file, or a range of
// ranks in ClickHouse) into rows. It overwrites those of its table, and lets those of others go.
type part func(ctx context.Context, rows *row.Rows) error

// loadTables is Source.Load of a store: the ranks, then the other tables part by part.
func loadTables(ctx context.Context, s tables, name, job string, take func(*row.Rows), o Options) (Info, error) {
	job, err := pick(ctx, s, name, job)
	if err != nil {
		return Info{}, err
	}

	info := Info{Job: job}
	ranks, err := s.ranks(ctx, job, o)
	if err != nil {
		return info, err
	}

	highest := 0
	if n := len(ranks); n > 0 {
		highest = int(ranks[n-1].Rank) // they are in order
	}

	// Before the large tables: a wrong topology file is said in a second, not in a minute. Without one
	// the groups in the ranks' rows are what is known.
	if info.Topology, err = info.given(o, highest); err != nil {
		return info, err
	}

	// Identities come first: with groups of their own the feed samples no times of steps.
	take(&row.Rows{Ranks: ranks})
	parts, err := s.split(ctx, row.StepsTable, job)
	if err == nil && !o.NoCommunications {
		var more []part
		more, err = s.split(ctx, row.CommunicationsTable, job)
		parts = append(parts, more...)
	}

	if err != nil {
		return info, err
	}

	var buffers sync.Pool // of *row.Rows: who takes rows copies what it keeps, so they serve again
	err = inOrder(ctx, len(parts), o.workers(), func(ctx context.Context, i int) (*row.Rows, error) {
		rows, ok := buffers.Get().(*row.Rows)
		if !ok {
			rows = &row.Rows{}
		}

		return rows, parts[i](ctx, rows)
	}, func(i int, rows *row.Rows) error {
		take(rows)
		info.Steps += len(rows.Steps)
		buffers.Put(rows)
		o.progress(i+1, len(parts))
		return nil
	})
	return info, err
}
