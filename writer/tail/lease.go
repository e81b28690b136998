package tail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names of the files in a rank directory that say who ships it. They begin with a
// dot, so no reader of segments looks at them.
const (
	leaseName = ".lease"
	claimName = ".claim"
)

// ErrLeased is returned by TakeLease for a directory that another process ships.
var ErrLeased = errors.New("leased by another process")

// Lease is the right to ship one rank directory: a lock that the kernel drops
// when the process is gone, however it goes.
type Lease struct {
	file  *os.File
	claim *os.File // held by one whose ring the rank is, so that others give it up
	dir   string
	own   bool // claim is wanted
	read  bool // the directory can't be written or locked: nobody can lease it
}

// TakeLease takes the lease of a rank directory, or returns ErrLeased. With claim
// a process says that the rank is its own: who holds the lease for a foreign
// directory sees it (Claimed) and hands it over. In a directory that can't be
// written there is no lease, and nothing keeps another process from shipping it as
// well.
//
// With ErrLeased the Lease is valid all the same: it holds the claim, and Retry
// asks again.
func TakeLease(dir string, claim bool) (*Lease, error) {
	l := &Lease{dir: dir, own: claim}
	return l, l.Retry()
}

// Retry asks again for a lease that was refused.
func (l *Lease) Retry() error {
	if l.held() {
		return nil
	}

	var err error
	if l.own && l.claim == nil {
		l.claim, err = lock(filepath.Join(l.dir, claimName))
		if err != nil && !errors.Is(err, ErrLeased) && !unlockable(err) {
			return fmt.Errorf("claim %s: %w", l.dir, err)
		}
	}

	l.file, err = lock(filepath.Join(l.dir, leaseName))
	if unlockable(err) {
		l.read, err = true, nil
	}

	if err != nil {
		return fmt.Errorf("lease %s: %w", l.dir, err)
	}

	return nil
}

// held reports whether the lease was granted (or there is none to be had).
func (l *Lease) held() bool { return l.file != nil || l.read }

// Claims reports whether the lease, held or not, has its claim's file open.
func (l *Lease) Claims() bool { return l.claim != nil }

// Claimed reports whether the process whose ring the rank is wants the lease.
func (l *Lease) Claimed() bool {
	return l.claim == nil && !l.read && locked(filepath.Join(l.dir, claimName))
}

// Leased reports whether a process ships a rank directory now.
func Leased(dir string) bool { return locked(filepath.Join(dir, leaseName)) }

// locked reports whether a file is there and another process has it locked. A shared lock
// is asked for, so that two who look at once don't take each other for its holder.
func locked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK)
}

// Close gives lease and claim up, and removes their files. One that can't be removed
// stays, unlocked: whoever comes next locks it again.
func (l *Lease) Close() error {
	var errs []error
	for _, f := range []**os.File{&l.file, &l.claim} {
		if *f != nil {
			// Under the lock: whoever waits for it sees that its file is not there any more.
			_ = os.Remove((*f).Name())
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}

	return errors.Join(errs...)
}

// lock opens (makes) a file and locks it. The file that is locked is the one of
// that name: one that was removed meanwhile is let go.
func lock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o664)
		if err != nil {
			return nil, err
		}

		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return nil, errors.Join(errors.New("not a regular file"), err, f.Close())
		}

		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = ErrLeased
			}

			return nil, errors.Join(err, f.Close())
		}

		if now, err := os.Lstat(path); err == nil && os.SameFile(info, now) {
			return f, nil
		}

		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// unlockable reports an error of a directory in which no lock can be had: it is
// read-only, or its file system has none.
func unlockable(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) ||
		errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EOPNOTSUPP)
}
