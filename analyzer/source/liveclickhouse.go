package source

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/laggard-dev/laggard/analyzer/feed"
	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// tableReader follows a job in ClickHouse by the starts of its steps.
type tableReader struct {
	storeReader
	d     *database
	since int64 // newest start that was handed over
	begun bool
	timed *bool  // the tables have a column ts, which prunes partitions
	seen  string // what the last look found
}

// follow implements Source.
func (d *database) follow(o Options, job string, from []byte) (feed.Reader, error) {
	c, err := goOn(d.at.String(), from)
	if err != nil {
		return nil, err
	}

	r := &tableReader{d: d, since: c.Since, begun: c.Since > 0}
	r.storeReader, err = newStoreReader(o, job)
	return r, err
}

// Read implements feed.Reader.
func (r *tableReader) Read(ctx context.Context, take func(*row.Rows) error) (bool, error) {
	if r.window == r.number {
		if err := r.readRanks(ctx, take); err != nil {
			return false, err
		}

		if err := r.look(ctx); err != nil || r.number == 0 {
			return false, err
		}
	}

	// The last window has no end: rows that came since the look are read with it.
	from := r.from + int64(r.window)*r.width
	where := r.after(from)
	if r.window+1 < r.number {
		where += fmt.Sprintf(" AND start_ns < %d", from+r.width)
	}

	var rows row.Rows
	var err error
	if rows.Steps, err = selectColumns(ctx, r.d, stepColumns, row.StepsTable, r.job, where, "ORDER BY start_ns, rank LIMIT 1 BY rank, incarnation, step, repeat", nil); err == nil && r.comms {
		rows.Communications, err = selectColumns(ctx, r.d, communicationColumns, row.CommunicationsTable, r.job, where, "ORDER BY start_ns, rank LIMIT 1 BY rank, incarnation, step_from, repeat, `group`, op", nil)
	}

	if err == nil {
		err = take(&rows)
	}

	if err != nil {
		r.window, r.number, r.seen = 0, 0, ""
		return false, err
	}

	// Only now, when they were taken: after an error the same windows are read again.
	for i := range rows.Steps {
		r.since, r.begun = max(r.since, rows.Steps[i].StartNs), true
	}

	r.window++
	return r.window < r.number, nil
}

// readRanks hands the table of ranks over when it changed.
func (r *tableReader) readRanks(ctx context.Context, take func(*row.Rows) error) error {
	// The sum of versions rises with each new word on a process, whichever it is.
	sign := ""
	q := "SELECT count(), sum(version), max(started_ns) FROM " + row.RanksTable + " WHERE job = " + ddl.Literal(r.job)
	err := query(ctx, r.d, q, func(rows driver.Rows) error {
		var n, versions uint64
		var started int64
		if err := rows.Scan(&n, &versions, &started); err != nil {
			return err
		}

		sign = fmt.Sprint(n, versions, started)
		return nil
	})
	if err != nil || sign == r.sign {
		return err
	}

	ranks, err := r.d.ranks(ctx, r.job, r.o, nil)
	if err != nil {
		return err
	}

	return r.identities(ranks, sign, take)
}

// look counts what is new and cuts its time into windows.
func (r *tableReader) look(ctx context.Context) error {
	r.window, r.number = 0, 0
	where := ""
	if r.begun {
		if err := r.learn(ctx); err != nil {
			return err
		}

		where = " AND " + r.after(r.since-overlap)
	}

	q := "SELECT count(), min(start_ns), max(start_ns) FROM " + row.StepsTable + " WHERE job = " + ddl.Literal(r.job) + where
	return query(ctx, r.d, q, func(rows driver.Rows) error {
		var n uint64
		var first, last int64
		if err := rows.Scan(&n, &first, &last); err != nil || n == 0 {
			return err
		}

		// Rows of the overlap come again with each look. Unless their number or the newest start has
		// changed there is none that was not handed over.
		sight := fmt.Sprint(n, last)
		if sight == r.seen {
			return nil // nothing new
		}

		r.seen = sight
		r.cut(int64(n), first, last)
		return nil
	})
}

// learn asks once whether the tables have the column ts.
func (r *tableReader) learn(ctx context.Context) error {
	if r.timed != nil {
		return nil
	}

	q := "SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = " + ddl.Literal(row.StepsTable) + " AND name = 'ts'"
	return query(ctx, r.d, q, func(rows driver.Rows) error {
		var n uint64
		if err := rows.Scan(&n); err != nil {
			return err
		}

		timed := n > 0
		r.timed = &timed
		return nil
	})
}

// after is the condition for starts from ns on; days that are over are not read.
func (r *tableReader) after(ns int64) string {
	where := fmt.Sprintf("start_ns >= %d", ns)
	if r.timed != nil && *r.timed {
		where += fmt.Sprintf(" AND ts >= fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", ns)
	}

	return where
}

// Cursor implements feed.Reader.
func (r *tableReader) Cursor() []byte {
	return cursor{Since: r.since}.text()
}

// newest returns when the job's newest step began.
func (d *database) newest(ctx context.Context, job string) (t time.Time, err error) {
	err = query(ctx, d, "SELECT max(start_ns) FROM "+row.StepsTable+" WHERE job = "+ddl.Literal(job), func(r driver.Rows) error {
		var ns int64
		if err := r.Scan(&ns); err != nil {
			return err
		}

		if ns > 0 {
			t = time.Unix(0, ns)
		}

		return nil
	})
	return t, err
}
