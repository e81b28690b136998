package ship

import (
	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Extent is where the raw rows of one segment in a batch lie.
type Extent struct {
	Rank        uint32
	Incarnation uint64
	Segment     uint64
	Rows        uint64
	First, Last uint64 // offsets, both inclusive
	StartNs     int64  // of the first of the rows
}

// survey looks at packed rows once, for everything that is to be known of them before
// they are stored: their hash, their extents, and whether they are all of the batch's
// job and day. The rows of a batch are more than a core's caches hold.
func (b *Batch) survey() (sum uint64, one bool) {
	b.extents = b.extents[:0]
	rows := b.Raws.Rows
	one = true
	first := rows[0].Job
	from, until := b.Day*clickhouse.DayNs, (b.Day+1)*clickhouse.DayNs
	at := -1
	for i := range rows {
		r := &rows[i]
		var h hash
		h.record(r.Segment, r.Offset, r.StartNs, r.DurNs)
		sum += uint64(h)
		one = one && r.Job == first && (r.StartNs >= from && r.StartNs < until || partition(r.StartNs) == b.Day)
		if at < 0 || !b.extents[at].holds(r) {
			at = b.extent(r)
		}
		e := &b.extents[at]
		e.Rows++
		e.First, e.Last = min(e.First, r.Offset), max(e.Last, r.Offset)
	}
	return sum, one
}

func (e *Extent) holds(r *row.Raw) bool {
	return e.Segment == r.Segment && e.Incarnation == r.Incarnation && e.Rank == r.Rank
}

// extent returns the place of the extent that r belongs to.
func (b *Batch) extent(r *row.Raw) int {
	for i := len(b.extents) - 1; i >= 0; i-- {
		if b.extents[i].holds(r) {
			return i
		}
	}
	b.extents = append(b.extents, Extent{
		Rank: r.Rank, Incarnation: r.Incarnation, Segment: r.Segment, First: r.Offset, Last: r.Offset, StartNs: r.StartNs,
	})
	return len(b.extents) - 1
}

// Extents returns where the packed rows lie.
func (b *Batch) Extents() []Extent { return b.extents }
