package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

var (
	// errTooLong is returned, wrapped, for a line that no segment or reader takes.
	// The line is counted (Stats.Refused) and forgotten.
	errTooLong = errors.New("line too long")
	// errEnded is returned for a line after the incarnation's end line.
	errEnded = errors.New("incarnation has ended")
	// errClosed is returned after Close.
	errClosed = errors.New("writer is closed")
)

const (
	// minLimit is the least limit: an identity line, which each segment begins with, may take half of it.
	minLimit      = 4096
	defaultBuffer = 128 << 10
	// createTries bounds the search for a free name: the loser of a race with
	// another writer goes one up each time.
	createTries = 1000
)

// Options of a Writer. The zero value is ready.
type Options struct {
	// Limit is the size that no segment exceeds, in bytes; 0 is DefaultLimit.
	Limit int64
	// Buffer is the bytes held back before an Append flushes by itself; 0 is 128 KiB.
	Buffer int
	// Now is the clock that names segments; nil is time.Now.
	Now func() time.Time
	// FS is the disk; nil is Disk.
	FS FS
	// OnClose is called with the path of each segment that is complete and durable,
	// nothing will be appended to it by this writer: compress it, tell ageing.
	OnClose func(path string)
	// Bare leaves the identity line out, for files in another program's format.
	// Such a segment is nobody's: it is never resumed.
	Bare bool
	// Turn is shared by the writers of this directory; nil is alone.
	Turn *Turn
	// TrustUIDs are owners of segments to believe beside ourselves, root and the
	// owner of the job's directory.
	TrustUIDs []uint32
}

// Writer appends the lines of one incarnation to segments of its rank directory.
//
// Promise: every line that an Append accepted (returned nil for) is in the buffer
// or whole in exactly one segment; after Flush it is in the kernel's hands (it
// survives the death of this process), after Sync on the disk. After an error call
// Flush or Sync again, never Append the same line again. After a failed write or
// sync the Writer goes on in a fresh segment: what a kernel says of a file after an
// error proves nothing.
//
// Caveat: lines that were written before a failed sync stay where they are, and
// are lost if the host loses its power as well.
//
// A Writer is not safe for concurrent use. Several may work in one directory.
type Writer struct {
	dir  string
	meta record.Meta // without Segment
	o    Options

	file    File   // nil: the next Flush makes one
	name    string // base name of file, or of the last one
	segment string // its id
	size    int64  // bytes in file, complete lines only
	head    int64  // of them the identity line
	fresh   bool   // file has no identity line yet
	learnt  bool   // meta changed since the identity line
	last    int64  // largest number seen or made

	buf      []byte
	accepted map[uint32]uint64 // by ring, the sequence number behind the last record
	written  map[uint32]uint64 // and behind the last one that is in a segment
	ended    bool
	closed   bool
	dirty    bool  // file has bytes that are not synced
	dirDirty bool  // file's name is not synced
	syncErr  error // of a segment closed by rotation, for the next Sync
	parser   record.Parser
}

