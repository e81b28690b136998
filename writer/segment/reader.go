package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

const (
	// readSize is what is read at once, and the least that a Reader's buffer holds; lines that are longer
	// make it grow, up to maxLine.
	readSize = 128 << 10
	// maxInflated bounds what a compressed segment may hold: one of ours inflates
	// to its limit, a bomb to anything.
	maxInflated = 4 << 30
	// maxWindow bounds the decoder's memory: RFC 8878 wants 8 MiB of every decoder, and
	// ours are written with 4.
	maxWindow = 8 << 20
)

// ErrTruncated is returned by Reader.Next, wrapped, when the file became shorter
// than what was read of it: another generation of the file is in its place.
var ErrTruncated = errors.New("file became shorter")

// Reader reads the complete lines of one segment, plain or compressed. A plain one
// may grow meanwhile: Next after io.EOF looks again. A compressed one that is damaged
// ends where it can't be read on, see Damage. It is not safe for concurrent use.
type Reader struct {
	f    *os.File
	z    *zstd.Decoder // nil for a plain segment
	buf  []byte
	r, w int   // unread bytes are buf[r:w]
	seen int   // bytes of them, from r on, known to hold no '\n'
	off  int64 // offset of buf[r]; of a compressed segment: in what it inflates to

	damage error // why a compressed segment ends before its end, nil: it does not

	skipping bool  // within a line that is too long,
	from     int64 // which began here
	// skippedLines were too long to be returned, and skippedBytes their length.
	skippedLines, skippedBytes int64
}

// OpenReader opens a segment. Neither the file nor the two directories above it
// may be symbolic links; what is no regular file is not opened.
func OpenReader(path string) (*Reader, error) {
	f, err := openAt(path, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open segment %s: %w", path, err)
	}

	r := &Reader{f: f, buf: make([]byte, readSize)}
	if filepath.Ext(path) == compressed {
		r.z, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("open segment %s: %w", path, err)
		}
	}

	return r, nil
}

// Next returns the next complete line without its '\n', and the offset of its
// first byte. The line is valid until the next call. At the end it returns io.EOF;
// what follows the last '\n' is kept for a later call and told by Torn.
func (r *Reader) Next() (line []byte, offset int64, err error) {
	for {
		if i := bytes.IndexByte(r.buf[r.r+r.seen:r.w], '\n'); i >= 0 {
			n := r.seen + i
			line, offset = r.buf[r.r:r.r+n], r.off
			r.take(n + 1)
			if !r.skipping && n <= maxLine {
				return line, offset, nil
			}

			r.skippedLines++
			r.skippedBytes += int64(n + 1)
			r.skipping = false
			continue
		}

		r.seen = r.w - r.r
		if r.seen > maxLine && !r.skipping {
			r.skipping, r.from = true, r.off
		}

		if r.skipping {
			r.skippedBytes += int64(r.seen)
			r.take(r.seen)
		}

		if err := r.fill(); err != nil {
			return nil, r.Offset(), err
		}
	}
}

// More reports whether the next line is in memory already.
func (r *Reader) More() bool {
	if i := bytes.IndexByte(r.buf[r.r+r.seen:r.w], '\n'); i >= 0 {
		r.seen += i
		return true
	}

	return false
}

// Damage tells, after io.EOF, why a compressed segment could not be read to its end. It
// will not get better: what stands before the damage is all there is. nil is no damage.
func (r *Reader) Damage() error { return r.damage }

// take drops n unread bytes.
func (r *Reader) take(n int) {
	r.r += n
	r.off += int64(n)
	r.seen = 0
}

// fill reads more into the buffer, which it moves and grows as needed.
func (r *Reader) fill() error {
	// What is unread is moved only where there is no room behind it.
	if r.r > 0 && (r.r == r.w || r.w == len(r.buf)) {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}

	if r.w == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}

	src := io.Reader(r.f)
	if r.z != nil {
		if src = r.z; r.off > maxInflated {
			return r.damaged(fmt.Errorf("inflates to more than %d bytes", int64(maxInflated)))
		}
	} else if r.skipping {
		if err := r.leap(); err != nil {
			return err
		}
	}

	n, err := src.Read(r.buf[r.w:])
	r.w += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return fmt.Errorf("read segment %s: %w", r.f.Name(), io.ErrNoProgress)
	case errors.Is(err, io.EOF):
		return r.end()
	case r.z != nil && !ofSystem(err):
		return r.damaged(err)
	}

	return fmt.Errorf("read segment %s: %w", r.f.Name(), err)
}

