package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
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

// lookup is one query and what to do with its rows.
type lookup struct {
	columns string
	where   string
	suffix  string
	scan    func(rows driver.Rows, stored []bool) error
}

func (l lookup) run(ctx context.Context, conn clickhouse.Conn, table string, stored []bool) error {
	rows, err := conn.Query(ctx, "SELECT "+l.columns+" FROM "+table+" WHERE "+l.where+l.suffix)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := l.scan(rows, stored); err != nil {
			return err
		}
	}

	return rows.Err()
}

// maxTerms bounds the conditions of one query, which servers limit to 256 KiB.
const maxTerms = 400

// term is a condition on the rows of one process (or segment) in a batch.
type term struct {
	prefix string // without the range
	column string // ranged column, "" for none
	lo, hi uint64
}

func (t term) String() string {
	if t.column == "" {
		return "(" + t.prefix + ")"
	}

	return fmt.Sprintf("(%s AND %s BETWEEN %d AND %d)", t.prefix, ddl.Quote(t.column), t.lo, t.hi)
}

// terms collects one term per prefix, with the range of its values.
type terms struct {
	column string
	index  map[string]int
	list   []term
}

func newTerms(column string) *terms { return &terms{column: column, index: map[string]int{}} }

func (t *terms) add(prefix string, v uint64) {
	i, ok := t.index[prefix]
	if !ok {
		i = len(t.list)
		t.index[prefix] = i
		t.list = append(t.list, term{prefix, t.column, v, v})
	}

	t.list[i].lo, t.list[i].hi = min(t.list[i].lo, v), max(t.list[i].hi, v)
}

