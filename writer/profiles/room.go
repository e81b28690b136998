package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	roomPattern = "laggard-profiles-*"
	roomLock    = ".lock"
	// youngest is the age below which a folder without a lock is one that is being made.
	youngest = time.Minute
)

// room makes a temporary folder that is locked as long as this process lives, and removes those of
// processes that were killed.
func room() (dir string, lock *os.File, err error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), roomPattern)) // the pattern is right
	for _, o := range old {
		if deserted(o) {
			os.RemoveAll(o)
		}
	}

	if dir, err = os.MkdirTemp("", roomPattern); err != nil {
		return "", nil, err
	}

	lock, err = os.OpenFile(filepath.Join(dir, roomLock), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}

	if err != nil {
		return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(dir))
	}

	return dir, lock, nil
}

// deserted reports whether a folder is this user's and nobody holds it any more.
func deserted(dir string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Getuid()) {
		return false
	}

	f, err := os.OpenFile(filepath.Join(dir, roomLock), os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return time.Since(time.Unix(st.Mtim.Unix())) > youngest
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
