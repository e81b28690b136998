package rollup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// takeEvery is how many bytes of lines are read between two calls of take.
const takeEvery = 4 << 20

// Dir reads the segments of one rank directory as they are, from the oldest to the
// newest, and gives out the finished rows in parts; the last one comes after
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
		o.Groups = topology.GroupsOf(dir.Path)
	}

	s := New(o)
	var rows row.Rows
	give := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}

		rows.Ranks, rows.Steps, rows.Communications, rows.Raws.Rows = rows.Ranks[:0], rows.Steps[:0], rows.Communications[:0], rows.Raws.Rows[:0]
		if s.Take(&rows); rows.Len() == 0 {
			return nil
		}

		return take(&rows)
	}

	err := s.Feed(dir, nil, give)
	if err == nil {
		s.End()
		err = give()
	}

	return s.Counts(), err
}

// Feed gives the stream the segments of a rank directory as they are, from the oldest to
// the newest. begin, which may be nil, is told of each before its first line; where it
// returns false the segment is left out. take is called while segments are read, so that
// memory doesn't grow with their size. A torn last line and damaged blocks are counted
// and are no error.
func (s *Stream) Feed(dir segment.RankDir, begin func(id record.ID, name string) bool, take func() error) error {
	infos, err := segment.List(dir.Path)
	if err != nil {
		return err
	}

	left := takeEvery
	next := func(n int) error {
		if left -= n; left > 0 {
			return nil
		}

		left = takeEvery
		return take()
	}

	for _, info := range infos {
		if err := s.feed(dir, info.Name, begin, next); err != nil {
			return err
		}
	}

	return nil
}

// feed reads one segment to its end. next is told the bytes of each line.
func (s *Stream) feed(dir segment.RankDir, name string, begin func(record.ID, string) bool, next func(int) error) (err error) {
	path := filepath.Join(dir.Path, name)
	r, err := segment.OpenReader(path)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, r.Close()) }()
	for first := true; ; first = false {
		line, offset, err := r.Next()
		if errors.Is(err, io.EOF) {
			s.Torn(r.Torn())
			if damage := r.Damage(); damage != nil {
				s.counts.Damaged = append(s.counts.Damaged, damage.Error())
			}

			return nil
		}

		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}

		// What a segment is known by is made of its first line.
		if first {
			id := segment.Identity(dir.Job, dir.Rank, name, line)
			if begin != nil && !begin(id, name) {
				return nil
			}

			s.Segment(id, name)
		}

		s.Line(offset, line)
		// Of the lines that nobody understands one is quoted: it mostly says what wrote them.
		if c := s.counts; c.Odd == "" && c.Unknown+c.Garbage > 0 {
			c.Odd = fmt.Sprintf("%s:%d %q", path, offset, line[:min(len(line), 60)])
		}

		if err := next(len(line)); err != nil {
			return err
		}
	}
}
