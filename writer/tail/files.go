package tail

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

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
	lastHash uint64    // of that line: a file that was cut and grew again is not taken for the same
	atEnd    bool      // the last read ended at the end of the file
	gone     bool      // no longer listed
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
			name: segment.Plain(info.Name), number: info.Number, lastAt: -1,
			path: filepath.Join(s.Dir.Path, info.Name), size: info.Size, seen: info.Size, compressed: info.Compressed,
			device: info.Device, inode: info.Inode,
		}
		if s.began && i <= s.current {
			// It appeared before what was already read: to read it now would change the
			// order, and the order is what makes rows be stored once.
			s.lose(&f, late, info.Size, 0)
			f.done, f.past = true, true
			f.offset = info.Size
			s.current++
		}

		s.files = slices.Insert(s.files, i, f)
	}

	s.drop(listed)
	s.sweep(listed)
}

// update takes what a listing says of a file that is known. Another inode under its name is
// not yet another file: identify looks at the content when it is opened.
func (s *Stream) update(f *file, info segment.Info) {
	same := f.device == info.Device && f.inode == info.Inode
	if same && f.done && !f.past && !f.compressed && info.Size > f.seen {
		s.lose(f, late, info.Size-f.seen, 0)
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

// drop counts the files that are gone, all of them where nothing is listed. The one being read stays as long as it is
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

// ID returns the identity of a segment that is or was read, 0 when not known.
func (s *Stream) ID(name string) record.ID {
	for i := range s.files {
		if s.files[i].name == name {
			return s.files[i].id
		}
	}

	return 0
}
