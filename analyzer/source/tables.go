package source

import (
	"context"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// tables are the rows of jobs in a store, Parquet files or ClickHouse. Its methods that Source has
// are as there.
type tables interface {
	name() string
	Jobs(ctx context.Context) ([]string, error)
	Close() error
	newest(ctx context.Context, job string) (time.Time, error)
	// ranks reads the table of ranks, the highest version of each incarnation; sign is another text
	// when that has changed.
	ranks(ctx context.Context, job string, o Options) ([]row.Rank, error)
	sign(ctx context.Context, job string) (string, error)
	// split cuts a job's steps or communications into parts.
	split(ctx context.Context, table, job string) ([]part, error)
	// records hands over the raw ranges of a job.
	records(ctx context.Context, job string, take func([]row.Record) error) error

	// look finds out how many rows there are behind the reader's cursor, and from when to when they
	// start. After a window that was not taken it finds the same again. read returns those that start in
	// [from, to), the steps by their starts. math.MaxInt64 is no end: what came since the look may be read
	// with it.
	look(ctx context.Context, r *storeReader) (rows, first, last int64, err error)
	read(ctx context.Context, r *storeReader, from, to int64) (*row.Rows, error)
}

// stored is the Source of what is in a store.
type stored struct{ tables }

// part reads what one worker reads of a table at a time (a span of a Parquet file, or a range of
// ranks in ClickHouse) into rows. It overwrites those of its table, and lets those of others go.
type part func(ctx context.Context, rows *row.Rows) error

// Load implements Source: the ranks, then the other tables part by part.
func (s stored) Load(ctx context.Context, job string, take func(*row.Rows), o Options) (Info, error) {
	job, err := pick(ctx, s, s.name(), job)
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

// Records implements Source.
func (s stored) Records(ctx context.Context, job string, o Options, take func([]row.Rank, []row.Record) error) error {
	ranks, err := s.ranks(ctx, job, o)
	if err == nil {
		err = take(ranks, nil)
	}

	if err != nil {
		return err
	}

	return s.records(ctx, job, func(records []row.Record) error { return take(nil, records) })
}
