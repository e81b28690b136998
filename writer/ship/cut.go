package ship

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// order is where a row stands in the order of inserts of its table: by job, then
// by partition.
type order struct {
	job string
	day int64
}

func (a order) compare(b order) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.day, b.day))
}

// The orders of the tables' rows. Ranks have one partition.
func orderOfRank(r *row.Rank) order                   { return order{r.Job, 0} }
func orderOfStep(r *row.Step) order                   { return order{r.Job, partition(r.StartNs)} }
func orderOfCommunication(r *row.Communication) order { return order{r.Job, partition(r.StartNs)} }
func orderOfRaw(r *row.Raws, i int) order {
	return order{r.Words[r.Rows[i].Job], partition(r.Rows[i].StartNs)}
}
func orderOfLedger(r *row.Ledger) order { return order{r.Job, partition(r.AtNs)} }

// look is what is known of one stream in one table.
type look struct {
	done bool  // a round found nothing of the stream in the store: it is past what was there
	last order // the furthest row so far
	some bool  // last is set
	// Of the round under way: rows were looked for, and some were there.
	asked, had bool
}

// pass notes that rows at o come now, and reports whether the stream was past them.
func (l *look) pass(o order) (back bool) {
	back = l.some && o.compare(l.last) < 0
	if !back {
		l.last, l.some = o, true
	}

	return back
}

// settle ends a round: a stream of which nothing was there is past what the store
// had. It is decided by rounds, not by batches, because a round stores later rows
// of an earlier partition before earlier rows of a later one.
func settle(parts []part) {
	for _, p := range parts {
		for _, l := range p.stream.looks {
			l.done = l.done || l.asked && !l.had
			l.asked, l.had = false, false
		}
	}
}

// run is a run of rows of one stream in a batch.
type run struct {
	stream *Stream
	n      int
	// back: a row of the stream's earlier past (a partition before one it already
	// had) is among them, so the prefix rule does not hold for them.
	back bool
}

// buffers hold the rows of a round's batches; the next round uses them again.
type buffers struct {
	row.Rows
	words row.Words // of Raws
}

// release drops the references that the last round's rows left behind.
func (u *buffers) release() {
	clear(u.Ranks[:cap(u.Ranks)])
	clear(u.Steps[:cap(u.Steps)])
	clear(u.Communications[:cap(u.Communications)])
	clear(u.Ledger[:cap(u.Ledger)])
	if u.words.Full() {
		u.words = row.Words{}
	}
}

// cut makes batches of what was put: each of one table, one job and one
// partition, at most limit rows, in the order in which they must be stored. The
// rows of a stream keep their order within a partition. The batches lie in u, or
// where one part that is a batch by itself lies.
func (u *buffers) cut(parts []part, limit int) []*Batch {
	all := cutTable(u, parts, limit, row.RanksTable, func(r *row.Rows) *[]row.Rank { return &r.Ranks }, each(orderOfRank))
	all = append(all, cutTable(u, parts, limit, row.StepsTable, func(r *row.Rows) *[]row.Step { return &r.Steps }, each(orderOfStep))...)
	all = append(all, cutTable(u, parts, limit, row.CommunicationsTable,
		func(r *row.Rows) *[]row.Communication { return &r.Communications }, each(orderOfCommunication))...)
	all = append(all, u.cutRaws(parts, limit)...)
	return append(all, cutTable(u, parts, limit, row.LedgerTable, func(r *row.Rows) *[]row.Ledger { return &r.Ledger }, each(orderOfLedger))...)
}

// cutRaws is cutTable for raw rows. Those of several parts get one list of words.
func (u *buffers) cutRaws(parts []part, limit int) []*Batch {
	var with []*row.Raws
	for i := range parts {
		if raws := &parts[i].rows.Raws; len(raws.Rows) > 0 {
			with = append(with, raws)
		}
	}

	if len(with) == 0 {
		return nil
	}

	words := with[0].Words
	if len(with) > 1 {
		for _, raws := range with {
			u.words.Renumber(raws)
		}

		words = u.words.List()
	}

	batches := cutTable(u, parts, limit, row.RecordsTable, func(r *row.Rows) *[]row.Raw { return &r.Raws.Rows },
		func(rows []row.Raw) (order, int) {
			return orderOfRaw(&row.Raws{Rows: rows, Words: words}, 0), alike(rows)
		})
	for _, b := range batches {
		b.Raws.Words = words
	}

	return batches
}

// leaves reports whether of n rows, cut at limit, some are left: a small rest is not
// worth a part of its own.
func leaves(n, limit int) bool {
	rest := n - limit
	return rest >= limit/8 || n > maxBlockRows
}

