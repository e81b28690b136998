package ship

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Batch is what one Insert stores: rows of one table, one job and one partition
// (day). Exactly the slice of its table is filled.
type Batch struct {
	Table string
	Job   string
	Day   int64 // whole days since the Unix epoch of the table's start column; 0 for ranks
	// ID is a hash of the table and the identities and times of the rows, whatever
	// their order: the same rows have the same id, whoever makes the batch.
	ID record.ID
	// Query is the id that the store knows the insert by. Rows that are sent again
	// after a doubt keep the Query of the batch they came from.
	Query string
	// Unplaced: it is not known how much the store has of some rows' streams, so another
	// process may have sent these rows before. Sent: this process has.
	Unplaced, Sent bool

	row.Rows

	streams []*Stream // of which rows are in it, or in another batch of its round and partition
	// back: a row of a stream's earlier past (a partition before one it already had) is among
	// them, so the prefix rule does not hold for them.
	back bool

	spans []span // of all rows, in their order
}

// span is a run of rows of one process and, of raw ranges, of one segment.
type span struct {
	rank                 uint32
	incarnation, segment record.ID
	rows, first, last    uint64 // the lowest and the highest offset of raw ranges, else 0
	startNs              int64  // of the first row
}

// seal sets ID, Query and spans.
func (b *Batch) seal() {
	var sum uint64
	b.spans = nil
	for i := range b.Len() {
		sum += b.sum(i)
		o := b.Origin(i)
		b.span(&o)
	}

	b.ID = record.ID(uint64(newHash(b.Table)) + sum)
	b.Query = fmt.Sprintf("%s%s-%s-%s-%s", QueryPrefix, record.HashID(b.Job), b.Table, formatRanks(b.ranks()), b.ID)
}

// span adds a row to the last span, or begins one with it.
func (b *Batch) span(o *Origin) {
	at := o.At
	if b.Table != row.RecordsTable {
		at = 0
	}

	if n := len(b.spans); n > 0 {
		s := &b.spans[n-1]
		if s.rank == o.Rank && s.incarnation == record.ID(o.Incarnation) && s.segment == record.ID(o.Segment) {
			s.rows, s.first, s.last = s.rows+1, min(s.first, at), max(s.last, at)
			return
		}
	}

	b.spans = append(b.spans, span{o.Rank, record.ID(o.Incarnation), record.ID(o.Segment), 1, at, at, o.StartNs})
}

// slice returns rows [i, j) as a batch of its own.
func (b *Batch) slice(i, j int) *Batch {
	s := b.only(func(k int) bool { return i <= k && k < j })
	s.seal()
	return s
}

// missing returns the rows that are not in stored.
func (b *Batch) missing(stored []bool) *Batch {
	if !slices.Contains(stored, true) {
		return b
	}

	return b.only(func(i int) bool { return !stored[i] })
}

// only returns the rows that are wanted, under the Query of b.
func (b *Batch) only(wanted func(i int) bool) *Batch {
	s := &Batch{Table: b.Table, Job: b.Job, Day: b.Day, Unplaced: b.Unplaced, Sent: b.Sent}
	s.Ranks = those(b.Ranks, wanted)
	s.Steps = those(b.Steps, wanted)
	s.Communications = those(b.Communications, wanted)
	s.Raws = row.Raws{Rows: those(b.Raws.Rows, wanted), Words: b.Raws.Words}
	s.Verdicts = those(b.Verdicts, wanted)
	s.Ledger = those(b.Ledger, wanted)
	s.seal()
	s.Query = b.Query
	return s
}

// those returns the rows that are wanted.
func those[T any](rows []T, wanted func(i int) bool) []T {
	var kept []T
	for i := range rows {
		if wanted(i) {
			kept = append(kept, rows[i])
		}
	}

	return kept
}

// rowJSON returns row i as a JSON object with the columns' names.
func (b *Batch) rowJSON(i int) []byte {
	object := map[string]any{}
	for _, c := range LayoutOf(b.Table).Columns {
		object[c.Name] = b.Value(c, i)
	}

	return marshal(object)
}

// rawBytes is the size of a raw row.
const rawBytes = int64(unsafe.Sizeof(row.Raw{}))

