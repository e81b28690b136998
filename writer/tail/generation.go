package tail

import (
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// ready opens the current segment at the place where reading goes on, and makes
// sure that it is still the file that it was. It returns false when there is no
// complete line yet, or the file is gone.
func (s *Stream) ready(f *file, v Visitor) (bool, error) {
	if s.reader != nil {
		if s.unchanged(f) {
			s.tree.acquire(s)
			return true, nil
		}

		s.close()
	}

	if f.gone {
		return false, nil
	}

	r, err := segment.OpenReader(f.path)
	if err != nil {
		if gone(err) || errors.Is(err, segment.ErrNotRegular) {
			return false, nil // the next listing tells
		}

		return false, s.wrap(err)
	}

	ok, err := s.identify(f, r, v)
	if r.Damage() != nil || err != nil && f.compressed {
		s.damaged(f)
		ok, err = false, nil
	}

	if err != nil || !ok {
		return false, errors.Join(err, r.Close())
	}

	s.tree.acquire(s)
	s.reader, s.skippedLines, s.skippedBytes = r, 0, 0
	return true, nil
}

// damaged gives up a compressed segment that can't be read on: it will not get
// better, and what follows must not wait for it.
func (s *Stream) damaged(f *file) {
	s.lose(f, record.Corrupt, f.size, 0)
	f.atEnd, f.done = true, true
}

// unchanged reports whether the open file goes on where reading stopped: it is as
// long as it was, and its last line is still what it was. A reader in the middle
// of a file needs no such look, nor does a compressed one: it never changes.
func (s *Stream) unchanged(f *file) bool {
	if !f.atEnd || f.compressed {
		return true
	}

	info, err := s.reader.Info()
	if err != nil || info.Size < f.offset {
		return false
	}

	f.size, f.seen = info.Size, max(f.seen, info.Size)
	if f.lastAt < 0 {
		return true
	}

	return s.sameLast(f, s.reader)
}

// sameLast compares the last line read with what is there now; the reader then stands
// where reading goes on, which is behind lines that were too long to be yielded, too.
func (s *Stream) sameLast(f *file, r *segment.Reader) bool {
	if r.SeekTo(f.lastAt) != nil {
		return false
	}

	line, _, err := r.Next()
	return err == nil && maphash.Bytes(seed, line) == f.lastHash && (r.Offset() == f.offset || r.SeekTo(f.offset) == nil)
}

// identify reads the first line of a newly opened segment, decides whether it is
// the one that was read before, and places the reader.
func (s *Stream) identify(f *file, r *segment.Reader, v Visitor) (bool, error) {
	line, _, err := r.Next()
	switch {
	case errors.Is(err, io.EOF):
		if f.known && f.offset > 0 {
			s.regenerate(f) // it was cut down to nothing
		}

		return false, nil
	case errors.Is(err, segment.ErrTruncated):
		return false, nil
	case err != nil:
		return false, s.wrap(err)
	}

	info, err := r.Info()
	if err != nil {
		return false, s.wrap(err)
	}

	id, own := identity(s.Dir, f.name, line)
	first := maphash.Bytes(seed, line)
	same := !f.known || first == f.first || own && f.meta && id == f.id
	f.device, f.inode, f.size = info.Device, info.Inode, info.Size
	switch {
	case !same:
		s.regenerate(f)
	case f.known && !f.compressed && info.Size < f.offset:
		if own {
			// The same segment, shorter: its end was lost with the host's power. What is
			// left was read before; what is added from here on is new.
			return true, s.toEnd(f, r)
		}

		s.regenerate(f)
	case f.known && !f.compressed && f.lastAt >= 0 && !s.sameLast(f, r):
		s.regenerate(f) // cut and grown past the old place
	}

	f.seen = max(f.seen, f.size)
	if !f.known {
		f.known, f.first, f.meta, f.id = true, first, own, id
		if f.gen > 0 && !own {
			f.id = record.HashID(id.String(), "generation", strconv.Itoa(f.gen))
		}

		if own && s.copied(f) {
			f.done = true
			return false, nil
		}
	}

	if !f.begun {
		v.Segment(f.id, f.name)
		f.begun = true
	}

	if err := r.SeekTo(f.offset); err != nil {
		return false, s.wrap(err)
	}

	f.atEnd = false
	return true, nil
}

// copied reports whether the segment was read from another file of the directory
// already: a copy, or a hard link, made by hand.
func (s *Stream) copied(f *file) bool {
	if number, ok := s.ids[f.id]; ok && number != f.number {
		s.tree.o.Logger.Warn("a copy of a segment is left out", "dir", s.Dir.Path, "segment", f.name, "of", number)
		return true
	}

	if s.ids == nil {
		s.ids = map[record.ID]int64{}
	}

	s.ids[f.id] = f.number
	return false
}

// toEnd places the reader after the last complete line.
func (s *Stream) toEnd(f *file, r *segment.Reader) error {
	if lost := f.seen - f.offset; lost > 0 {
		s.lose(f, record.Truncated, lost, 0)
	}

	if err := r.SeekTo(0); err != nil {
		return s.wrap(err)
	}

	f.lastAt, f.seen = -1, f.size
	for {
		line, offset, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, segment.ErrTruncated) {
			f.offset = r.Offset()
			return nil
		}

		if err != nil {
			return s.wrap(err)
		}

		f.lastAt, f.lastHash = offset, maphash.Bytes(seed, line)
	}
}

// regenerate makes the file a new one, to be read from its start. What had been
// seen of the old one and not read is lost.
func (s *Stream) regenerate(f *file) {
	lost := max(f.seen-f.offset, 0)
	s.lose(f, record.Truncated, lost, 0)
	f.gen++
	f.offset, f.lastAt, f.seen = 0, -1, f.size
	f.known, f.begun, f.atEnd, f.id = false, false, false, 0
}

// identity returns the id of a segment, and whether an identity line of its own
// says it.
func identity(d segment.RankDir, name string, line []byte) (record.ID, bool) {
	id := segment.Identity(d.Job, d.Rank, name, line)
	var p record.Parser
	t, err := p.Parse(line)
	return id, err == nil && t == record.LineMeta && p.Meta.Segment == id.String()
}

// close closes the open file.
func (s *Stream) close() {
	if s.reader != nil {
		s.tree.forget(s)
		_ = s.reader.Close() // opened for reading
		s.reader = nil
	}
}

// release closes the open file because others need their turn.
func (s *Stream) release() {
	s.close()
	if s.current >= 0 && s.files[s.current].gone && !s.files[s.current].done {
		s.loseRest(&s.files[s.current], record.Aged)
		s.files = slices.Delete(s.files, s.current, s.current+1)
		s.current--
	}
}
