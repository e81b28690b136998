// Package tail follows the segments of rank directories: it yields every complete
// line once, in the order of the segments' names, whatever happens to the files
// meanwhile.
//
// A segment is known by its content: the id of its identity line, else its first
// line. Device and inode are hints that say when to look again. A segment is left
// for the next one only after the next one was seen and the first was read to its
// end afterwards, so two rotations at once skip nothing. What is known to be lost
// (cut off under the reader, removed before it was read, torn by a crash) is
// counted with its reason.
//
// Invariant: what a Stream yields depends on the files' content alone, not on when
// or how often it looks, as long as files only grow and names only grow.
//
// Caveat: change notifications are hints. Scan is the truth: it must be called
// again and again, and works where there are no notifications at all.
package tail

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// DefaultFiles is the number of files that are open at once by default.
const DefaultFiles = 64

// Options configure a Tree. Zero values mean the defaults.
type Options struct {
	// Files bounds the open files; more streams than that take turns.
	Files int
	// TrustUIDs are owners of files to believe beside ourselves, root and the owner of
	// the job's directory.
	TrustUIDs []uint32
	Logger    *slog.Logger // nil is silent
}

// Visitor takes what a stream yields. rollup.Stream is one.
type Visitor interface {
	// Segment is called before the first line of a segment (and again when another
	// generation of the file is in its place).
	Segment(id record.ID, name string)
	// Line is called with each complete line, without its '\n', and its offset. The
	// bytes are the reader's again when it returns.
	Line(offset int64, line []byte)
	// Torn is called with the bytes of a last line that will never be complete.
	Torn(bytes int64)
}

// Tree follows the rank directories under a root. It is used by one goroutine.
type Tree struct {
	root    string
	o       Options
	streams map[string]*Stream // by path
	open    []*Stream          // those with an open reader, least recently used first

	lines, bytes uint64 // read so far
}

// New returns a tree; Scan looks what is there.
func New(root string, o Options) *Tree {
	o.Files = cmp.Or(max(o.Files, 0), DefaultFiles)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	return &Tree{root: root, o: o, streams: map[string]*Stream{}}
}

// Scan lists the rank directories and returns their streams, sorted by job and
// rank, new ones among them. An error names what could not be read; the streams
// of the rest are returned all the same.
func (t *Tree) Scan() ([]*Stream, error) {
	dirs, err := segment.Walk(t.root)
	seen := make(map[string]bool, len(dirs))
	all := make([]*Stream, 0, len(dirs))
	for _, d := range dirs {
		s := t.streams[d.Path]
		if s == nil {
			s = &Stream{Dir: d, tree: t, current: -1}
			t.streams[d.Path] = s
		}

		seen[d.Path] = true
		all = append(all, s)
	}

	for path, s := range t.streams {
		// A directory that could not be listed now is not gone.
		if !seen[path] && err == nil {
			s.drop(nil)
			s.closeGate()
			delete(t.streams, path)
		}
	}

	return all, err
}

// Close closes all files.
func (t *Tree) Close() {
	for len(t.open) > 0 {
		t.open[0].release()
	}

	for _, s := range t.streams {
		s.closeGate()
	}
}

// Counts returns how many lines and bytes were read since the tree was made.
func (t *Tree) Counts() (lines, bytes uint64) { return t.lines, t.bytes }

// acquire makes s the most recently used of the open streams, and closes another
// one's file when there are too many.
func (t *Tree) acquire(s *Stream) {
	if i := slices.Index(t.open, s); i >= 0 {
		t.open = append(slices.Delete(t.open, i, i+1), s)
		return
	}

	for len(t.open) >= t.o.Files {
		// To go on with a compressed one means to inflate it from its start.
		i := max(slices.IndexFunc(t.open, func(s *Stream) bool { return !s.inflates() }), 0)
		t.open[i].release()
	}

	t.open = append(t.open, s)
}

// maxInflating bounds the compressed segments that are open at once: each takes a
// decoder's window. Others wait until one is read to its end.
const maxInflating = 2

// mayInflate reports whether another compressed segment may be opened.
func (t *Tree) mayInflate() bool {
	n := 0
	for _, s := range t.open {
		if s.inflates() {
			n++
		}
	}

	return n < min(maxInflating, t.o.Files)
}

// forget takes a stream, whose file is being closed, out of those that are open.
func (t *Tree) forget(s *Stream) {
	if i := slices.Index(t.open, s); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
}

// gone reports whether an error says that a file is not there.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// wrap says of which directory an error is.
func (s *Stream) wrap(err error) error {
	return fmt.Errorf("read %s: %w", s.Dir.Path, err)
}

// Forget drops a stream: the next Scan begins it anew.
func (t *Tree) Forget(s *Stream) {
	s.close()
	s.closeGate()
	delete(t.streams, s.Dir.Path)
}

// Root is the directory that is followed.
func (t *Tree) Root() string { return t.root }
