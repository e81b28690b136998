package source

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// newStarts are the rows of a job in ClickHouse that start after those that were handed over.
type newStarts struct {
	d     *database
	job   string
	since int64 // newest start that was handed over, 0 before the first
	timed *bool // the tables have a column ts, which prunes partitions
	// What the last look found, and the one whose rows were all handed over.
	sight, seen string
}

// follow implements Source.
func (d *database) follow(o Options, job string, from []byte) (feed.Reader, error) {
	c, err := goOn(d.at.String(), from)
	if err != nil {
		return nil, err
	}

	return newStoreReader(d, &newStarts{d: d, job: job, since: c.Since}, o, job)
}

// look implements news.
func (n *newStarts) look(ctx context.Context, _ bool) (rows, first, last int64, err error) {
	where := ""
	if n.since > 0 {
		if err := n.learn(ctx); err != nil {
			return 0, 0, 0, err
		}

		where = " AND " + n.after(n.since-overlap)
	}

	q := "SELECT count(), min(start_ns), max(start_ns) FROM " + row.StepsTable + " WHERE job = " + ddl.Literal(n.job) + where
	var count uint64
	err = n.d.scan(ctx, q, &count, &first, &last)
	// Rows of the overlap come again with each look. Unless their number or the newest start has
	// changed there is none that was not handed over.
	if n.sight = fmt.Sprint(count, last); n.sight != n.seen {
		rows = int64(count)
	}

	return rows, first, last, err
}

// read implements news.
func (n *newStarts) read(ctx context.Context, from, to int64, communications bool) (rows *row.Rows, err error) {
	where := n.after(from)
	if to != math.MaxInt64 {
		where += fmt.Sprintf(" AND start_ns < %d", to)
	}

	const order = "ORDER BY start_ns, rank LIMIT 1 BY rank, incarnation, "
	rows = &row.Rows{}
	if rows.Steps, err = selectColumns(ctx, n.d, stepColumns, row.StepsTable, n.job, where, order+"step, repeat", nil); err == nil && communications {
		rows.Communications, err = selectColumns(ctx, n.d, communicationColumns, row.CommunicationsTable, n.job, where, order+"step_from, repeat, `group`, op", nil)
	}

	return rows, err
}

// taken implements news.
func (n *newStarts) taken(rows *row.Rows, last bool) {
	for i := range rows.Steps {
		n.since = max(n.since, rows.Steps[i].StartNs)
	}

	if last {
		n.seen = n.sight
	}
}

// cursor implements news.
func (n *newStarts) cursor() cursor { return cursor{Since: n.since} }

// learn asks once whether the tables have the column ts.
func (n *newStarts) learn(ctx context.Context) error {
	if n.timed != nil {
		return nil
	}

	q := "SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = " + ddl.Literal(row.StepsTable) + " AND name = 'ts'"
	var columns uint64
	err := n.d.scan(ctx, q, &columns)
	if timed := columns > 0; err == nil {
		n.timed = &timed
	}

	return err
}

// after is the condition for starts from ns on; days that are over are not read.
func (n *newStarts) after(ns int64) string {
	where := fmt.Sprintf("start_ns >= %d", ns)
	if n.timed != nil && *n.timed {
		where += fmt.Sprintf(" AND ts >= fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", ns)
	}

	return where
}

// newest returns when the job's newest step began.
func (d *database) newest(ctx context.Context, job string) (t time.Time, err error) {
	var ns int64
	if err = d.scan(ctx, "SELECT max(start_ns) FROM "+row.StepsTable+" WHERE job = "+ddl.Literal(job), &ns); ns > 0 {
		t = time.Unix(0, ns)
	}

	return t, err
}
