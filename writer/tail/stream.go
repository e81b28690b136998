package tail

import (
	"cmp"
	"errors"
	"hash/maphash"
	"io"
	"path/filepath"
	"slices"

	"laggard/schemas/record"
	"laggard/writer/segment"
)

// Stream is the segments of one rank directory, read one after the other.
type Stream struct {
	Dir  segment.RankDir
	tree *Tree

	files   []file // in order of number
	current int    // index in files of the one being read, -1 before the first
	began   bool   // a first listing was made
	reader  *segment.Reader
	losses  []Loss
	refused map[int64]bool // files of others that are not read, by number
	gate    gate
	skipped segment.Skipped     // of reader, already counted
	ids     map[record.ID]int64 // segments with an id of their own → the number of the file they were read from
}

// file is what is known of one segment.
type file struct {
	name   string // without .zst
	path   string
	number int64

	device, inode uint64
	size          int64 // bytes on disk when last looked at
	seen          int64 // most bytes that this generation was seen to have
	compressed    bool

	id       record.ID // valid when identified
	meta     bool      // the first line is an identity line with an id of its own
	first    uint64    // hash of the first line
	offset   int64     // of the next line
	begun    bool      // Segment was called for this generation
	known    bool      // identified
	done     bool      // read to the end, and the next one begun
	past     bool      // before the position where the stream began
	gen      int       // how often the file turned out to be another one
	lastAt   int64     // offset of the last line read, -1 none
	hashAt   int64     // offset of the line that lastHash is of, -1 none
	lastHash uint64
	atEnd    bool // the last read ended at the end of the file
	gone     bool // no longer listed
}

var seed = maphash.MakeSeed()

// Start makes the stream begin at p instead of at its oldest segment. It must be
// called before the first Refresh. A position whose segment turns out to be
// another one is not believed, nor one beyond everything that is there: then
// Start returns false and the stream begins with its oldest segment. When p's
// segment is gone and newer ones are there, it begins with the oldest of those.
func (s *Stream) Start(p Position) (bool, error) {
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
		case f.number < number:
			f.past, f.done = true, true
			s.current = i
		case f.number == number:
			f.offset = p.Offset
		}
	}
	return true, nil
}