// alike returns how many of raw rows, from the first on, are of its job and partition.
func alike(rows []row.Raw) int {
	first := &rows[0]
	from := partition(first.StartNs) * clickhouse.DayNs
	until := from + clickhouse.DayNs
	if first.StartNs < from || first.StartNs >= until { // before 1970 partitions are rounded the other way
		return 1
	}

	for i := range rows {
		if r := &rows[i]; r.Job != first.Job || r.StartNs < from || r.StartNs >= until {
			return i
		}
	}

	return len(rows)
}

// each is the stretch of one row, for tables of few rows.
func each[T any](of func(*T) order) func([]T) (order, int) {
	return func(rows []T) (order, int) { return of(&rows[0]), 1 }
}

// cutTable sorts the rows of one table into groups (job and partition): counted
// first, so that each group gets its place in u and each row is copied once. rows is where
// those of the table lie, of tells how many of rows, from the first on, are of one order.
func cutTable[T any](u *buffers, parts []part, limit int, table string, rows func(*row.Rows) *[]T, of func([]T) (order, int)) []*Batch {
	total, whole := 0, 0
	for i, p := range parts {
		if n := len(*rows(p.rows)); n > 0 {
			total, whole = total+n, i
		}
	}

	if total == 0 {
		return nil
	}

	groups := map[order]*group[T]{}
	var last *group[T]
	next := func(rows []T) (*group[T], int) {
		o, n := of(rows)
		if last == nil || last.at.day != o.day || last.at.job != o.job {
			if last = groups[o]; last == nil {
				last = &group[T]{at: o}
				groups[o] = last
			}
		}

		return last, n
	}
	for _, p := range parts {
		for all := *rows(p.rows); len(all) > 0; {
			g, n := next(all)
			g.count += n
			all = all[n:]
		}
	}

	sorted := make([]*group[T], 0, len(groups))
	for _, g := range groups {
		sorted = append(sorted, g)
	}

	slices.SortFunc(sorted, func(a, b *group[T]) int { return a.at.compare(b.at) })
	if all := *rows(parts[whole].rows); len(all) == total && len(sorted) == 1 {
		return sorted[0].whole(all, table, parts[whole].stream).batches(table, limit, rows)
	}

	buf := rows(&u.Rows)
	space := slices.Grow((*buf)[:0], total)[:total]
	*buf = space
	for _, g := range sorted {
		g.rows, space = space[:0:g.count], space[g.count:]
	}

	for _, p := range parts {
		all := *rows(p.rows)
		if len(all) == 0 {
			continue
		}

		l := p.stream.look(table)
		for len(all) > 0 {
			g, n := next(all)
			g.add(all[:n], p.stream, l.pass(g.at))
			all = all[n:]
		}
	}

	var batches []*Batch
	for _, g := range sorted {
		batches = append(batches, g.batches(table, limit, rows)...)
	}

	return batches
}

func (st *Stream) look(table string) *look {
	l := st.looks[table]
	if l == nil {
		l = &look{}
		st.looks[table] = l
	}

	return l
}

// group is the rows of one partition.
type group[T any] struct {
	at    order
	count int
	rows  []T
	runs  []run
}

func (g *group[T]) add(rows []T, st *Stream, back bool) {
	g.rows = append(g.rows, rows...)
	if n := len(g.runs); n == 0 || g.runs[n-1].stream != st {
		g.runs = append(g.runs, run{stream: st})
	}

	last := &g.runs[len(g.runs)-1]
	last.n += len(rows)
	last.back = last.back || back
}

// whole makes the group all rows of one part, where they lie.
func (g *group[T]) whole(rows []T, table string, st *Stream) *group[T] {
	g.rows, g.runs = rows, []run{{stream: st, n: len(rows), back: st.look(table).pass(g.at)}}
	return g
}

// batches cuts the group at limit rows.
func (g *group[T]) batches(table string, limit int, of func(*row.Rows) *[]T) []*Batch {
	var all []*Batch
	rows, runs := g.rows, g.runs
	for len(rows) > 0 {
		n := min(limit, len(rows))
		if !leaves(len(rows), limit) {
			n = len(rows)
		}

		b := &Batch{Table: table, Job: g.at.job, Day: g.at.day}
		*of(&b.Rows) = rows[:n:n]
		rows = rows[n:]
		for left := n; left > 0; {
			take := runs[0]
			take.n = min(take.n, left)
			b.runs = append(b.runs, take)
			left -= take.n
			if runs[0].n -= take.n; runs[0].n == 0 {
				runs = runs[1:]
			}
		}

		b.seal()
		all = append(all, b)
	}

	return all
}

// Cut returns rows as the batches that a shipper would insert, in its order.
func Cut(rows *row.Rows) []*Batch {
	return new(buffers).cut([]part{{stream: NewStream(""), rows: rows}}, DefaultBatchRows)
}
