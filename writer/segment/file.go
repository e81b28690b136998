package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is one segment open for appending.
type File interface {
	io.Writer
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// FS is everything that a Writer does to the disk; tests put failures into it. A
// path's last three parts (job, rank, file) are never followed through a symbolic
// link.
type FS interface {
	// Mkdir makes a rank directory and those above it.
	Mkdir(rankDir string) error
	// Create makes a file that must not exist and opens it for appending.
	Create(path string) (File, error)
	// Append opens an existing regular file for appending.
	Append(path string) (File, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	Remove(path string) error
}

// errLink is returned, with the path, where one of its last three parts is a link: whoever may write one of the
// directories could have the agent write elsewhere.
var errLink = errors.New("is a symbolic link, which laggard does not follow here")

// Disk is the real FS.
var Disk FS = disk{}

// disk opens each directory by its parent's descriptor, so that nothing can be put in between.
type disk struct{}

func (disk) Create(path string) (File, error) {
	return openAt(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_APPEND)
}

func (disk) Append(path string) (File, error) { return openAt(path, unix.O_WRONLY|unix.O_APPEND) }

// SyncDir implements FS.
func (disk) SyncDir(path string) error {
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return syncFile(dir)
}

// Remove implements FS.
func (disk) Remove(path string) error {
	dir, err := walkTo(filepath.Dir(path), unix.O_PATH)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), filepath.Base(path), 0); err != nil {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}

	return nil
}

// Mkdir makes a rank's directory and the job's above it, each by the descriptor of its parent: a link
// that another user puts in between is not followed.
func (disk) Mkdir(rankDir string) error {
	base, parts := split(rankDir, 2)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}

	dir, err := os.Open(base)
	if err != nil {
		return err
	}

	for _, part := range parts {
		next, err := mkdirAt(dir, part)
		dir.Close()
		if err != nil {
			return err
		}

		dir = next
	}

	return dir.Close()
}

// mkdirAt makes a directory in an open one, durably, and opens it. That it is
// there already is no error.
func mkdirAt(dir *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(dir.Fd()), name, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(dir.Name(), name), Err: err}
	}

	if made {
		if err := syncFile(dir); err != nil {
			return nil, err
		}
	}

	return descend(dir, name, unix.O_RDONLY)
}

// syncFile is fsync of a directory; not every file system can, which is no error.
func syncFile(dir *os.File) error {
	err := retry(func() error { return unix.Fsync(int(dir.Fd())) })
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return &fs.PathError{Op: "fsync", Path: dir.Name(), Err: err}
	}

	return nil
}

// Remove unlinks the segment s of a rank directory, when it is still the file that
// s describes.
func Remove(rankDir string, s Info) error {
	dir, err := openDir(rankDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	now, err := statAt(dir, s.Name)
	if err != nil {
		return err
	}

	if now.Inode != s.Inode || now.Device != s.Device {
		return fmt.Errorf("remove %s: it is another file now", filepath.Join(rankDir, s.Name))
	}

	if err := unix.Unlinkat(int(dir.Fd()), s.Name, 0); err != nil {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(rankDir, s.Name), Err: err}
	}

	return nil
}

// split cuts the last n parts off a path.
func split(path string, n int) (base string, parts []string) {
	base = filepath.Clean(path)
	for range n {
		name := filepath.Base(base)
		if name == "." || name == ".." || name == string(filepath.Separator) {
			break
		}

		parts = append([]string{name}, parts...)
		base = filepath.Dir(base)
	}

	return base, parts
}

// openDir opens a directory for reading; neither it nor the one above it may be a
// symbolic link (they are a rank's and a job's).
func openDir(path string) (*os.File, error) { return walkTo(path, unix.O_RDONLY) }

// walkTo opens a directory part by part, its last two without following links: the name that was
// checked is the one that is opened. The ones above need to be searched only.
func walkTo(path string, flag int) (*os.File, error) {
	base, parts := split(path, 2)
	baseFlag := unix.O_PATH
	if len(parts) == 0 {
		baseFlag = flag
	}

	fd, err := unix.Open(base, baseFlag|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: base, Err: err}
	}

	dir := os.NewFile(uintptr(fd), base)
	for i, part := range parts {
		f := unix.O_PATH
		if i == len(parts)-1 {
			f = flag
		}

		next, err := descend(dir, part, f)
		dir.Close()
		if err != nil {
			return nil, err
		}

		dir = next
	}

	return dir, nil
}

// descend opens a directory in an open directory.
func descend(dir *os.File, name string, flag int) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), name, flag|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				err = errLink
			}
		}

		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	return os.NewFile(uintptr(fd), path), nil
}

// openAt opens a regular file. It looks before it opens, so that a device is not
// even touched, and again at what it has opened: somebody may have exchanged it in between.
func openAt(path string, flag int) (*os.File, error) {
	dir, err := walkTo(filepath.Dir(path), unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(path)
	if flag&unix.O_CREAT == 0 {
		if _, err := statAt(dir, name); err != nil {
			return nil, err
		}
	}

	// A pipe in its place would be waited for: O_NONBLOCK, which is taken off once it is known to be a file.
	flag |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	var fd int
	err = retry(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), name, flag, 0o644)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		_, err = infoOf(name, &st)
	}

	if err == nil {
		err = unix.SetNonblock(fd, false)
	}

	if err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	return os.NewFile(uintptr(fd), path), nil
}

// eachName calls f for every name in a directory, in no order.
func eachName(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// dirError names a directory that can't be read, as an fs.PathError, the cause, and what to do.
func dirError(path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok && pe.Path == path {
		err = pe.Err
	}

	advice := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		advice = " (check the path: laggard reads a profiling, job or rank directory)"
	case errors.Is(err, fs.ErrPermission):
		advice = " (run laggard as the directory's owner, or give it read and execute permission there)"
	case errors.Is(err, unix.ENOTDIR):
		advice = " (name the directory that holds the file, not the file)"
	}

	return fmt.Errorf("%w%s", &fs.PathError{Op: "read directory", Path: path, Err: err}, advice)
}
