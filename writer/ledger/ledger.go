// Package ledger is the local account of records: what was emitted, stored,
// summarised, aged and dropped, written down before it becomes true.
//
//	<dir>/.laggard/ledger    {"job":"j1","rank":0,"segment":"8d1f…","name":"1753000000","state":"aged","reason":"aged","records":812,…}
//
// Promise: when Append returns nil its rows are on the disk, all of them, once; when
// it returns an error none of them counts; when it does not return (a kill, a loss of
// power) all or none. A torn last line is cut off by the next Append or Open. Several
// processes may append: each holds flock on the file while it writes.
//
// Caveat: the file grows by a line an entry.
package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Where the ledger lies in a profiling directory: in a folder whose dot keeps it from being taken for a job.
const (
	folder = ".laggard"
	name   = "ledger"
)

// file is the ledger file as the Ledger uses it; tests put failures into it.
type file interface {
	segment.File
	io.ReaderAt
	Fd() uintptr
}

// Ledger appends to the account of one profiling directory. Its methods may be
// called from several goroutines.
type Ledger struct {
	path string
	open func(path string) (file, error) // openFile, but for tests

	mu sync.Mutex
	f  file
	// What a failed Append left in the file, to be removed before the next: see write.
	staleFrom, staleTo int64
}

// Path returns where the ledger of a profiling directory is.
func Path(dir string) string { return filepath.Join(dir, folder, name) }

// Open opens the ledger of a profiling directory, makes it when it is missing, and
// cuts off a torn last line.
func Open(dir string) (*Ledger, error) { return openWith(dir, openFile) }

// openWith is Open with the file that open returns.
func openWith(dir string, open func(path string) (file, error)) (*Ledger, error) {
	l := &Ledger{path: Path(dir), open: open}
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("open ledger of %s: %w", dir, err)
	}

	if err := l.reopen(); err != nil {
		return nil, err
	}

	err := l.locked(func() error {
		_, err := l.repair()
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", l.path, err), l.f.Close())
	}

	return l, nil
}

// makeFolder makes <dir>/.laggard, durably.
func makeFolder(dir string) error {
	path := filepath.Join(dir, folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	switch err := os.Mkdir(path, 0o755); {
	case errors.Is(err, fs.ErrExist):
		st, err := os.Lstat(path)
		if err == nil && !st.IsDir() {
			return fmt.Errorf("%s is no directory: remove it", path)
		}

		return err
	case err != nil:
		return err
	}

	return keep.SyncDir(dir)
}

// openFile opens or makes the ledger's file. A link or a pipe in its place is refused without waiting
// for it, and a new file's name is durable before the first entry is.
func openFile(path string) (file, error) {
	// O_APPEND: another process's lines, written since we looked, stay.
	const flag = unix.O_RDWR | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	f, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, err
	}

	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: remove it", path)
	}

	if err == nil {
		err = keep.SyncDir(filepath.Dir(path))
	}

	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

// reopen opens the file that has the name now, in place of the one that was open.
func (l *Ledger) reopen() error {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}

	f, err := l.open(l.path)
	if err != nil {
		return fmt.Errorf("open ledger %s: %w", l.path, err)
	}

	l.f = f
	return nil
}

// locked runs do while no other process appends. One whose Append failed may have put
// another file in our one's place: then that one is opened first.
func (l *Ledger) locked(do func() error) error {
	for {
		if l.f == nil {
			if err := l.reopen(); err != nil {
				return err
			}
		}

		f := l.f
		if err := flock(f, unix.LOCK_EX); err != nil {
			return fmt.Errorf("lock: %w", err)
		}

		current, err := l.current()
		if err == nil && current {
			err = do()
		}

		if l.f == f { // do may have let go of it, and of the lock with it
			err = errors.Join(err, flock(f, unix.LOCK_UN))
		}

		if err != nil || current {
			return err
		}

		if err := l.reopen(); err != nil {
			return err
		}
	}
}

