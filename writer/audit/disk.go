package audit

import (
	"context"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// bounds is how many rows must be in the store, and how many may be: what is open
// at the end of the files is in flight.
type bounds struct{ least, most uint64 }

// disk is what the files of one rank say that the store must have.
type disk struct {
	names   map[uint64]string // of the segments on disk, by id
	aged    map[uint64]bool   // those that the ledger holds as lost
	records map[ship.SegmentKind]bounds
	steps   map[ship.Process]bounds
	windows map[ship.Process]bounds
	calls   bounds
	lost    map[string]uint64 // as loss lines say, and lines whose time can't be right, by reason
	damaged []string          // segments that can't be read to their end, with the cause
	live    bool              // a process ships it now: what is missing is on its way
	open    intake.Open
	held    uint64 // calls that the follower has read and that may not be stored
}

// readDisk rolls the files of a rank up, as shipping does, and counts. open is what a
// follower has read and not stored.
func readDisk(ctx context.Context, dir segment.RankDir, open intake.Open, aged func(name string) bool) (*disk, error) {
	d := &disk{
		names: map[uint64]string{}, aged: map[uint64]bool{}, records: map[ship.SegmentKind]bounds{},
		steps: map[ship.Process]bounds{}, windows: map[ship.Process]bounds{},
		live: tail.Leased(dir.Path), open: open, held: open.Calls,
	}
	begin := func(id record.ID, name string) bool {
		name = segment.Plain(name)
		d.names[uint64(id)] = name
		if aged(name) {
			d.aged[uint64(id)] = true
			return false
		}

		return true
	}

	s := rollup.New(rollup.Options{Job: dir.Job, Rank: dir.Rank, Records: rollup.All, Groups: topology.NewGroupFile(dir.Path).Groups})
	err := s.Feed(dir, begin, func() error {
		d.take(s, true)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}

	d.take(s, true)
	s.End()
	d.take(s, false)
	c := s.Counts()
	d.lost, d.damaged = c.Lost, c.Damaged // shipping skips what is damaged, too
	return d, nil
}

// take counts the rows that are finished; closed tells that the store must have
// them, not only may.
func (d *disk) take(s *rollup.Stream, closed bool) {
	var rows row.Rows
	s.Take(&rows)
	for i := range rows.Raws.Rows {
		r := &rows.Raws.Rows[i]
		kind := rows.Raws.Words[r.Kind]
		grow(d.records, ship.SegmentKind{Rank: r.Rank, Segment: r.Segment, Kind: kind}, 1, closed)
		if kind == communication && d.waits(r) {
			d.held++
		}
	}

	for i := range rows.Steps {
		r := &rows.Steps[i]
		grow(d.steps, ship.Process{Rank: r.Rank, Incarnation: r.Incarnation}, 1, closed)
	}

	for i := range rows.Communications {
		r := &rows.Communications[i]
		grow(d.windows, ship.Process{Rank: r.Rank, Incarnation: r.Incarnation}, 1, closed)
		d.calls.most += uint64(r.Calls)
		if closed {
			d.calls.least += uint64(r.Calls)
		}
	}
}

// waits reports whether a record lies between where the follower's restart would read
// and how far it has read.
func (d *disk) waits(r *row.Raw) bool {
	name := d.names[r.Segment]
	return !before(name, int64(r.Offset), d.open.From) && before(name, int64(r.Offset), d.open.Until)
}

func before(name string, offset int64, p rollup.Position) bool {
	if name == p.Segment {
		return offset < p.Offset
	}

	at, _ := segment.Number(name)
	limit, _ := segment.Number(p.Segment)
	return at < limit
}

func grow[K comparable](m map[K]bounds, k K, n uint64, closed bool) {
	b := m[k]
	b.most += n
	if closed {
		b.least += n
	}

	m[k] = b
}
