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

// part is one rank's segments of one profile.
type part struct {
	rank, world int
	pid         int
	hash        record.ID
	begin, end  int64
	file        *profileFile
	named       bool     // its file's name told the rank
	paths       []string // in order, under names that are no segments' yet
}

// write writes a rank's ranges as segments: the identity, then the ranges in the order of
// their host starts, as a ring of their own. Where the profile marks no step, all of it is one.
func (t *Tree) write(p *profile, r *rankOutput) (part, error) {
	if r.asOneStep() {
		p.out.Note(p.file.Path, "it marks no step: all of it is taken for one")
	}

	slices.SortStableFunc(r.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.begin(), b.begin()), cmp.Compare(a.kind, b.kind))
	})
	w := part{rank: r.Rank, world: r.World, pid: r.PID, hash: p.hash, begin: r.spans[0].begin(), file: p.file, named: r.named}
	if w.rank < 0 {
		w.rank = rankOfName(p.file.name)
		w.named = w.rank >= 0
	}

	if w.rank < 0 {
		w.rank = p.worker
		p.out.Note(p.file.Path, "it tells no rank, nor does its name (rank0, worker0): ranks are numbered by the order of names")
	}

	for i := range r.spans {
		w.end = max(w.end, r.spans[i].hostEnd())
	}

	dir := filepath.Join(t.Dir, t.Job, strconv.Itoa(w.rank))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return w, fmt.Errorf("make rank directory: %w", err)
	}

	return w, r.lines(&w, dir, t.meta(&w, r))
}

// asOneStep takes all that a rank did for one step, where none is marked.
func (r *rankOutput) asOneStep() bool {
	if r.Partly || slices.ContainsFunc(r.spans, func(s span) bool { return s.kind == record.Step }) {
		return false
	}

	all := r.computed
	if all.to <= all.from {
		all.from, all.to = r.spans[0].begin(), 0
	}

	for i := range r.spans {
		s := &r.spans[i]
		all = interval{min(all.from, s.begin()), max(all.to, s.hostEnd(), s.start+s.dur)}
	}

	step := record.New(record.Step)
	step.Step, step.Start, step.Dur = 0, all.from, all.to-all.from
	r.Add(&step)
	return true
}

// meta is the identity of a process: the same in all of its profiles.
func (t *Tree) meta(w *part, r *rankOutput) record.Meta {
	return record.Meta{
		Format: record.Format, Job: t.Job, Rank: w.rank, WorldSize: r.World, LocalRank: r.LocalRank,
		Incarnation: record.HashID("profile", t.Job, strconv.Itoa(w.rank), r.Node, strconv.Itoa(r.PID)),
		Node:        r.Node, Device: r.Device, PID: r.PID, Groups: r.Groups, Writer: t.Format.Name,
	}
}

// lines writes the ranges as lines, in as many segments as their limit asks for.
func (r *rankOutput) lines(w *part, dir string, meta record.Meta) (err error) {
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
			err = fmt.Errorf("write ranges of rank %d: %w", w.rank, err)
		}
	}()
	size := segment.DefaultLimit
	var line []byte
	for i := range r.spans {
		rec := r.record(&r.spans[i])
		rec.Ring, rec.Seq = uint32(w.hash)|1, uint64(i)
		line = rec.AppendLine(line[:0])
		if size+len(line) > segment.DefaultLimit {
			if err := finish(); err != nil {
				return err
			}

			meta.Segment = record.HashID("profile", meta.Job, strconv.Itoa(w.rank), w.hash.String(), strconv.Itoa(len(w.paths))).String()
			name := filepath.Join(dir, "."+meta.Segment)
			if f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
				return err
			}

			out = bufio.NewWriterSize(f, 256<<10)
			w.paths = append(w.paths, name)
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
func (t *Tree) arrange(all []*profile) error {
	var parts []part
	seen := map[record.ID]*profileFile{}
	for _, p := range all {
		t.Unread = append(t.Unread, p.out.unread...)
		t.Notes = append(t.Notes, p.out.notes...)
		if other := seen[p.hash]; other != nil && len(p.parts) > 0 {
			t.Notes = append(t.Notes, Problem{p.file.Path, "a copy of " + other.Path + ", counted once"})
			continue
		}

		if len(p.parts) > 0 {
			seen[p.hash] = p.file
			t.Profiles++
		}

		parts = append(parts, p.parts...)
	}

	if len(parts) == 0 {
		return t.nothing()
	}

	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.begin, b.begin), cmp.Compare(a.hash, b.hash))
	})
	if err := mixed(parts); err != nil {
		return err
	}

	name := int64(0)
	for i, p := range parts {
		if i == 0 || parts[i-1].rank != p.rank {
			name = 0
			t.Ranks++
		}

		for _, from := range p.paths {
			name = max(name+1, p.begin/1e9)
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

// mixed returns an error when parts, sorted by rank and begin, can't be of one run of one job.
func mixed(parts []part) error {
	var told *part
	for i := range parts {
		p := &parts[i]
		if p.world > 0 && told != nil && told.world != p.world {
			return fmt.Errorf("%s is of a job of %d ranks, %s of one of %d: give the folder of one job", told.file.Path, told.world, p.file.Path, p.world)
		}

		if p.world > 0 {
			told = p
		}

		if before := parts[max(i-1, 0)]; i > 0 && before.rank == p.rank && p.begin < before.end {
			return fmt.Errorf("%s and %s both hold rank %d at the same time: give the folder of one job, one profile of a rank and time%s", before.file.Path, p.file.Path, p.rank, byName(p))
		}
	}

	return nil
}
