package source

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// rangeRows is about how many rows one query brings: small enough to hold a few
// of them, large enough that the round trip does not count.
const rangeRows = 64 << 10

// Load implements Source: the ranks, then the other tables by ranges of ranks,
// which are ranges of the tables' primary key.
func (d *database) Load(ctx context.Context, job string, b Builder, o Options) (Info, error) {
	job, err := Pick(ctx, d, d.at.String(), job)
	if err != nil {
		return Info{}, err
	}

	info := Info{Job: job}
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
	info.Steps, err = eachRange(ctx, d, keyedSteps, job, steps, o.workers(), b.AddStep, func(i int) { o.progress(i, total) })
	if err != nil {
		return info, err
	}

	info.Communications, err = eachRange(ctx, d, keyedCommunications, job, communications, o.workers(), b.AddCommunication,
		func(i int) { o.progress(len(steps)+i, total) })
	return info, err
}

// ranks reads the table of ranks, the highest version of each incarnation.
func (d *database) ranks(ctx context.Context, job string) ([]row.Rank, error) {
	// A large job's rows are kilobytes of ranks each: of so many comes a block.
	const tail = "SETTINGS max_block_size = 1024"
	ranks, err := selectColumns(ctx, d, columnsOf[row.Rank](members{}), row.RanksTable, job, "", tail, nil)
	return newestRanks(ranks), err
}

// keyed is a table that is read by ranges of ranks.
type keyed[T any] struct {
	table   string
	columns []column[T]
	compare func(a, b *T) int // by the key
}

var (
	keyedSteps          = keyed[row.Step]{row.StepsTable, stepColumns, compareSteps}
	keyedCommunications = keyed[row.Communication]{row.CommunicationsTable, communicationColumns, compareCommunications}
)

// eachRange reads ranges of a table in parallel and hands their rows to use, each once, in the
// order of their keys. It returns how many they were; done is called with the number of ranges
// that were read. The server neither sorts nor looks for doubles (LIMIT 1 BY): that was two
// fifths of its work.
func eachRange[T any](ctx context.Context, d *database, t keyed[T], job string, ranges []rankRange, workers int, use func(*T), done func(int)) (count int, err error) {
	type answer struct {
		rows  []T
		order []int32
	}
	var buffers sync.Pool // of *[]T: rows are copied by the Builder, so they serve again
	err = inOrder(ctx, len(ranges), workers, func(ctx context.Context, i int) (a answer, err error) {
		var buffer []T
		if b, ok := buffers.Get().(*[]T); ok {
			buffer = *b
		}

		buffer = slices.Grow(buffer[:0], int(ranges[i].rows))
		if a.rows, err = selectColumns(ctx, d, t.columns, t.table, job, ranges[i].where(), "", buffer); err == nil {
			a.order = byKey(a.rows, t.compare)
		}

		return a, err
	}, func(i int, a answer) error {
		for _, k := range a.order {
			use(&a.rows[k])
		}

		count += len(a.order)
		buffers.Put(&a.rows)
		done(i + 1)
		return nil
	})
	return count, err
}

// rankRange is a closed range of ranks, and how many rows they had when it was made.
type rankRange struct {
	from, to uint32
	rows     uint64
}

func (r rankRange) where() string { return fmt.Sprintf("rank BETWEEN %d AND %d", r.from, r.to) }

// ranges cuts the ranks of a job's table into ranges of about rangeRows rows.
func (d *database) ranges(ctx context.Context, table, job string) ([]rankRange, error) {
	var all []rankRange
	q := "SELECT rank, count() FROM " + table + " WHERE job = " + ddl.Literal(job) + " GROUP BY rank ORDER BY rank"
	err := query(ctx, d, q, func(r driver.Rows) error {
		var rank uint32
		var n uint64
		if err := r.Scan(&rank, &n); err != nil {
			return err
		}

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
	columns, into := destinations(&one)
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = ddl.Quote(c)
	}

	var rows []T
	nodes := interner{}
	err := query(ctx, d, selection(quoted, table, job, where, tail), func(r driver.Rows) error {
		one = *new(T) // its lists are the last row's
		if err := r.Scan(into...); err != nil {
			return err
		}

		nodes.strings(&one)
		rows = append(rows, one)
		return nil
	})
	assignJob(rows, job)
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
