package source

import (
	"context"
	"fmt"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// rangeRows is about how many rows one query brings: small enough to hold a few
// of them, large enough that the round trip does not count.
const rangeRows = 64 << 10

// ranks implements tables.
func (d *database) ranks(ctx context.Context, job string, _ Options) ([]row.Rank, error) {
	// A large job's rows are kilobytes of ranks each: of so many comes a block.
	const tail = "SETTINGS max_block_size = 1024"
	ranks, err := selectColumns(ctx, d, columnsOf[row.Rank](members{}), row.RanksTable, job, "", tail, nil)
	return newestRanks(ranks), err
}

// sign implements tables. The sum of versions rises with each new word on a process, whichever it is.
func (d *database) sign(ctx context.Context, job string) (string, error) {
	var n, versions uint64
	var started int64
	q := "SELECT count(), sum(version), max(started_ns) FROM " + row.RanksTable + " WHERE job = " + ddl.Literal(job)
	err := d.scan(ctx, q, &n, &versions, &started)
	return fmt.Sprint(n, versions, started), err
}

// split implements tables: they are read by ranges of ranks, which are ranges of their primary key.
// The server neither sorts nor looks for doubles (LIMIT 1 BY): that was two fifths of its work.
func (d *database) split(ctx context.Context, table, job string) ([]part, error) {
	ranges, err := d.ranges(ctx, table, job)
	parts := make([]part, len(ranges))
	for i, r := range ranges {
		parts[i] = func(ctx context.Context, rows *row.Rows) error {
			if table == row.StepsTable {
				steps, err := selectColumns(ctx, d, stepColumns, table, job, r.where(), "", slices.Grow(rows.Steps[:0], int(r.rows)))
				*rows = row.Rows{Steps: byKey(steps, row.CompareSteps)}
				return err
			}

			communications, err := selectColumns(ctx, d, communicationColumns, table, job, r.where(), "", slices.Grow(rows.Communications[:0], int(r.rows)))
			*rows = row.Rows{Communications: byKey(communications, row.CompareCommunications)}
			return err
		}
	}

	return parts, err
}

// rankRange is a closed range of ranks, and how many rows they had when it was made.
type rankRange struct {
	from, to uint32
	rows     uint64
}

// where is the condition for the range: rank is the second column of the primary key, behind job.
func (r rankRange) where() string { return fmt.Sprintf("rank BETWEEN %d AND %d", r.from, r.to) }

// ranges cuts the ranks of a job into ranges of about rangeRows rows of a table.
func (d *database) ranges(ctx context.Context, table, job string) ([]rankRange, error) {
	var all []rankRange
	q := "SELECT rank, count() FROM " + table + " WHERE job = " + ddl.Literal(job) + " GROUP BY rank ORDER BY rank"
	err := query(ctx, d, q, func(r driver.Rows) error {
		var rank uint32
		var n uint64
		if err := r.Scan(&rank, &n); err != nil {
			return err
		}

		// A range holds whole ranks, so one rank with many rows is a range of its own, however large.
		if len(all) == 0 || all[len(all)-1].rows+n > d.rows {
			all = append(all, rankRange{from: rank})
		}

		last := &all[len(all)-1]
		last.to, last.rows = rank, last.rows+n
		return nil
	})
	return all, err
}

// selectRows reads one job's rows of a table into structs of schemas/row. The
// column of the job is not asked for: it is known.
func selectRows[T any](ctx context.Context, d *database, table, job, where, tail string) ([]T, error) {
	var one T
	columns, into := native.Columns(&one, job)
	empty := one // but for the job
	var rows []T
	err := query(ctx, d, selection(columns, table, job, where, tail), func(r driver.Rows) error {
		one = empty // its lists are the last row's
		if err := r.Scan(into...); err != nil {
			return err
		}

		rows = append(rows, one)
		return nil
	})
	return rows, err
}
