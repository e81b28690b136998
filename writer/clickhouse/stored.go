package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Stored implements ship.Sink. It waits until no insert that may hold rows of b
// is under way on the server, whoever began it, and then looks.
func (s *Sink) Stored(ctx context.Context, b *ship.Batch) ([]bool, error) {
	if err := s.settle(ctx, b); err != nil {
		return nil, err
	}

	stored := make([]bool, b.Len())
	for _, l := range lookups(b) {
		err := s.call(ctx, "look up "+b.Table, func(ctx context.Context, conn clickhouse.Conn) error {
			k, err := s.known(ctx, conn)
			if err != nil {
				return err
			}

			// Rows that this process has sent are here or nowhere, and are sent again as
			// they were; of others anybody may have stored some anywhere.
			synced, err := s.catchUp(ctx, conn, k, b.Table)
			if err == nil && !synced && !b.Sent {
				err = s.errBehind(b.Table)
			}

			if err != nil {
				return err
			}

			if b.Sent {
				return l.run(ctx, conn, s.table(k, b.Table), stored)
			}

			return l.run(ctx, conn, s.quoted(b.Table), stored)
		})
		if err != nil {
			return nil, err
		}
	}

	return stored, nil
}

// lookup is one query and what to do with its rows. The condition is by ranges, not by keys: a
// server reads whole granules anyway, and the text stays short; scan tells which rows were meant.
type lookup struct {
	columns string
	where   string
	suffix  string
	scan    func(rows driver.Rows, stored []bool) error
}

// run asks one table and marks what is there.
func (l lookup) run(ctx context.Context, conn clickhouse.Conn, table string, stored []bool) error {
	q := "SELECT " + l.columns + " FROM " + table + " WHERE " + l.where + l.suffix
	return native.EachRow(ctx, conn, q, func(rows driver.Rows) error { return l.scan(rows, stored) })
}

// each is the lookup under one condition after the other.
func (l lookup) each(where []string) []lookup {
	var all []lookup
	for _, l.where = range where {
		all = append(all, l)
	}

	return all
}

// maxTerms bounds the conditions of one query, which servers limit to 256 KiB.
const maxTerms = 400

// conditions are what the rows of b meet, in pieces of at most maxTerms: of those with the same
// prefix (a process, a segment) the range of their values in a column, "" for none.
func conditions[T any](b *ship.Batch, rows []T, column string, of func(*T) (prefix string, value uint64)) []string {
	type span struct {
		prefix string
		lo, hi uint64
	}
	spans := map[string]*span{}
	var prefixes []string
	last := &span{}
	for i := range rows {
		prefix, v := of(&rows[i])
		if prefix != last.prefix { // rows of a segment follow one another
			if last = spans[prefix]; last == nil {
				last = &span{prefix, v, v}
				prefixes, spans[prefix] = append(prefixes, prefix), last
			}
		}

		last.lo, last.hi = min(last.lo, v), max(last.hi, v)
	}

	var all []string
	for some := range slices.Chunk(prefixes, maxTerms) {
		terms := make([]string, len(some))
		for i, prefix := range some {
			if terms[i] = "(" + prefix + ")"; column != "" {
				terms[i] = fmt.Sprintf("(%s AND %s BETWEEN %d AND %d)", prefix, ddl.Quote(column), spans[prefix].lo, spans[prefix].hi)
			}
		}

		all = append(all, common(b)+" AND ("+strings.Join(terms, " OR ")+")")
	}

	return all
}

// common is the condition that every row of b meets: its job, and its partition
// with a day on either side (a row whose first records were aged away since
// begins later than it did).
func common(b *ship.Batch) string {
	c := "`job` = " + ddl.Literal(b.Job)
	if start := ddl.StartColumn(b.Table); start != "" {
		lo, hi := (b.Day-1)*ddl.DayNs, (b.Day+2)*ddl.DayNs
		if b.Day > 106_000 || b.Day < -106_000 { // near the ends of int64
			return c
		}

		c += fmt.Sprintf(" AND %s >= %d AND %s < %d", ddl.Quote(start), lo, ddl.Quote(start), hi)
	}

	return c
}

// process is the prefix of a term for one process of one rank.
func process(rank uint32, incarnation uint64) string {
	return fmt.Sprintf("`rank` = %d AND `incarnation` = %d", rank, incarnation)
}

