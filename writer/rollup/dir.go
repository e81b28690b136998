package rollup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// takeEvery is how many bytes of lines Dir reads between two calls of take.
const takeEvery = 4 << 20

// Dir reads the segments of one rank directory as they are, from the oldest to the
// newest, and gives out the finished rows in portions; the last one comes after
// End. It is the whole of what an `analyze` or `ingest` of files does to a rank.
//
// Job and Rank of o default to the directory's; without Groups those of a
// parallel_group.json in it are taken. take gets the same Rows again
// each time and must not keep it. The error names the segment that could not be read;
// what was read before it has been given out.
func Dir(ctx context.Context, dir segment.RankDir, o Options, take func(*row.Rows) error) (Counts, error) {
	if o.Job == "" {
		o.Job = dir.Job
	}

	o.Rank = dir.Rank
	if o.Groups == nil {
		o.Groups = topology.NewGroupFile(dir.Path).Groups
	}

	s := New(o)
	infos, err := segment.List(dir.Path)
	if err != nil {
		return s.Counts(), err
	}

	d := feeder{ctx: ctx, stream: s, take: take}
	for _, info := range infos {
		if err := d.segment(dir, info.Name); err != nil {
			return d.counts(), err
		}
	}

	s.End()
	return d.counts(), d.give()
}

// feeder feeds a stream from files.
type feeder struct {
	ctx    context.Context
	stream *Stream
	take   func(*row.Rows) error
	rows   row.Rows
	read   int64 // bytes since the last give

	damaged []string // see Counts
}

func (d *feeder) counts() Counts {
	c := d.stream.Counts()
	c.Damaged = d.damaged
	return c
}

// segment reads one segment to its end. Rows are handed on while it reads, so that memory doesn't
// grow with its size. A torn last line and damaged blocks are counted and are no error.
func (d *feeder) segment(dir segment.RankDir, name string) (err error) {
	path := filepath.Join(dir.Path, name)
	r, err := segment.OpenReader(path)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, r.Close()) }()
	first := true
	for {
		line, offset, err := r.Next()
		if errors.Is(err, io.EOF) {
			d.stream.Torn(r.Torn())
			if damage := r.Damage(); damage != nil {
				d.damaged = append(d.damaged, damage.Error())
			}

			return nil
		}

		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}

		if first {
			d.stream.Segment(segment.Identity(dir.Job, dir.Rank, name, line), name)
			first = false
		}

		d.stream.Line(offset, line)
		if d.read += int64(len(line)); d.read >= takeEvery {
			if err := d.give(); err != nil {
				return err
			}
		}
	}
}

// give hands the finished rows on.
func (d *feeder) give() error {
	d.read = 0
	if err := d.ctx.Err(); err != nil {
		return err
	}

	r := &d.rows
	r.Ranks, r.Steps, r.Communications, r.Raws.Rows = r.Ranks[:0], r.Steps[:0], r.Communications[:0], r.Raws.Rows[:0]
	d.stream.Take(r)
	if r.Len() == 0 {
		return nil
	}

	return d.take(r)
}
