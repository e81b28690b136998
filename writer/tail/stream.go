package tail

import (
	"errors"
	"hash/maphash"
	"io"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Stream is the segments of one rank directory, read one after the other.
type Stream struct {
	Dir  segment.RankDir
	tree *Tree

	files   []file // in order of number
	current int    // index in files of the one being read, -1 before the first
	began   bool   // a first listing was made
	reader  *segment.Reader
	losses  []row.Ledger
	refused map[int64]bool // files of others that are not read, by number
	gate    gate
	waits   bool                // for its turn to inflate
	ids     map[record.ID]int64 // segments with an id of their own → the number of the file they were read from
	// Of the lines that reader skipped those that are counted.
	skippedLines, skippedBytes int64
}

// seed is of this process: hashes of lines are compared within it, and never written down.
var seed = maphash.MakeSeed()

// Start makes the stream begin at p instead of at its oldest segment. It must be
// called before the first Refresh. A position whose segment turns out to be
// another one is not believed, nor one beyond everything that is there: then
// Start returns false and the stream begins with its oldest segment. When p's
// segment is gone and newer ones are there, it begins with the oldest of those.
func (s *Stream) Start(p segment.Position) (bool, error) {
	number, ok := segment.Number(p.Segment)
	if s.began || !ok {
		return false, nil
	}

	infos, err := s.list()
	if err != nil {
		return false, s.wrap(err)
	}

	if len(infos) == 0 || infos[len(infos)-1].Number < number {
		return false, nil
	}

	for _, info := range infos {
		if info.Number == number && !s.believes(info, p) {
			return false, nil
		}
	}

	s.merge(infos)
	s.began = true
	for i := range s.files {
		f := &s.files[i]
		switch {
		case f.number < number: // read to its end before p was reached
			f.past, f.done = true, true
			s.current = i
		case f.number == number:
			f.offset = p.Offset
		}
	}

	return true, nil
}

// believes reports whether a segment is the one that p means.
func (s *Stream) believes(info segment.Info, p segment.Position) bool {
	r, err := segment.OpenReader(filepath.Join(s.Dir.Path, info.Name))
	if err != nil {
		return false
	}
	defer r.Close()
	line, _, err := r.Next()
	if err != nil {
		return false
	}

	return p.ID == 0 || segment.Identity(s.Dir.Job, s.Dir.Rank, info.Name, line) == p.ID
}

// Refresh lists the directory.
func (s *Stream) Refresh() error {
	infos, err := s.list()
	if err != nil {
		if gone(err) {
			s.drop(nil)
			return nil
		}

		return s.wrap(err)
	}

	s.merge(infos)
	s.began = true
	return nil
}

// Caught reports whether everything that the last Refresh saw was read.
func (s *Stream) Caught() bool {
	return s.current == len(s.files)-1 && (s.current < 0 || s.files[s.current].done || s.files[s.current].atEnd)
}

// Position returns the place of the next line to be read.
func (s *Stream) Position() segment.Position {
	if s.current < 0 {
		return segment.Position{}
	}

	f := &s.files[s.current]
	return segment.Position{Segment: f.name, ID: f.id, Offset: f.offset}
}

// Waits reports whether the last Read could not open a compressed segment because others
// are being inflated: it must be called again when these have had their turns.
func (s *Stream) Waits() bool { return s.waits }

// inflates reports whether a compressed segment is open.
func (s *Stream) inflates() bool {
	return s.reader != nil && s.current >= 0 && s.files[s.current].compressed
}

// rest gives back the memory that a turn of long lines took.
func (s *Stream) rest(err error) error {
	if err != nil || s.reader == nil {
		return err
	}

	if err := s.reader.Rest(); err != nil {
		s.close()
		return s.wrap(err)
	}

	return nil
}

// Read yields lines until about budget bytes have been read or there is nothing
// more. It returns the bytes and whether there is more to read now.
func (s *Stream) Read(budget int64, v Visitor) (n int64, more bool, err error) {
	s.waits = false
	defer func() { err = s.rest(err) }()
	for n < budget {
		if s.current < 0 || s.files[s.current].done {
			if s.current+1 >= len(s.files) {
				return n, false, nil
			}

			s.current++
		}

		f := &s.files[s.current]
		if !f.begun {
			if ok, err := s.enter(f); err != nil {
				return n, false, err
			} else if !ok {
				f.done, f.past = true, true // nothing of it was read, and nothing will be
				continue
			}
		}

		if s.waits = f.compressed && s.reader == nil && !f.gone && !s.tree.mayInflate(); s.waits {
			return n, false, nil
		}

		ok, err := s.ready(f, v)
		if err != nil {
			return n, false, err
		}

		if ok {
			got, err := s.lines(f, budget-n, v)
			n += got
			if err != nil {
				return n, false, err
			}

			if !f.atEnd {
				continue
			}
		}

		// Everything is read that was there when the next one was already listed; nobody
		// appends to a compressed one.
		if f.gone || f.compressed || s.current+1 < len(s.files) {
			s.finish(f, v)
			continue
		}

		return n, false, nil
	}

	return n, true, nil
}

// finish leaves a segment for the next one.
func (s *Stream) finish(f *file, v Visitor) {
	if s.reader != nil {
		if torn := s.reader.Torn(); torn > 0 {
			if f.begun {
				v.Torn(torn)
			}

			s.lose(f, record.TornLine, torn, 1)
		}

		s.close()
	}

	f.done = true
	if f.gone {
		s.files = slices.Delete(s.files, s.current, s.current+1)
		s.current--
	}
}

// lines yields lines of the open segment.
func (s *Stream) lines(f *file, budget int64, v Visitor) (n int64, err error) {
	count := uint64(0)
	defer func() {
		s.tree.lines += count
		s.tree.bytes += uint64(n)
		s.countSkipped(f)
	}()
	for n < budget {
		line, offset, err := s.reader.Next()
		switch {
		case err == nil:
			count++
			n += int64(len(line)) + 1
			f.lastAt, f.offset, f.atEnd = offset, s.reader.Offset(), false
			if n >= budget || !s.reader.More() { // it may be the last one for now
				f.lastHash = maphash.Bytes(seed, line)
			}

			v.Line(offset, line)
			continue
		case errors.Is(err, io.EOF):
			f.offset = s.reader.Offset()
			f.atEnd, f.seen = true, max(f.seen, f.offset)
			if s.reader.Damage() != nil {
				s.damaged(f)
			}

			return n, nil
		case errors.Is(err, segment.ErrTruncated):
			s.close() // the next look finds out what is there now
			return n, nil
		}

		s.close()
		return n, s.wrap(err)
	}

	return n, nil
}
