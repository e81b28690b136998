package source

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// recordsAtOnce are handed over at once: a row of texts is three times as long as a raw one, and a
// step may have hundreds of thousands.
const recordsAtOnce = 1 << 12

// Records implements Source: the segments of every rank again, range by range.
func (t *tree) Records(ctx context.Context, job string, o Options, take func([]row.Rank, []row.Record) error) error {
	info := Info{Job: job}
	dirs := t.of(job)
	l, err := layoutOf(&info, o, t.dir, t.merged.Dirs(job), dirs)
	if err != nil {
		return err
	}

	var one sync.Mutex // take is for one goroutine at a time
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.workers())
	for _, dir := range dirs {
		g.Go(func() error {
			var records []row.Record
			_, err := rollup.Dir(ctx, dir, l.Options(dir, rollup.All), func(r *row.Rows) error {
				one.Lock()
				defer one.Unlock()
				if err := take(r.Ranks, nil); err != nil {
					return err
				}

				for part := range slices.Chunk(r.Raws.Rows, recordsAtOnce) {
					raws := row.Raws{Rows: part, Words: r.Raws.Words}
					records = raws.AppendTo(records[:0])
					if err := take(nil, records); err != nil {
						return err
					}
				}

				return nil
			})
			if err != nil {
				return fmt.Errorf("read ranges of rank %d: %w", dir.Rank, err)
			}

			return nil
		})
	}

	return g.Wait()
}

// records implements tables. A file is read in parts by layout.Read, so memory does not grow with it.
func (s *store) records(ctx context.Context, job string, take func([]row.Record) error) error {
	paths, err := s.files(row.RecordsTable, job)
	if err != nil {
		return err
	}

	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}

		if err := layout.Read(path, take); err != nil {
			return fmt.Errorf("read ranges: %w", err)
		}
	}

	return nil
}

// records implements tables.
func (d *database) records(ctx context.Context, job string, take func([]row.Record) error) error {
	ranges, err := d.ranges(ctx, row.RecordsTable, job)
	if err != nil {
		return err
	}

	for _, r := range ranges {
		rows, err := selectRows[row.Record](ctx, d, row.RecordsTable, job, r.where(), "ORDER BY segment, offset LIMIT 1 BY segment, offset")
		if err == nil {
			err = take(rows)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
