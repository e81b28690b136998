package profiles

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// write writes a rank's ranges as segments: the identity, then the ranges in the order of
// their host starts, as a ring of their own. Where the profile marks no step, all of it is one.
func (t *Tree) write(r *rankOutput) error {
	file := r.out.file
	if r.asOneStep() {
		r.out.Note(file.Path, "it marks no step: all of it is taken for one")
	}

	slices.SortStableFunc(r.ranges, func(a, b record.Record) int {
		return cmp.Or(cmp.Compare(a.HostBegin(), b.HostBegin()), cmp.Compare(a.Kind, b.Kind))
	})
	if r.Rank < 0 {
		r.Rank = rankOfName(file.name)
		r.named = r.Rank >= 0
	}

	if r.Rank < 0 {
		r.Rank = r.out.worker
		r.out.Note(file.Path, "it tells no rank, nor does its name (rank0, worker0): ranks are numbered by the order of names")
	}

	r.written.from = r.ranges[0].HostBegin()
	for i := range r.ranges {
		r.written.to = max(r.written.to, hostEnd(&r.ranges[i]))
	}

	dir := filepath.Join(t.Dir, t.Job, strconv.Itoa(r.Rank))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make rank directory: %w", err)
	}

	return r.lines(dir, t.meta(r))
}

// asOneStep takes all that a rank did for one step, where none is marked.
func (r *rankOutput) asOneStep() bool {
	if r.Partly || slices.ContainsFunc(r.ranges, func(x record.Record) bool { return x.Kind == record.Step }) {
		return false
	}

	all := r.computed
	if all.to <= all.from {
		all.from, all.to = r.ranges[0].HostBegin(), 0
	}

	for i := range r.ranges {
		x := &r.ranges[i]
		all = interval{min(all.from, x.HostBegin()), max(all.to, hostEnd(x), x.End())}
	}

	step := record.New(record.Step)
	step.Step, step.Start, step.Dur = 0, all.from, all.to-all.from
	r.Add(&step)
	return true
}

// meta is the identity of a process: the same in all of its profiles.
func (t *Tree) meta(r *rankOutput) record.Meta {
	m := r.Meta
	m.Format, m.Job, m.Writer = record.Format, t.Job, t.Format.Name
	m.Incarnation = record.HashID("profile", t.Job, strconv.Itoa(r.Rank), r.Node, strconv.Itoa(r.PID))
	return m
}

// lines writes the ranges as lines, in as many segments as their limit asks for.
func (r *rankOutput) lines(dir string, meta record.Meta) (err error) {
	var f *os.File
	var out *bufio.Writer
	finish := func() error {
		if f == nil {
			return nil
		}

		return errors.Join(out.Flush(), f.Close())
	}
	defer func() {
		if err = errors.Join(err, finish()); err != nil {
			err = fmt.Errorf("write ranges of rank %d: %w", r.Rank, err)
		}
	}()
	size := segment.DefaultLimit // full: the first range begins a segment
	var line []byte
	for i := range r.ranges {
		rec := &r.ranges[i]
		// Each profile is a ring of its own, so that ranges of several are told apart; 0 would be none.
		rec.Ring, rec.Seq = uint32(r.out.hash)|1, uint64(i)
		line = rec.AppendLine(line[:0])
		if size+len(line) > segment.DefaultLimit {
			if err := finish(); err != nil {
				return err
			}

			meta.Segment = record.HashID("profile", meta.Job, strconv.Itoa(r.Rank), r.out.hash.String(), strconv.Itoa(len(r.paths))).String()
			// With a dot it is nobody's segment: only when all profiles are read is it known in which order they
			// follow each other (arrange).
			name := filepath.Join(dir, "."+meta.Segment)
			if f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
				return err
			}

			out = bufio.NewWriterSize(f, 256<<10)
			r.paths = append(r.paths, name)
			head := meta.AppendLine(nil)
			if _, err := out.Write(head); err != nil {
				return err
			}

			size = len(head)
		}

		size += len(line)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}

	return nil
}

// arrange names the segments for the seconds they begin in, in the order of time, and refuses
// what can't be one job's.
func (t *Tree) arrange(all []*output) error {
	var ranks []*rankOutput
	seen := map[record.ID]*profileFile{}
	for _, out := range all {
		t.Unread = append(t.Unread, out.unread...)
		t.Notes = append(t.Notes, out.notes...)
		if len(out.ranks) == 0 {
			continue
		}

		if other := seen[out.hash]; other != nil {
			t.Notes = append(t.Notes, Problem{out.file.Path, "a copy of " + other.Path + ", counted once"})
			continue
		}

		seen[out.hash] = out.file
		t.Profiles++
		ranks = append(ranks, out.ranks...)
	}

	if len(ranks) == 0 {
		return t.nothing()
	}

	slices.SortFunc(ranks, func(a, b *rankOutput) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.written.from, b.written.from), cmp.Compare(a.out.hash, b.out.hash))
	})
	if err := mixed(ranks); err != nil {
		return err
	}

	name := int64(0)
	for i, r := range ranks {
		if i == 0 || ranks[i-1].Rank != r.Rank {
			name = 0
			t.Ranks++
		}

		for _, from := range r.paths {
			// Names grow, even where two begin in one second.
			name = max(name+1, r.written.from/1e9)
			if err := os.Rename(from, filepath.Join(filepath.Dir(from), strconv.FormatInt(name, 10))); err != nil {
				return fmt.Errorf("name segment: %w", err)
			}
		}
	}

	return nil
}

// nothing says why no profile gave a range.
func (t *Tree) nothing() error {
	if len(t.Unread) == 0 {
		return fmt.Errorf("%w: no range of a job", ErrNone)
	}

	more := ""
	if n := len(t.Unread) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}

	return fmt.Errorf("nothing of the %s could be used: %s%s", t.Format.What, t.Unread[0], more)
}

// mixed returns an error when ranks, sorted by number and begin, can't be of one run of one job.
func mixed(ranks []*rankOutput) error {
	var told *rankOutput
	for i, r := range ranks {
		if r.WorldSize > 0 && told != nil && told.WorldSize != r.WorldSize {
			return fmt.Errorf("%s is of a job of %d ranks, %s of one of %d: give the folder of one job", told.out.file.Path, told.WorldSize, r.out.file.Path, r.WorldSize)
		}

		if r.WorldSize > 0 {
			told = r
		}

		if before := ranks[max(i-1, 0)]; i > 0 && before.Rank == r.Rank && r.written.from < before.written.to {
			return fmt.Errorf("%s and %s both hold rank %d at the same time: give the folder of one job, one profile of a rank and time%s", before.out.file.Path, r.out.file.Path, r.Rank, byName(r))
		}
	}

	return nil
}
