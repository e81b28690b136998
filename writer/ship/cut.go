package ship

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// compare is the order of inserts into a table: by job, then by partition.
func (b *Batch) compare(o *Batch) int {
	return cmp.Or(cmp.Compare(b.Job, o.Job), cmp.Compare(b.Day, o.Day))
}

// look is what is known of one stream in one table.
type look struct {
	done bool  // a round found nothing of its batches in the store: it is past what was there
	last Batch // the furthest so far: job and day
	some bool  // last is set
	// Of the round under way: rows were looked for, and some were there.
	asked, had bool
}

// pass notes that the rows of b come now, and reports whether the stream was past them.
func (l *look) pass(b *Batch) (back bool) {
	back = l.some && b.compare(&l.last) < 0
	if !back {
		l.last, l.some = Batch{Job: b.Job, Day: b.Day}, true
	}

	return back
}

// settle ends a round: a stream of whose batches nothing was there is past what the store
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

// buffers hold the rows of a round's batches; the next round uses them again.
type buffers struct {
	row.Rows
	words record.Words // of Raws
}

// release drops the references that the last round's rows left behind.
func (u *buffers) release() {
	clear(u.Ranks[:cap(u.Ranks)])
	clear(u.Steps[:cap(u.Steps)])
	clear(u.Communications[:cap(u.Communications)])
	clear(u.Ledger[:cap(u.Ledger)])
	if u.words.Full() {
		u.words = record.Words{}
	}
}

// cut makes batches of what was put: each of one table, one job and one
// partition, at most limit rows, in the order in which they must be stored. The
// rows of a stream keep their order within a partition. The batches lie in u, or
// where one part that is a batch by itself lies.
func (u *buffers) cut(parts []part, limit int) []*Batch {
	words := u.shared(parts)
	all := cutTable(u, parts, limit, row.RanksTable, words, func(r *row.Rows) *[]row.Rank { return &r.Ranks })
	all = append(all, cutTable(u, parts, limit, row.StepsTable, words, func(r *row.Rows) *[]row.Step { return &r.Steps })...)
	all = append(all, cutTable(u, parts, limit, row.CommunicationsTable, words, func(r *row.Rows) *[]row.Communication { return &r.Communications })...)
	all = append(all, cutTable(u, parts, limit, row.RecordsTable, words, func(r *row.Rows) *[]row.Raw { return &r.Raws.Rows })...)
	all = append(all, cutTable(u, parts, limit, row.VerdictsTable, words, func(r *row.Rows) *[]row.Verdict { return &r.Verdicts })...)
	return append(all, cutTable(u, parts, limit, row.LedgerTable, words, func(r *row.Rows) *[]row.Ledger { return &r.Ledger })...)
}

// shared returns the words of the raw rows of all parts: one list, where they are of several.
func (u *buffers) shared(parts []part) []string {
	var with []*row.Raws
	for i := range parts {
		if raws := &parts[i].rows.Raws; len(raws.Rows) > 0 {
			with = append(with, raws)
		}
	}

	if len(with) == 1 {
		return with[0].Words
	}

	for _, raws := range with {
		raws.Renumber(&u.words)
	}

	return u.words.List()
}

// leaves reports whether of n rows, cut at limit, some are left: a small rest is not
// worth a part of its own.
func leaves(n, limit int) bool {
	rest := n - limit
	return rest >= limit/8 || n > maxBlockRows
}

// partition returns the job and the day of row i. Ranks have one partition.
func (b *Batch) partition(i int) (job string, day int64) {
	o := b.Origin(i)
	if b.Table == row.RanksTable {
		return o.Job, 0
	}

	return o.Job, o.StartNs / clickhouse.DayNs // as the tables' DDL computes it
}

// stretches returns a batch for each run of rows of one stream, job and partition, and how many rows
// there are in all.
func stretches[T any](parts []part, table string, words []string, rows func(*row.Rows) *[]T) (all []*Batch, total int) {
	for _, p := range parts {
		left := *rows(p.rows)
		for total += len(left); len(left) > 0; {
			b := &Batch{Table: table, streams: []*Stream{p.stream}}
			b.Raws.Words = words
			*rows(&b.Rows) = left
			b.Job, b.Day = b.partition(0)
			n := 1
			for ; n < len(left); n++ {
				if job, day := b.partition(n); job != b.Job || day != b.Day {
					break
				}
			}

			*rows(&b.Rows), left = left[:n:n], left[n:]
			b.back = p.stream.look(table).pass(b)
			all = append(all, b)
		}
	}

	return all, total
}

// cutTable sorts the rows of one table by job and partition, stretch by stretch, and cuts each
// partition at limit rows. rows is where those of the table lie, words are those of raw rows.
func cutTable[T any](u *buffers, parts []part, limit int, table string, words []string, rows func(*row.Rows) *[]T) []*Batch {
	all, total := stretches(parts, table, words, rows)
	slices.SortStableFunc(all, (*Batch).compare)
	var sorted []T
	if len(all) == 1 { // inserted where they lie
		sorted = *rows(&all[0].Rows)
	} else {
		space := rows(&u.Rows)
		sorted = slices.Grow((*space)[:0], total)
		for _, b := range all {
			sorted = append(sorted, *rows(&b.Rows)...)
		}

		*space = sorted
	}

	var batches []*Batch
	for len(all) > 0 {
		first := *all[0]
		n := first.Len()
		for all = all[1:]; len(all) > 0 && all[0].compare(&first) == 0; all = all[1:] {
			first.streams, first.back = append(first.streams, all[0].streams...), first.back || all[0].back
			n += all[0].Len()
		}

		for n > 0 {
			take := n
			if leaves(n, limit) {
				take = limit
			}

			b := first
			*rows(&b.Rows) = sorted[:take:take]
			sorted, n = sorted[take:], n-take
			b.seal()
			batches = append(batches, &b)
		}
	}

	return batches
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