// flock locks or unlocks, through signals. The lock ends with the process, however that ends.
func flock(f file, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// current reports whether the open file is the one that has the name.
func (l *Ledger) current() (bool, error) {
	mine, err := l.f.Stat()
	if err != nil {
		return false, err
	}

	named, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	return err == nil && os.SameFile(mine, named), err
}

// repair cuts off what follows the last '\n' and returns the size that is left. The
// lock is held.
func (l *Ledger) repair() (int64, error) {
	st, err := l.f.Stat()
	if err != nil {
		return 0, err
	}

	size := st.Size()
	end := size
	buf := make([]byte, 4096)
	for end > 0 {
		b := buf[:min(int64(len(buf)), end)]
		if _, err := l.f.ReadAt(b, end-int64(len(b))); err != nil {
			return 0, err
		}

		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			end += int64(i + 1 - len(b))
			break
		}

		end -= int64(len(b))
	}

	if end == size {
		return size, nil
	}

	if err := l.f.Truncate(end); err != nil {
		return 0, fmt.Errorf("cut torn line: %w", err)
	}

	return end, l.f.Sync()
}

// Append writes rows durably. After an error none of them counts; call it again
// with the same rows.
func (l *Ledger) Append(rows ...row.Ledger) error {
	if len(rows) == 0 {
		return nil
	}

	var lines []byte
	for i := range rows {
		part, of := i+1, len(rows)
		if of == 1 {
			part, of = 0, 0
		}

		lines = appendLine(lines, entry{rows[i], part, of})
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.clean()
	if err == nil {
		err = l.locked(func() error { return l.write(lines) })
	}

	if err != nil {
		return fmt.Errorf("append to ledger %s: %w", l.path, err)
	}

	return nil
}

// clean removes what a failed Append could not take back at once.
func (l *Ledger) clean() error {
	if l.staleTo == 0 {
		return nil
	}

	return l.locked(l.drop)
}

// write appends whole lines and syncs. On an error it takes back what it wrote.
func (l *Ledger) write(lines []byte) error {
	size, err := l.repair()
	if err != nil {
		return err
	}

	n, err := l.f.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}

	if err == nil {
		if err = l.f.Sync(); err == nil {
			return nil
		}
	}

	// Take back what was written: in the file, or by a copy without it.
	undo := l.f.Truncate(size)
	to := size
	if undo != nil { // another process's repair may cut the torn rest, never whole lines
		to += int64(bytes.LastIndexByte(lines[:max(0, min(n, len(lines)))], '\n') + 1)
	} else {
		undo = l.f.Sync()
	}

	if undo == nil {
		return err
	}

	l.staleFrom, l.staleTo = size, to
	if again := l.drop(); again != nil {
		return errors.Join(err, undo, again)
	}

	return err
}

// drop replaces the file by a copy without the stale lines of a failed Append. The lock
// is held, and goes with the old file: whoever waits for it finds that the name is
// another's now, and opens that.
func (l *Ledger) drop() error {
	if err := keep.Sweep(filepath.Dir(l.path)); err != nil {
		return err
	}

	err := keep.Replace(l.path, 0o644, func(w io.Writer) error {
		st, err := l.f.Stat()
		if err != nil {
			return err
		}

		size := st.Size()
		if err := l.copyTo(w, 0, min(l.staleFrom, size)); err != nil {
			return err
		}

		return l.copyTo(w, min(l.staleTo, size), size)
	})
	if err != nil {
		return err
	}

	l.staleFrom, l.staleTo = 0, 0 // of the old file: the new one has other lines there
	err = l.f.Close()
	l.f = nil

	return err
}

// copyTo copies bytes [from, to) of the file, all of them.
func (l *Ledger) copyTo(w io.Writer, from, to int64) error {
	n, err := io.Copy(w, io.NewSectionReader(l.f, from, to-from))
	if err == nil && n != to-from {
		err = io.ErrUnexpectedEOF
	}

	return err
}

// Close removes what a failed Append left behind, the last time it can be, and closes
// the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.clean()
	if l.f != nil {
		err = errors.Join(err, l.f.Close())
		l.f = nil
	}

	if err != nil {
		return fmt.Errorf("close ledger %s: %w", l.path, err)
	}

	return nil
}