// believes reports whether a segment is the one that p means.
func (s *Stream) believes(info segment.Info, p Position) bool {
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

// Refresh lists the directory. It returns whether there may be something to read.
func (s *Stream) Refresh() (bool, error) {
	infos, err := s.list()
	if err != nil {
		if gone(err) {
			s.vanish()
			return false, nil
		}
		return false, s.wrap(err)
	}
	s.merge(infos)
	s.began = true
	return s.pending(), nil
}

// pending tells whether a file has more than was read of it, or another one
// follows.
func (s *Stream) pending() bool {
	i := max(s.current, 0)
	if i >= len(s.files) {
		return false
	}
	f := &s.files[i]
	return i+1 < len(s.files) || !f.begun || !f.atEnd || f.size != f.offset || f.compressed
}

// merge brings what is known in line with a listing.
func (s *Stream) merge(infos []segment.Info) {
	listed := make(map[int64]bool, len(infos))
	for _, info := range infos {
		listed[info.Number] = true
		i, ok := slices.BinarySearchFunc(s.files, info.Number, func(f file, n int64) int { return cmp.Compare(f.number, n) })
		if ok {
			s.update(&s.files[i], info)
			continue
		}
		f := file{
			name: baseName(info.Name), number: info.Number, lastAt: -1, hashAt: -1,
			path: filepath.Join(s.Dir.Path, info.Name), size: info.Size, seen: info.Size, compressed: info.Compressed,
			device: info.Device, inode: info.Inode,
		}
		if s.began && i <= s.current {
			// It appeared before what was already read: to read it now would change the
			// order, and the order is what makes rows be stored once.
			s.lose(&f, Loss{Reason: Late, Bytes: info.Size})
			f.done, f.past = true, true
			f.offset = info.Size
			s.current++
		}
		s.files = slices.Insert(s.files, i, f)
	}
	s.drop(listed)
	s.sweep(listed)
}

func (s *Stream) update(f *file, info segment.Info) {
	same := f.device == info.Device && f.inode == info.Inode
	if same && f.done && !f.past && !f.compressed && info.Size > f.seen {
		s.lose(f, Loss{Reason: Late, Bytes: info.Size - f.seen})
	}
	f.path, f.size, f.compressed = filepath.Join(s.Dir.Path, info.Name), info.Size, info.Compressed
	if same {
		f.seen = max(f.seen, info.Size)
		return
	}
	f.device, f.inode = info.Device, info.Inode
	if i := s.current; i >= 0 && &s.files[i] == f {
		s.close() // another file is there now: look at its content
		f.atEnd = false
	}
}

// drop counts the files that are gone. The one being read stays as long as it is
// open: its bytes are still there.
func (s *Stream) drop(listed map[int64]bool) {
	kept, current := s.files[:0], s.current
	for i, f := range s.files {
		f.gone = !listed[f.number]
		if !f.gone || i == s.current && s.reader != nil && !f.done {
			kept = append(kept, f)
			continue
		}
		if accounted := s.left(&f); !f.done && !accounted {
			s.loseRest(&f, record.Aged)
		}
		if i <= s.current {
			current--
		}
	}
	s.files, s.current = kept, current
}

func (s *Stream) lose(f *file, l Loss) {
	l.Segment, l.ID = f.name, f.id
	s.losses = append(s.losses, l)
	s.tree.counters.losses.Add(1)
	s.tree.counters.lostBytes.Add(uint64(max(l.Bytes, 0)))
	s.tree.o.Logger.Warn("lines lost", "dir", s.Dir.Path, "segment", f.name, "reason", l.Reason, "bytes", l.Bytes, "lines", l.Lines)
}

// loseRest counts what was seen of a file and not read.
func (s *Stream) loseRest(f *file, reason string) {
	rest := f.seen - f.offset
	if f.compressed {
		rest = f.size // how much it holds is not known
	}
	if rest > 0 {
		s.lose(f, Loss{Reason: reason, Bytes: rest})
	}
}

// Losses returns what was lost since the last call.
func (s *Stream) Losses() []Loss {
	l := s.losses
	s.losses = nil
	return l
}

// vanish ends a stream whose directory is gone.
func (s *Stream) vanish() { s.drop(nil) }

// Backlog returns the bytes on disk that are known and not read.
func (s *Stream) Backlog() int64 {
	var n int64
	for i := max(s.current, 0); i < len(s.files); i++ {
		f := &s.files[i]
		if !f.done {
			n += max(f.size-f.offset, 0)
		}
	}
	return n
}

// Finished returns the names of the segments that were read to their end and left
// for the next one.
func (s *Stream) Finished() []string {
	var names []string
	for i := range s.files {
		if s.files[i].done {
			names = append(names, s.files[i].name)
		}
	}
	return names
}

// Newest returns the name of the newest segment known, "" without one.
func (s *Stream) Newest() string {
	if len(s.files) == 0 {
		return ""
	}
	return s.files[len(s.files)-1].name
}

// ID returns the identity of a segment that is or was read, 0 when not known.
func (s *Stream) ID(name string) record.ID {
	for i := range s.files {
		if s.files[i].name == name {
			return s.files[i].id
		}
	}
	return 0
}

// Caught reports whether everything that the last Refresh saw was read.
func (s *Stream) Caught() bool {
	return s.current == len(s.files)-1 && (s.current < 0 || s.files[s.current].done || s.files[s.current].atEnd)
}

// Position returns the place of the next line to be read.
func (s *Stream) Position() Position {
	if s.current < 0 {
		return Position{}
	}
	f := &s.files[s.current]
	return Position{Segment: f.name, ID: f.id, Offset: f.offset}
}

// Read yields lines until about budget bytes have been read or there is nothing
// more. It returns the bytes and whether there is more to read now.
func (s *Stream) Read(budget int64, v Visitor) (n int64, more bool, err error) {
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
		// Everything is read that was there when the next one was already listed.
		if f.gone || s.current+1 < len(s.files) {
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
			if t, ok := v.(interface{ Torn(bytes int64) }); ok && f.begun {
				t.Torn(torn)
			}
			s.lose(f, Loss{Reason: record.TornLine, Bytes: torn, Lines: 1})
		}
		s.close()
	}
	f.done = true
	s.tree.counters.segments.Add(1)
	if f.gone {
		s.files = slices.Delete(s.files, s.current, s.current+1)
		s.current--
	}
}

// lines yields lines of the open segment.
func (s *Stream) lines(f *file, budget int64, v Visitor) (n int64, err error) {
	count := uint64(0)
	defer func() {
		s.tree.counters.lines.Add(count)
		s.tree.counters.bytes.Add(uint64(n))
		s.countSkipped(f)
	}()
	for n < budget {
		line, offset, err := s.reader.Next()
		switch {
		case err == nil:
			v.Line(offset, line)
			f.atEnd = false
			count++
			n += int64(len(line)) + 1
			f.lastAt, f.offset = offset, s.reader.Offset()
			continue
		case errors.Is(err, io.EOF):
			f.offset = s.reader.Offset()
			if s.anchor(f) {
				continue // the reader stands after the last line again: look for more
			}
			f.atEnd, f.seen = true, max(f.seen, f.offset)
			return n, nil
		case errors.Is(err, segment.ErrTruncated):
			s.close() // the next look finds out what is there now
			return n, nil
		case f.compressed:
			s.damaged(f)
			s.close()
			return n, nil
		}
		s.close()
		return n, s.wrap(err)
	}
	return n, nil
}

// anchor remembers what the last line read looks like, so that a file which was
// cut and grew again is not taken for the same. It returns whether it had to.
func (s *Stream) anchor(f *file) bool {
	if f.compressed || f.lastAt < 0 || f.hashAt == f.lastAt || s.reader.SeekTo(f.lastAt) != nil {
		return false
	}
	line, _, err := s.reader.Next()
	if err != nil {
		return false
	}
	f.hashAt, f.lastHash = f.lastAt, maphash.Bytes(seed, line)
	return true
}

func (s *Stream) countSkipped(f *file) {
	if s.reader == nil {
		return
	}
	now := s.reader.Skipped()
	if d := now.Lines - s.skipped.Lines; d > 0 {
		s.lose(f, Loss{Reason: TooLong, Bytes: now.Bytes - s.skipped.Bytes, Lines: d})
		s.skipped = now
	}
}