// lookups are the queries for the rows of b that are there.
func lookups(b *ship.Batch) []lookup {
	switch b.Table {
	case row.RanksTable:
		return rankLookups(b)
	case row.StepsTable:
		return keyLookups(b, b.Steps, ship.KeyOfStep, "step", func(r *row.Step) (string, uint64) {
			return process(r.Rank, r.Incarnation), r.Step
		})
	case row.CommunicationsTable:
		return keyLookups(b, b.Communications, ship.KeyOfCommunication, "step_from", windowOf)
	case row.RecordsTable:
		prefix, segment := "", uint64(0)
		return keyLookups(b, b.Raws.Rows, ship.KeyOfRaw, "offset", func(r *row.Raw) (string, uint64) {
			if prefix == "" || r.Segment != segment {
				prefix, segment = fmt.Sprintf("`rank` = %d AND `segment` = %d", r.Rank, r.Segment), r.Segment
			}

			return prefix, r.Offset
		})
	case row.VerdictsTable:
		return keyLookups(b, b.Verdicts, ship.KeyOfVerdict, "step", func(r *row.Verdict) (string, uint64) {
			return fmt.Sprintf("`at_ns` = %d", r.AtNs), r.Step
		})
	case row.LedgerTable:
		return keyLookups(b, b.Ledger, ship.KeyOfLedger, "segment", func(r *row.Ledger) (string, uint64) {
			return fmt.Sprintf("`rank` = %d AND `batch` = %s", r.Rank, ddl.Literal(r.Batch)), uint64(r.Segment)
		})
	}

	return nil
}

// windowOf is the condition for a window of calls.
func windowOf(r *row.Communication) (prefix string, from uint64) {
	return process(r.Rank, r.Incarnation), r.StepFrom
}

// keyLookups asks for the keys that meet the conditions of the rows.
func keyLookups[K comparable, T any](b *ship.Batch, rows []T, key func(*T) K, column string, of func(*T) (string, uint64)) []lookup {
	var k K
	columns, into := native.Columns(&k, b.Job)
	places := ship.Places(rows, key)
	return lookup{columns: strings.Join(columns, ", "), scan: func(rows driver.Rows, stored []bool) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}

		for _, i := range places(k) {
			stored[i] = true
		}

		return nil
	}}.each(conditions(b, rows, column, of))
}

// rankLookups asks for the highest version of each process: the row of it is stored when that is
// no lower.
func rankLookups(b *ship.Batch) []lookup {
	type key struct { // within the batch's job
		rank        uint32
		incarnation uint64
	}
	places := ship.Places(b.Ranks, func(r *row.Rank) key { return key{r.Rank, r.Incarnation} })
	return lookup{
		columns: "`rank`, `incarnation`, max(`version`)", suffix: " GROUP BY `rank`, `incarnation`",
		scan: func(rows driver.Rows, stored []bool) error {
			var k key
			var version uint32
			if err := rows.Scan(&k.rank, &k.incarnation, &version); err != nil {
				return err
			}

			for _, i := range places(k) {
				stored[i] = b.Ranks[i].Version <= version
			}

			return nil
		},
	}.each(conditions(b, b.Ranks, "", func(r *row.Rank) (string, uint64) { return process(r.Rank, r.Incarnation), 0 }))
}

// Sums implements ship.Sink. base is row.BaseRepeat as an expression: the server adds up a window and what
// completes it, of which a client would have to read every row.
func (s *Sink) Sums(ctx context.Context, b *ship.Batch) ([]ship.Sum, error) {
	sums := make([]ship.Sum, b.Len())
	places := ship.Places(b.Communications, ship.KeyOfCommunication)
	const base = "if(`repeat` >= 32768, bitAnd(bitShiftRight(`repeat`, 8), 127), `repeat`)"
	all := lookup{
		columns: "`rank`, `incarnation`, `step_from`, toUInt16(" + base + ") AS base, `group`, `op`, " +
			"toUInt32(sum(`calls`)), toUInt32(sum(`steps`)), sum(`total_ns`), sum(`bytes`), count()",
		suffix: " GROUP BY `rank`, `incarnation`, `step_from`, base, `group`, `op`",
		scan: func(rows driver.Rows, _ []bool) error {
			k := ship.CommunicationKey{Job: b.Job}
			var sum ship.Sum
			if err := rows.Scan(&k.Rank, &k.Incarnation, &k.StepFrom, &k.Repeat, &k.Group, &k.Op,
				&sum.Calls, &sum.Steps, &sum.TotalNs, &sum.Bytes, &sum.Rows); err != nil {
				return err
			}

			for _, place := range places(k) {
				sums[place].Add(&sum.Communication)
				sums[place].Rows += sum.Rows
			}

			return nil
		},
	}.each(conditions(b, b.Communications, "step_from", windowOf))
	err := s.call(ctx, "sum up "+b.Table, func(ctx context.Context, conn clickhouse.Conn) error {
		clear(sums)
		_, err := s.known(ctx, conn)
		for _, l := range all {
			if err == nil {
				err = l.run(ctx, conn, s.quoted(b.Table), nil)
			}
		}

		return err
	})
	return sums, err
}