// where returns the conditions, in pieces of at most maxTerms.
func (t *terms) where(common string) []string {
	var all []string
	for list := t.list; len(list) > 0; {
		n := min(len(list), maxTerms)
		var parts []string
		for _, one := range list[:n] {
			parts = append(parts, one.String())
		}

		all = append(all, common+" AND ("+strings.Join(parts, " OR ")+")")
		list = list[n:]
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

func lookups(b *ship.Batch) []lookup {
	switch b.Table {
	case row.RanksTable:
		return rankLookups(b)
	case row.StepsTable:
		return stepLookups(b)
	case row.CommunicationsTable:
		return communicationLookups(b)
	case row.RecordsTable:
		return recordLookups(b)
	case row.VerdictsTable:
		return verdictLookups(b)
	case row.LedgerTable:
		return ledgerLookups(b)
	}

	return nil
}

// index returns a function that maps identities to their places in a batch. The map
// is made when it is first needed: most batches are new, and nothing is asked for.
func index[K comparable, T any](rows []T, key func(*T) K) func(K) []int {
	var m map[K][]int
	return func(wanted K) []int {
		if m == nil {
			m = make(map[K][]int, len(rows))
			for i := range rows {
				k := key(&rows[i])
				m[k] = append(m[k], i)
			}
		}

		return m[wanted]
	}
}

func mark(stored []bool, places []int) {
	for _, i := range places {
		stored[i] = true
	}
}

func each(where []string, l lookup) []lookup {
	var all []lookup
	for _, w := range where {
		l.where = w
		all = append(all, l)
	}

	return all
}

func rankLookups(b *ship.Batch) []lookup {
	t := newTerms("")
	for i := range b.Ranks {
		t.add(process(b.Ranks[i].Rank, b.Ranks[i].Incarnation), 0)
	}

	places := index(b.Ranks, ship.KeyOfRank)
	return each(t.where(common(b)), lookup{
		columns: "`rank`, `incarnation`, max(`version`)", suffix: " GROUP BY `rank`, `incarnation`",
		scan: func(rows driver.Rows, stored []bool) error {
			k := ship.RankKey{Job: b.Job}
			var version uint32
			if err := rows.Scan(&k.Rank, &k.Incarnation, &version); err != nil {
				return err
			}

			for _, i := range places(k) {
				stored[i] = b.Ranks[i].Version <= version
			}

			return nil
		},
	})
}

func stepLookups(b *ship.Batch) []lookup {
	t := newTerms("step")
	for i := range b.Steps {
		t.add(process(b.Steps[i].Rank, b.Steps[i].Incarnation), b.Steps[i].Step)
	}

	places := index(b.Steps, ship.KeyOfStep)
	return each(t.where(common(b)), lookup{
		columns: "`rank`, `incarnation`, `step`, `repeat`",
		scan: func(rows driver.Rows, stored []bool) error {
			k := ship.StepKey{Job: b.Job}
			if err := rows.Scan(&k.Rank, &k.Incarnation, &k.Step, &k.Repeat); err != nil {
				return err
			}

			mark(stored, places(k))
			return nil
		},
	})
}

func communicationLookups(b *ship.Batch) []lookup {
	t := newTerms("step_from")
	for i := range b.Communications {
		c := &b.Communications[i]
		t.add(process(c.Rank, c.Incarnation), c.StepFrom)
	}

	places := index(b.Communications, ship.KeyOfCommunication)
	return each(t.where(common(b)), lookup{
		columns: "`rank`, `incarnation`, `step_from`, `repeat`, `group`, `op`",
		scan: func(rows driver.Rows, stored []bool) error {
			k := ship.CommunicationKey{Job: b.Job}
			if err := rows.Scan(&k.Rank, &k.Incarnation, &k.StepFrom, &k.Repeat, &k.Group, &k.Op); err != nil {
				return err
			}

			mark(stored, places(k))
			return nil
		},
	})
}

// Sums implements ship.Windows.
func (s *Sink) Sums(ctx context.Context, b *ship.Batch) ([]ship.Sum, error) {
	t := newTerms("step_from")
	for i := range b.Communications {
		c := &b.Communications[i]
		t.add(process(c.Rank, c.Incarnation), c.StepFrom)
	}

	sums := make([]ship.Sum, b.Len())
	places := index(b.Communications, ship.KeyOfCommunication)
	const base = "if(`repeat` >= 32768, bitAnd(bitShiftRight(`repeat`, 8), 127), `repeat`)"
	all := each(t.where(common(b)), lookup{
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
	})
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

func recordLookups(b *ship.Batch) []lookup {
	t := newTerms("offset")
	prefix, segment := "", uint64(0)
	for i := range b.Raws.Rows {
		r := &b.Raws.Rows[i]
		if prefix == "" || r.Segment != segment {
			prefix, segment = fmt.Sprintf("`rank` = %d AND `segment` = %d", r.Rank, r.Segment), r.Segment
		}

		t.add(prefix, r.Offset)
	}

	places := index(b.Raws.Rows, ship.KeyOfRaw)
	return each(t.where(common(b)), lookup{
		columns: "`segment`, `offset`",
		scan: func(rows driver.Rows, stored []bool) error {
			var k ship.RecordKey
			if err := rows.Scan(&k.Segment, &k.Offset); err != nil {
				return err
			}

			mark(stored, places(k))
			return nil
		},
	})
}

func verdictLookups(b *ship.Batch) []lookup {
	t := newTerms("step")
	for i := range b.Verdicts {
		t.add(fmt.Sprintf("`at_ns` = %d", b.Verdicts[i].AtNs), b.Verdicts[i].Step)
	}

	places := index(b.Verdicts, ship.KeyOfVerdict)
	return each(t.where(common(b)), lookup{
		columns: "`at_ns`, `step`, `node`, `finding`, `group`",
		scan: func(rows driver.Rows, stored []bool) error {
			k := ship.VerdictKey{Job: b.Job}
			if err := rows.Scan(&k.AtNs, &k.Step, &k.Node, &k.Finding, &k.Group); err != nil {
				return err
			}

			mark(stored, places(k))
			return nil
		},
	})
}

func ledgerLookups(b *ship.Batch) []lookup {
	t := newTerms("segment")
	for i := range b.Ledger {
		t.add(fmt.Sprintf("`rank` = %d AND `batch` = %s", b.Ledger[i].Rank, ddl.Literal(b.Ledger[i].Batch)), b.Ledger[i].Segment)
	}

	places := index(b.Ledger, ship.KeyOfLedger)
	return each(t.where(common(b)), lookup{
		columns: "`rank`, `incarnation`, `segment`, `batch`, `table`, `state`, `reason`, `kind`, `first_offset`, `last_offset`",
		scan: func(rows driver.Rows, stored []bool) error {
			k := ship.LedgerKey{Job: b.Job}
			if err := rows.Scan(&k.Rank, &k.Incarnation, &k.Segment, &k.Batch, &k.Table, &k.State, &k.Reason, &k.Kind, &k.FirstOffset, &k.LastOffset); err != nil {
				return err
			}

			mark(stored, places(k))
			return nil
		},
	})
}
