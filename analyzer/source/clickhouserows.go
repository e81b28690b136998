package source

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// rangeRows is about how many rows one query brings: small enough to hold a few
// of them, large enough that the round trip does not count.
const rangeRows = 64 << 10

// Load implements Source: the ranks, then the other tables by ranges of ranks,
// which are ranges of the tables' primary key. They are not sorted: that is half of the
// server's work, and a Builder wants no order.
func (d *database) Load(ctx context.Context, job string, b Builder, o Options) (Info, error) {
	job, err := Pick(ctx, d, d.at.String(), job)
	if err != nil {
		return Info{}, err
	}

	info := Info{Job: job, Kind: ClickHouse}
	ranks, err := d.ranks(ctx, job)
	if err != nil {
		return info, err
	}

	if err := useTopology(&info, o, ranks); err != nil {
		return info, err
	}

	addRanks(b, ranks, &info)

	steps, err := d.ranges(ctx, row.StepsTable, job)
	if err != nil {
		return info, err
	}

	var communications []rankRange
	if !o.NoCommunications {
		if communications, err = d.ranges(ctx, row.CommunicationsTable, job); err != nil {
			return info, err
		}
	}

	total := len(steps) + len(communications)
	err = inOrder(ctx, len(steps), o.workers(), func(ctx context.Context, i int) ([]row.Step, error) {
		return selectColumns(ctx, d, stepColumns, row.StepsTable, job, steps[i].where(), "LIMIT 1 BY rank, incarnation, step, repeat")
	}, func(i int, rows []row.Step) error {
		for k := range rows {
			b.AddStep(&rows[k])
		}

		info.Steps += len(rows)
		o.progress(i+1, total)
		return nil
	})
	if err != nil {
		return info, err
	}

	key := "rank, incarnation, step_from, repeat, `group`, op"
	err = inOrder(ctx, len(communications), o.workers(), func(ctx context.Context, i int) ([]row.Communication, error) {
		return selectColumns(ctx, d, communicationColumns, row.CommunicationsTable, job, communications[i].where(), "LIMIT 1 BY "+key)
	}, func(i int, rows []row.Communication) error {
		for k := range rows {
			b.AddCommunication(&rows[k])
		}

		info.Communications += len(rows)
		o.progress(len(steps)+i+1, total)
		return nil
	})
	return info, err
}

// ranks reads the table of ranks, the highest version of each incarnation.
func (d *database) ranks(ctx context.Context, job string) ([]row.Rank, error) {
	// A large job's rows are kilobytes of ranks each: of so many comes a block.
	const tail = "SETTINGS max_block_size = 1024"
	ranks, err := selectColumns(ctx, d, rankColumns(members{}), row.RanksTable, job, "", tail)
	return newestRanks(ranks), err
}

// rankRange is a closed range of ranks.
type rankRange struct{ from, to uint32 }

func (r rankRange) where() string { return fmt.Sprintf("rank BETWEEN %d AND %d", r.from, r.to) }

// ranges cuts the ranks of a job's table into ranges of about rangeRows rows.
func (d *database) ranges(ctx context.Context, table, job string) ([]rankRange, error) {
	var all []rankRange
	var held uint64
	q := "SELECT rank, count() FROM " + table + " WHERE job = " + ddl.Literal(job) + " GROUP BY rank ORDER BY rank"
	err := query(ctx, d, q, func(r driver.Rows) error {
		var rank uint32
		var n uint64
		if err := r.Scan(&rank, &n); err != nil {
			return err
		}

		if len(all) == 0 || held+n > d.rows {
			all, held = append(all, rankRange{from: rank}), 0
		}

		all[len(all)-1].to, held = rank, held+n
		return nil
	})
	return all, err
}

// selectRows reads one job's rows of a table into structs of schemas/row. The
// column of the job is not asked for: it is known.
func selectRows[T any](ctx context.Context, d *database, table, job, where, tail string) ([]T, error) {
	var one T
	columns, into := destinations(&one)
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = ddl.Quote(c)
	}

	setJob(&one, job)
	var rows []T
	nodes := interner{}
	err := query(ctx, d, selection(quoted, table, job, where, tail), func(r driver.Rows) error {
		if err := r.Scan(into...); err != nil {
			return err
		}

		nodes.strings(&one)
		rows = append(rows, one)
		if r, ok := any(&one).(*row.Rank); ok {
			r.Groups, r.GroupRanks, r.Off = nil, nil, nil // the row appended owns them now
		}

		return nil
	})
	return rows, err
}

// destinations returns the columns of a row but the job, and pointers to the
// fields of the one row that they are scanned into.
func destinations(one any) (columns []string, into []any) {
	v := reflect.ValueOf(one).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("col"); name != "job" {
			columns = append(columns, name)
			into = append(into, v.Field(i).Addr().Interface())
		}
	}

	return columns, into
}

func setJob(one any, job string) {
	reflect.ValueOf(one).Elem().FieldByName("Job").SetString(job)
}

// interner keeps one copy of each of the few words (nodes, groups, ops) that
// millions of rows repeat.
type interner map[string]string

func (in interner) intern(s string) string {
	if kept, ok := in[s]; ok {
		return kept
	}

	in[s] = s
	return s
}

func (in interner) strings(one any) {
	switch r := one.(type) {
	case *row.Step:
		r.Node = in.intern(r.Node)
	case *row.Communication:
		r.Node, r.Group, r.Dim, r.Op = in.intern(r.Node), in.intern(r.Group), in.intern(r.Dim), in.intern(r.Op)
	}
}