// damaged ends a compressed segment at its damage.
func (r *Reader) damaged(err error) error {
	r.damage = fmt.Errorf("read segment %s: %w", r.f.Name(), err)
	return io.EOF
}

// ofSystem reports whether an error is the system's: another look may do better.
func ofSystem(err error) bool {
	_, ok := errors.AsType[unix.Errno](err)
	return ok
}

// end tells the end of a file from one that was cut.
func (r *Reader) end() error {
	if r.z != nil {
		return io.EOF
	}

	st, err := r.f.Stat()
	if err != nil {
		return fmt.Errorf("read segment: %w", err)
	}

	if at := r.off + int64(r.w-r.r); st.Size() < at {
		return fmt.Errorf("read segment %s: %w: %d bytes, %d were read", r.f.Name(), ErrTruncated, st.Size(), at)
	}

	return io.EOF
}

// leap skips a hole in a sparse file: a terabyte of zeros costs nothing to plant,
// so it must not cost a terabyte of reading. Nothing is buffered here.
func (r *Reader) leap() error {
	data, err := unix.Seek(int(r.f.Fd()), r.off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // no data up to the end
		data, err = r.f.Seek(0, io.SeekEnd)
	}

	if err != nil || data <= r.off {
		data = r.off // a file system without SEEK_DATA: read on
	}

	r.skippedBytes += data - r.off
	r.off = data
	if _, err := r.f.Seek(data, io.SeekStart); err != nil {
		return fmt.Errorf("read segment: %w", err)
	}

	return nil
}

// Offset returns the offset after the last line that Next returned or skipped.
func (r *Reader) Offset() int64 {
	if r.skipping {
		return r.from
	}

	return r.off
}

// Rest gives back the memory that a long line took, for a reader that is not used for a
// while: what was read beyond the last line of a plain segment is read again.
func (r *Reader) Rest() error {
	if r.z != nil || len(r.buf) <= readSize {
		return nil
	}

	if _, err := r.f.Seek(r.off, io.SeekStart); err != nil {
		return fmt.Errorf("seek segment: %w", err)
	}

	r.buf, r.r, r.w, r.seen = make([]byte, readSize), 0, 0, 0
	return nil
}

// Torn returns the bytes after the last '\n', as of the last io.EOF; 0 before a damage,
// behind which more is lost than a line.
func (r *Reader) Torn() int64 {
	if r.damage != nil {
		return 0
	}

	return r.off + int64(r.w-r.r) - r.Offset()
}

// Skipped returns how many lines were too long to be returned so far, and their bytes: of one that
// is being skipped what was read of it.
func (r *Reader) Skipped() (lines, bytes int64) { return r.skippedLines, r.skippedBytes }

// SeekTo makes Next go on at offset, which must be the beginning of a line. In a
// compressed segment going back means reading from its start.
func (r *Reader) SeekTo(offset int64) error {
	r.r, r.w, r.seen, r.skipping, r.damage = 0, 0, 0, false, nil
	if r.z == nil {
		if _, err := r.f.Seek(offset, io.SeekStart); err != nil {
			return fmt.Errorf("seek segment: %w", err)
		}

		r.off = offset
		return nil
	}

	if _, err := r.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("seek segment: %w", err)
	}

	if err := r.z.Reset(r.f); err != nil {
		return fmt.Errorf("seek segment %s: %w", r.f.Name(), err)
	}

	n, err := io.CopyN(io.Discard, r.z, offset)
	r.off = n
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("seek segment %s: %w: it has %d bytes, not %d", r.f.Name(), ErrTruncated, n, offset)
	}

	if err != nil {
		return fmt.Errorf("seek segment %s: %w", r.f.Name(), err)
	}

	return nil
}

// Info describes the open file as it is now: links 0 when it was unlinked.
func (r *Reader) Info() (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.f.Fd()), &st); err != nil {
		return Info{}, fmt.Errorf("stat segment %s: %w", r.f.Name(), err)
	}

	return infoOf(filepath.Base(r.f.Name()), &st)
}

// Close closes the file.
func (r *Reader) Close() error {
	if r.z != nil {
		r.z.Close()
	}

	return r.f.Close()
}
