package ring

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// namesIn lists a directory: up to most names, -1 all, none when it was deleted under us. It
// opens the directory anew, because reading moves the offset of the descriptor that is read
// from.
func namesIn(dir, most int) ([]string, error) {
	fd, err := openAt(dir, ".", unix.O_DIRECTORY|unix.O_RDONLY, 0)
	var names []string
	if err == nil {
		d := os.NewFile(uintptr(fd), ".")
		defer d.Close()
		names, err = d.Readdirnames(most)
	}

	if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}

	return names, err
}

// Remove deletes the folder's files and the folder. First it takes the folder's name
// away, so that an agent that is killed here leaves nothing that looks like a
// process's folder; Sweep finishes it. The lock stays held until Close.
func (f *Folder) Remove() error {
	run, err := openRun(f.runDir)
	if err != nil {
		return fmt.Errorf("remove ring folder %s: %w", f.name, err)
	}
	defer unix.Close(run)
	name := f.name
	gone := "." + f.name + goneSuffix
	// Where the run directory lets nobody rename it may still let us empty the folder.
	if unix.Renameat(run, name, run, gone) == nil {
		name = gone
	}

	return remove(run, f.dir, name)
}

// remove deletes a folder that is open as dir, and the files in it. Those by which an agent
// takes it come last: what can't be removed has its turn when that is tried again, and so
// has what is beyond the bound, for a user may have filled the folder with names.
func remove(run, dir int, name string) error {
	files, err := namesIn(dir, math.MaxInt16)
	for _, last := range []bool{false, true} {
		for _, n := range files {
			if last != (n == ProcessName || n == LockName) {
				continue
			}

			if e := unix.Unlinkat(dir, n, 0); e != nil && !errors.Is(e, unix.ENOENT) {
				err = errors.Join(err, fmt.Errorf("remove %s of ring folder %s: %w", n, name, e))
			}
		}

		if err != nil {
			return err
		}
	}

	if err := unix.Unlinkat(run, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove ring folder %s: %w", name, err)
	}

	return nil
}

// readFull reads len(b) bytes at an offset. The error wraps ErrNotRing when the file is
// shorter: no recorder cuts its files, so somebody else has. Reading never faults as a
// mapping of such a file would.
func readFull(f *os.File, b []byte, at int64) error {
	_, err := f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", ErrNotRing, io.ErrUnexpectedEOF)
	}

	return err
}

// Load returns the content of a small file that Store wrote, nil when there is
// none: what lies there of another user, who may be the recorder's, is none of ours.
func (f *Folder) Load(name string, limit int) ([]byte, error) {
	file, size, uid, err := openFile(f.dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, ErrNotRing) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", name, f.name, err)
	}

	defer file.Close()
	if uid != uint32(unix.Geteuid()) && uid != 0 {
		return nil, nil
	}

	b := make([]byte, min(size, int64(limit)))
	if err := readFull(file, b, 0); err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", name, f.name, err)
	}

	return b, nil
}

// Store replaces a small file of the agent's in the folder as a whole: an agent that is
// killed here leaves the old one. Nothing is synced, as the folder lies in memory and ends
// with the host. Only the agent's user may read the file.
func (f *Folder) Store(name string, b []byte) error {
	fresh := "." + name + ".new"
	fd, err := openAt(f.dir, fresh, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s of %s: %w", name, f.name, err)
	}

	file := os.NewFile(uintptr(fd), name)
	_, err = file.WriteAt(b, 0)
	if err = errors.Join(err, file.Close()); err == nil {
		err = unix.Renameat(f.dir, fresh, f.dir, name)
	}

	if err != nil {
		return fmt.Errorf("write %s of %s: %w", name, f.name, err)
	}

	return nil
}

// setMode gives a new folder its mode whatever the umask is, and leaves it the
// setgid bit of its parent: that is how a pod's fsGroup shares it.
func setMode(dir int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}

	mode |= st.Mode & unix.S_ISGID
	if st.Mode&0o7777 == mode {
		return nil
	}

	return unix.Fchmod(dir, mode)
}

// openAt opens name below dir without following a symlink and without waiting
// for the other end of a FIFO.
func openAt(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, mode)
		if err == unix.EINTR {
			continue
		}

		if err != nil {
			return -1, fmt.Errorf("open %s: %w", name, err)
		}

		return fd, nil
	}
}

// rename moves from to a name that must not exist. Where the kernel or the file system
// can't promise that, a plain rename does it: a folder never replaces one with files in it,
// and the names of rings are given out under the process's lock.
func rename(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		err = unix.Renameat(dir, from, dir, to)
	}

	return err
}

// allocate makes a file of size zero bytes with all its pages in place, and maps
// it. A tmpfs that fills up later can then not raise SIGBUS.
func allocate(dir int, name string, size int64) (mem []byte, err error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && limit.Cur < math.MaxInt64 && int64(limit.Cur) < size {
		return nil, fmt.Errorf("allocate %s: %w", name, unix.EFBIG) // asking the kernel would raise SIGXFSZ
	}

	fd, err := openAt(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o660)
	if err != nil {
		return nil, err
	}

	defer func() {
		unix.Close(fd)
		if err != nil {
			err = errors.Join(err, unix.Unlinkat(dir, name, 0))
		}
	}()
	if err := unix.Fchmod(fd, 0o660); err != nil {
		return nil, fmt.Errorf("set mode of %s: %w", name, err)
	}

	for {
		err = unix.Fallocate(fd, 0, 0, size)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}

	if errors.Is(err, unix.EOPNOTSUPP) {
		err = writeZeros(fd, size)
	}

	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes for %s: %w", size, name, err)
	}

	mem, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}

	// The first store to a page faults. It happens here, not in a range.
	for i := 0; i < len(mem); i += page {
		mem[i] = 0
	}

	return mem, nil
}

// writeZeros fills a file on a file system without fallocate: holes would be filled when
// they are stored to, and a full disk would then be a SIGBUS in the trainer.
func writeZeros(fd int, size int64) error {
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := unix.Pwrite(fd, zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil && err != unix.EINTR {
			return err
		}

		at += int64(max(n, 0))
	}

	return nil
}
