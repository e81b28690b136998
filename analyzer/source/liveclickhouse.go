package source

import (
	"context"
	"fmt"
	"math"
	"time"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// look implements tables.
func (d *database) look(ctx context.Context, r *storeReader) (rows, first, last int64, err error) {
	where := ""
	if r.at.Since > 0 {
		if err := d.learn(ctx); err != nil {
			return 0, 0, 0, err
		}

		where = " AND " + d.after(r.at.Since-overlap)
	}

	q := "SELECT count(), min(start_ns), max(start_ns) FROM " + row.StepsTable + " WHERE job = " + ddl.Literal(r.job) + where
	var count uint64
	err = d.scan(ctx, q, &count, &first, &last)
	// Rows of the overlap come again with each look. Unless their number or the newest start has
	// changed there is none that was not handed over.
	if r.at.sight = fmt.Sprint(count, last); r.at.sight != r.at.seen {
		rows = int64(count)
	}

	return rows, first, last, err
}

// read implements tables.
func (d *database) read(ctx context.Context, r *storeReader, from, to int64) (rows *row.Rows, err error) {
	where := d.after(from)
	if to != math.MaxInt64 {
		where += fmt.Sprintf(" AND start_ns < %d", to)
	}

	const order = "ORDER BY start_ns, rank LIMIT 1 BY rank, incarnation, "
	rows = &row.Rows{}
	if rows.Steps, err = selectColumns(ctx, d, stepColumns, row.StepsTable, r.job, where, order+"step, repeat", nil); err == nil && r.comms {
		rows.Communications, err = selectColumns(ctx, d, communicationColumns, row.CommunicationsTable, r.job, where, order+"step_from, repeat, `group`, op", nil)
	}

	return rows, err
}

// learn asks once whether the tables have the column ts.
func (d *database) learn(ctx context.Context) error {
	if d.timed != nil {
		return nil
	}

	q := "SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = " + ddl.Literal(row.StepsTable) + " AND name = 'ts'"
	var columns uint64
	err := d.scan(ctx, q, &columns)
	if timed := columns > 0; err == nil {
		d.timed = &timed
	}

	return err
}

// after is the condition for starts from ns on; days that are over are not read.
func (d *database) after(ns int64) string {
	where := fmt.Sprintf("start_ns >= %d", ns)
	if d.timed != nil && *d.timed {
		where += fmt.Sprintf(" AND ts >= fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", ns)
	}

	return where
}

// newest implements tables: when the job's newest step began.
func (d *database) newest(ctx context.Context, job string) (t time.Time, err error) {
	var ns int64
	if err = d.scan(ctx, "SELECT max(start_ns) FROM "+row.StepsTable+" WHERE job = "+ddl.Literal(job), &ns); ns > 0 {
		t = time.Unix(0, ns)
	}

	return t, err
}