// Open returns a Writer for the incarnation meta in rankDir, which it makes when it
// is missing. It resumes the incarnation's newest segment when that is the newest of
// the directory, its torn tail cut off, and knows from what is on disk where each ring goes on (Next)
// and whether the incarnation has ended. It makes no segment: the first Flush does.
func Open(rankDir string, meta record.Meta, o Options) (*Writer, error) {
	o.Limit, o.Buffer = cmp.Or(o.Limit, DefaultLimit), cmp.Or(o.Buffer, defaultBuffer)
	if o.Limit < minLimit {
		return nil, fmt.Errorf("open segments in %s: limit of %d bytes: want %d or more", rankDir, o.Limit, minLimit)
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	if o.FS == nil {
		o.FS = Disk
	}

	meta.Format, meta.Segment = record.Format, ""
	w := &Writer{dir: filepath.Clean(rankDir), meta: meta, o: o, accepted: map[uint32]uint64{}, written: map[uint32]uint64{}}
	if err := w.fitsIdentity(meta); err != nil {
		return nil, fmt.Errorf("open segments in %s: %w", rankDir, err)
	}

	if err := o.FS.Mkdir(w.dir); err != nil {
		return nil, fmt.Errorf("make rank directory %s: %w", w.dir, err)
	}

	if err := w.resume(); err != nil {
		return nil, fmt.Errorf("open segments in %s: %w", w.dir, err)
	}

	return w, nil
}

// Next returns, for each ring that has records, the sequence number after the last
// one accepted. Right after Open that is what is on disk: nothing when all that is
// left there is a segment that a full disk left without its first line.
func (w *Writer) Next() map[uint32]uint64 { return maps.Clone(w.accepted) }

// Ended reports whether the incarnation's end line was accepted or is on disk.
func (w *Writer) Ended() bool { return w.ended }

// Name returns the base name of the segment that is open, or was last, be it before
// a restart; "" before the first.
func (w *Writer) Name() string { return w.name }

// Bytes returns the size that the segment Name has when the buffer is flushed,
// rotation aside.
func (w *Writer) Bytes() int64 { return w.size + int64(len(w.buf)) }

// AppendRecord accepts one record. An error means that it was not accepted.
func (w *Writer) AppendRecord(r *record.Record) error {
	if err := w.ready(); err != nil {
		return err
	}

	start := len(w.buf)
	w.buf = r.AppendLine(w.buf)
	if err := w.bound(len(w.buf) - start); err != nil {
		w.buf = w.buf[:start]
		return err
	}

	w.accept(r.Ring, r.Seq)
	return nil
}

// AppendLine accepts one line of any kind but an identity (SetMeta), with or
// without its '\n'. An error means that it was not accepted.
func (w *Writer) AppendLine(line []byte) error {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if bytes.IndexByte(line, '\n') >= 0 || len(line) == 0 {
		return fmt.Errorf("append to segment: want one line, got %.80q", line)
	}

	if err := w.ready(); err != nil {
		return err
	}

	if err := w.bound(len(line) + 1); err != nil {
		return err
	}

	if err := w.note(line); err != nil {
		return err
	}

	w.buf = append(append(w.buf, line...), '\n')
	return nil
}

// note takes the position of a record and the end from a line.
func (w *Writer) note(line []byte) error {
	if !bytes.HasPrefix(line, []byte(`{"kind"`)) && !bytes.HasPrefix(line, []byte(`{"end"`)) && !bytes.HasPrefix(line, []byte(`{"meta"`)) {
		return nil
	}

	switch t, err := w.parser.Parse(line); {
	case err != nil:
		return fmt.Errorf("append to segment: %w", err)
	case t == record.LineRecord:
		w.accept(w.parser.Record.Ring, w.parser.Record.Seq)
	case t == record.LineEnd:
		w.ended = true
	case t == record.LineMeta:
		return errors.New("append to segment: identity lines are written by SetMeta")
	}

	return nil
}

// accept notes that a ring's record was accepted.
func (w *Writer) accept(ring uint32, seq uint64) { reach(w.accepted, ring, seq) }

// reach notes in next that a ring has come to a record. Ring 0 is no ring.
func reach(next map[uint32]uint64, ring uint32, seq uint64) {
	if ring != 0 && seq != math.MaxUint64 {
		next[ring] = max(next[ring], seq+1)
	}
}

// ready makes room in the buffer for one more line.
func (w *Writer) ready() error {
	switch {
	case w.closed:
		return errClosed
	case w.ended:
		return errEnded
	case len(w.buf) >= w.o.Buffer:
		return w.Flush()
	}

	return nil
}

// bound refuses a line of n bytes, '\n' included, that no segment would take.
func (w *Writer) bound(n int) error {
	if n-1 <= maxLine && int64(n) <= w.o.Limit-minLimit/4 {
		return nil
	}

	return fmt.Errorf("append to segment: %w: %d bytes", errTooLong, n)
}

// Flush writes the buffer. On an error the rest stays in the buffer.
func (w *Writer) Flush() error {
	if w.closed {
		return errClosed
	}

	var refused error
	for len(w.buf) > 0 || w.learnt && w.file != nil {
		if w.file != nil && w.o.Turn.Over(w.last) {
			w.rotate()
			continue
		}

		if w.file == nil {
			if err := w.create(); err != nil {
				return err
			}
		}

		if w.fresh || w.learnt {
			if full, err := w.identify(); err != nil {
				return err
			} else if full {
				w.rotate()
				continue
			}
		}

		n := w.fits()
		if n == 0 && len(w.buf) > 0 {
			if w.size > w.head {
				w.rotate()
				continue
			}

			refused = w.refuse() // the identity has grown since bound: nothing will do
			continue
		}

		if err := w.put(w.buf[:n], true); err != nil {
			return err
		}
	}

	return refused
}

// fits returns how much of the buffer, in whole lines, the open segment takes.
func (w *Writer) fits() int {
	room := w.o.Limit - w.size
	if int64(len(w.buf)) <= room {
		return len(w.buf)
	}

	if room <= 0 {
		return 0
	}

	return bytes.LastIndexByte(w.buf[:room], '\n') + 1
}

// refuse drops the first line of the buffer.
func (w *Writer) refuse() error {
	n := bytes.IndexByte(w.buf, '\n') + 1
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	return fmt.Errorf("append to segment: %w: %d bytes", errTooLong, n)
}

// put writes whole lines to the open segment. What a short write left of a line is
// cut off again, so that the line can be written once more, whole, elsewhere.
func (w *Writer) put(lines []byte, buffered bool) error {
	n, err := w.file.Write(lines)
	n = max(0, min(n, len(lines)))
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}

	w.dirty = w.dirty || n > 0
	if err == nil {
		w.advance(n, buffered)
		return nil
	}

	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	cut := w.file.Truncate(w.size + int64(whole))
	w.advance(whole, buffered)
	if w.size > 0 || cut != nil {
		w.abandon()
	}

	if w.size == 0 && cut != nil { // half a line and nothing else: no segment of anybody
		err = errors.Join(err, w.o.FS.Remove(w.path()))
	}

	return fmt.Errorf("write segment %s: %w", w.path(), err)
}

// advance counts n bytes of whole lines as written.
func (w *Writer) advance(n int, buffered bool) {
	w.size += int64(n)
	if !buffered || n == 0 {
		return
	}

	if n == len(w.buf) {
		w.allWritten()
		w.buf = w.buf[:0]
		return
	}

	for rest := w.buf[:n]; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if t, err := w.parser.Parse(rest[:i]); err == nil && t == record.LineRecord {
			reach(w.written, w.parser.Record.Ring, w.parser.Record.Seq)
		}

		rest = rest[i+1:]
	}

	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
}

// allWritten notes that all that was accepted is in segments.
func (w *Writer) allWritten() { maps.Copy(w.written, w.accepted) }

func (w *Writer) path() string { return filepath.Join(w.dir, w.name) }
