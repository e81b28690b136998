package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
)

// selectColumns is selectRows for all that is large: it moves blocks of columns into rows,
// where clickhouse-go would scan each value. They are put into a buffer, which may be nil and
// is overwritten. Over HTTP it is selectRows.
func selectColumns[T any](ctx context.Context, d *database, columns []column[T], table, job, where, tail string, buffer []T) ([]T, error) {
	if d.at.HTTP {
		return selectRows[T](ctx, d, table, job, where, tail)
	}

	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = ddl.Quote(c.name)
	}

	rows := buffer[:0]
	err := d.columns(ctx, selection(names, table, job, where, tail), func(got []native.Column, n int) error {
		first := len(rows)
		rows = slices.Grow(rows, n)[:first+n]
		return move(columns, got, job, rows[first:])
	})
	return rows, err
}

// selection is the query for some columns of one job's rows.
func selection(columns []string, table, job, where, tail string) string {
	q := "SELECT " + strings.Join(columns, ", ") + " FROM " + table + " WHERE job = " + ddl.Literal(job)
	if where != "" {
		q += " AND " + where
	}

	return q + " " + tail
}

// move moves the columns of a block into rows. They were asked for in this order.
func move[T any](columns []column[T], got []native.Column, job string, rows []T) error {
	assignJob(rows, job)
	for k, c := range columns {
		if !c.fits(&got[k], len(rows)) {
			return fmt.Errorf("column %s: %w", c.name, errType)
		}

		c.move(rows, &got[k])
	}

	return nil
}

// columns runs q over a connection of its own and hands over the blocks of its answer: a query brings
// many thousand rows, beside which connecting is nothing.
func (d *database) columns(ctx context.Context, q string, each func([]native.Column, int) error) error {
	o, err := native.Options(d.at, readTimeout)
	if err != nil {
		return d.explain("connect to", err)
	}

	l, err := native.Dial(ctx, o)
	if err != nil {
		return d.explain("connect to", err)
	}

	if err = l.Select(ctx, q, o.Settings, each); err != nil {
		err = d.explain("read", err)
	}

	return errors.Join(err, l.Close())
}
