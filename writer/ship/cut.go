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
func orderOfVerdict(r *row.Verdict) order { return order{r.Job, partition(r.AtNs)} }
func orderOfLedger(r *row.Ledger) order   { return order{r.Job, partition(r.AtNs)} }

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
	all := cutTable(u, parts, limit, row.RanksTable, func(r *row.Rows) *[]row.Rank { return &r.Ranks }, alikeBy(orderOfRank))
	all = append(all, cutTable(u, parts, limit, row.StepsTable, func(r *row.Rows) *[]row.Step { return &r.Steps }, alikeBy(orderOfStep))...)
	all = append(all, cutTable(u, parts, limit, row.CommunicationsTable,
		func(r *row.Rows) *[]row.Communication { return &r.Communications }, alikeBy(orderOfCommunication))...)
	all = append(all, u.cutRaws(parts, limit)...)
	all = append(all, cutTable(u, parts, limit, row.VerdictsTable, func(r *row.Rows) *[]row.Verdict { return &r.Verdicts }, alikeBy(orderOfVerdict))...)
	return append(all, cutTable(u, parts, limit, row.LedgerTable, func(r *row.Rows) *[]row.Ledger { return &r.Ledger }, alikeBy(orderOfLedger))...)
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

// alikeBy is alike for other rows.
func alikeBy[T any](of func(*T) order) func([]T) (order, int) {
	return func(rows []T) (order, int) {
		first, n := of(&rows[0]), 1
		for n < len(rows) && of(&rows[n]) == first {
			n++
		}

		return first, n
	}
}

// cutTable sorts the rows of one table by job and partition, stretch by stretch, and cuts each
// partition at limit rows. rows is where those of the table lie, alike tells how many of rows,
// from the first on, are of one order.
func cutTable[T any](u *buffers, parts []part, limit int, table string, rows func(*row.Rows) *[]T, alike func([]T) (order, int)) []*Batch {
	type stretch struct { // rows of one stream that follow each other and go into one partition
		at   order
		rows []T
		run
	}
	var all []stretch
	total := 0
	for _, p := range parts {
		for rest := *rows(p.rows); len(rest) > 0; {
			at, n := alike(rest)
			back := p.stream.look(table).pass(at)
			all = append(all, stretch{at, rest[:n:n], run{p.stream, n, back}})
			rest, total = rest[n:], total+n
		}
	}

	slices.SortStableFunc(all, func(a, b stretch) int { return a.at.compare(b.at) })
	var sorted []T
	if len(all) == 1 { // inserted where they lie
		sorted = all[0].rows
	} else {
		space := rows(&u.Rows)
		sorted = slices.Grow((*space)[:0], total)
		for _, s := range all {
			sorted = append(sorted, s.rows...)
		}

		*space = sorted
	}

	var batches []*Batch
	for len(all) > 0 {
		at, n := all[0].at, 0
		var runs []run
		for ; len(all) > 0 && all[0].at == at; all = all[1:] {
			runs = append(runs, all[0].run)
			n += all[0].n
		}

		for len(runs) > 0 {
			b := &Batch{Table: table, Job: at.job, Day: at.day}
			take := n
			if leaves(n, limit) {
				take = limit
			}

			b.runs, runs = cutRuns(runs, take)
			*rows(&b.Rows) = sorted[:take:take]
			sorted, n = sorted[take:], n-take
			b.seal()
			batches = append(batches, b)
		}
	}

	return batches
}

// cutRuns cuts runs behind their first n rows.
func cutRuns(runs []run, n int) (first, rest []run) {
	for i, r := range runs {
		if r.n > n {
			first = append(first, run{r.stream, n, r.back})
			runs[i].n -= n
			return first, runs[i:]
		}

		if first = append(first, r); r.n == n {
			return first, runs[i+1:]
		}

		n -= r.n
	}

	return first, nil
}

// look is what is known of the stream in a table.
func (st *Stream) look(table string) *look {
	l := st.looks[table]
	if l == nil {
		l = &look{}
		st.looks[table] = l
	}

	return l
}

// Cut returns rows as the batches that a shipper would insert, in its order.
func Cut(rows *row.Rows) []*Batch {
	return new(buffers).cut([]part{{stream: NewStream(""), rows: rows}}, DefaultBatchRows)
}