// size estimates the memory that rows take, in bytes. Most of their strings are
// shared (the parser interns them), so only those that raw rows bring count.
func size(r *row.Rows) int64 {
	n := int64(len(r.Steps))*240 + int64(len(r.Communications))*184 + int64(len(r.Raws.Rows))*rawBytes + int64(r.Raws.Bytes) + int64(len(r.Ledger))*200
	for i := range r.Ranks {
		n += 256 + 64*int64(len(r.Ranks[i].Groups)+len(r.Ranks[i].Off))
		for _, g := range r.Ranks[i].GroupRanks {
			n += 24 + 4*int64(len(g))
		}
	}

	return n
}

// QueryPrefix begins the query_id of every insert of laggard's.
const QueryPrefix = "laggard-"

// Origin is whose a row is, and where it has its place among theirs.
type Origin struct {
	Job                  string
	Rank                 uint32
	Incarnation, Segment uint64 // Segment is that of a raw range or of an entry of the account
	At                   uint64 // step, first step or offset
	StartNs              int64
}

// Origin returns whose row i is.
func (b *Batch) Origin(i int) Origin {
	switch b.Table {
	case row.RanksTable:
		r := &b.Ranks[i]
		return Origin{Job: r.Job, Rank: r.Rank, Incarnation: r.Incarnation, StartNs: r.StartedNs}
	case row.StepsTable:
		r := &b.Steps[i]
		return Origin{Job: r.Job, Rank: r.Rank, Incarnation: r.Incarnation, At: r.Step, StartNs: r.StartNs}
	case row.CommunicationsTable:
		r := &b.Communications[i]
		return Origin{Job: r.Job, Rank: r.Rank, Incarnation: r.Incarnation, At: r.StepFrom, StartNs: r.StartNs}
	case row.RecordsTable:
		r := &b.Raws.Rows[i]
		return Origin{Job: b.Raws.Words[r.Job], Rank: r.Rank, Incarnation: r.Incarnation, Segment: r.Segment, At: r.Offset, StartNs: r.StartNs}
	case row.LedgerTable:
		r := &b.Ledger[i]
		return Origin{Job: r.Job, Rank: r.Rank, Incarnation: uint64(r.Incarnation), Segment: uint64(r.Segment), StartNs: r.AtNs}
	}

	r := &b.Verdicts[i]
	return Origin{Job: r.Job, At: r.Step, StartNs: r.AtNs}
}

// ranks returns the ranks that have rows in the batch, sorted. A batch without ranks
// (verdicts) has none.
func (b *Batch) ranks() []uint32 {
	var ranks []uint32
	if b.Table != row.VerdictsTable {
		for i := range b.spans {
			ranks = append(ranks, b.spans[i].rank)
		}
	}

	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// maxSpans bounds the length of a query_id; more runs of ranks read as "all".
const maxSpans = 8

// formatRanks writes sorted ranks as runs, both ends inclusive: "0_7.9_9". No run has a
// dash, at which a query_id is split.
func formatRanks(ranks []uint32) string {
	var runs []string
	for len(ranks) > 0 && len(runs) <= maxSpans {
		n := 1
		for n < len(ranks) && ranks[n-1]+1 == ranks[n] {
			n++
		}

		runs = append(runs, fmt.Sprintf("%d_%d", ranks[0], ranks[n-1]))
		ranks = ranks[n:]
	}

	if len(runs) == 0 || len(runs) > maxSpans {
		return "all"
	}

	return strings.Join(runs, ".")
}

// Conflicts reports whether the insert with this query_id may hold rows of b:
// the same job and table, and a rank in common.
func (b *Batch) Conflicts(query string) bool {
	parts := strings.Split(strings.TrimPrefix(query, QueryPrefix), "-")
	if !strings.HasPrefix(query, QueryPrefix) || len(parts) != 4 {
		return false
	}

	if parts[0] != record.HashID(b.Job).String() || parts[1] != b.Table {
		return false
	}

	ranks := b.ranks()
	if parts[2] == "all" || len(ranks) == 0 {
		return true
	}

	for _, text := range strings.Split(parts[2], ".") {
		var first, last uint32
		if _, err := fmt.Sscanf(text, "%d_%d", &first, &last); err != nil {
			return true
		}

		if i, _ := slices.BinarySearch(ranks, first); i < len(ranks) && ranks[i] <= last {
			return true
		}
	}

	return false
}
