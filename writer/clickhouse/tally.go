package clickhouse

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Tally implements ship.Sink. The server counts: a job's raw rows are too many to be read. From
// 32768 on a Repeat is that of a complement (row.IsComplement).
func (s *Sink) Tally(ctx context.Context, job string) (held map[ship.Place]ship.Held, ledger []row.Ledger, err error) {
	held = map[ship.Place]ship.Held{}
	where := " WHERE `job` = " + ddl.Literal(job)
	for _, q := range []struct {
		table, columns, group string
		scan                  func(driver.Rows) error
	}{
		{row.RecordsTable, "`rank`, `segment`, `kind`, count(), uniqExact(`offset`)", "`rank`, `segment`, `kind`", func(r driver.Rows) error {
			p, n := ship.Place{Table: row.RecordsTable}, ship.Held{}
			err := r.Scan(&p.Rank, &p.Of, &p.Kind, &n.Rows, &n.Distinct)
			held[p] = n
			return err
		}},
		{row.StepsTable, "`rank`, `incarnation`, count(), uniqExact((`step`, `repeat`))", "`rank`, `incarnation`", func(r driver.Rows) error {
			p, n := ship.Place{Table: row.StepsTable}, ship.Held{}
			err := r.Scan(&p.Rank, &p.Of, &n.Rows, &n.Distinct)
			held[p] = n
			return err
		}},
		{row.CommunicationsTable, "`rank`, `incarnation`, count(), uniqExact((`step_from`, `repeat`, `group`, `op`)), uniqExactIf((`step_from`, `repeat`, `group`, `op`), `repeat` >= 32768), sum(`calls`)", "`rank`, `incarnation`", func(r driver.Rows) error {
			p, n := ship.Place{Table: row.CommunicationsTable}, ship.Held{}
			err := r.Scan(&p.Rank, &p.Of, &n.Rows, &n.Distinct, &n.Complements, &n.Calls)
			held[p] = n
			return err
		}},
		{row.LedgerTable, "`rank`, `incarnation`, `segment`, `name`, `batch`, `table`, `state`, `reason`, `kind`, `records`, `bytes`, `first_offset`, `last_offset`", "", func(r driver.Rows) error {
			l := row.Ledger{Job: job}
			err := r.Scan(&l.Rank, (*uint64)(&l.Incarnation), (*uint64)(&l.Segment), &l.Name, &l.Batch, &l.Table, &l.State, &l.Reason, &l.Kind, &l.Records, &l.Bytes, &l.FirstOffset, &l.LastOffset)
			ledger = append(ledger, l)
			return err
		}},
	} {
		err := s.call(ctx, "count "+q.table, func(ctx context.Context, conn clickhouse.Conn) error {
			// A replica that lags would count less than was acknowledged.
			if err := s.caughtUp(ctx, conn, q.table); err != nil {
				return err
			}

			text := "SELECT " + q.columns + " FROM " + s.quoted(q.table) + where
			if q.group != "" {
				text += " GROUP BY " + q.group
			}

			return native.EachRow(ctx, conn, text, q.scan)
		})
		if err != nil {
			return nil, nil, err
		}
	}

	return held, ledger, nil
}

// caughtUp waits as catchUp does. A replica that lags would tell of rows that are missing.
func (s *Sink) caughtUp(ctx context.Context, conn clickhouse.Conn, table string) error {
	k, err := s.known(ctx, conn)
	if err != nil {
		return err
	}

	synced, err := s.catchUp(ctx, conn, k, table)
	if err == nil && !synced {
		err = s.errBehind(table)
	}

	return err
}
