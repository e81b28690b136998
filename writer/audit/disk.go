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

// disk is what the files of one rank say that the store must have. The zero value is that of a
// rank without a directory.
type disk struct {
	names   map[uint64]string // of the segments on disk, by id; nil without a directory
	aged    map[uint64]bool   // those that the ledger holds as lost
	rows    map[ship.Place]bounds
	calls   bounds
	lost    []record.Loss
	damaged []string // segments that can't be read to their end, with the cause
	live    bool     // a process ships it now: what is missing is on its way
	open    intake.Open
	held    uint64 // calls that the follower has read and that may not be stored
}

// readDisk rolls the files of a rank up, as shipping does, and counts. open is what a
// follower has read and not stored. All raw ranges are asked for, whatever was stored: which kinds
// the store has as rows is asked afterwards.
func readDisk(ctx context.Context, dir segment.RankDir, open intake.Open, aged func(name string) bool) (disk, error) {
	d := disk{
		names: map[uint64]string{}, aged: map[uint64]bool{}, rows: map[ship.Place]bounds{},
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

	s := rollup.New(rollup.Options{Job: dir.Job, Rank: dir.Rank, Records: rollup.All, Groups: topology.GroupsOf(dir.Path)})
	err := s.Feed(dir, begin, func() error {
		d.take(s, true)
		return ctx.Err()
	})
	if err != nil {
		return d, err
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
		d.grow(ship.Place{Table: row.RecordsTable, Rank: r.Rank, Of: r.Segment, Kind: kind}, closed)
		if kind == communication && d.waits(r) {
			d.held++
		}
	}

	for i := range rows.Steps {
		r := &rows.Steps[i]
		d.grow(ship.Place{Table: row.StepsTable, Rank: r.Rank, Of: r.Incarnation}, closed)
	}

	for i := range rows.Communications {
		r := &rows.Communications[i]
		d.grow(ship.Place{Table: row.CommunicationsTable, Rank: r.Rank, Of: r.Incarnation}, closed)
		d.calls.most += uint64(r.Calls)
		if closed {
			d.calls.least += uint64(r.Calls)
		}
	}
}

// waits reports whether a record lies between where the follower's restart would read
// and how far it has read.
func (d *disk) waits(r *row.Raw) bool {
	at := segment.Position{Segment: d.names[r.Segment], Offset: int64(r.Offset)}
	return !at.Before(d.open.From) && at.Before(d.open.Until)
}

// grow counts one more row of a place.
func (d *disk) grow(p ship.Place, closed bool) {
	b := d.rows[p]
	b.most++
	if closed {
		b.least++
	}

	d.rows[p] = b
}
