package watch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/schemas/keep"
)

// The state directory has one file a job: a cache of what was learnt, never the only copy of anything.
// What it has lost is read from the source again.
//
// Invariant: a file is complete or not there: written beside, synced, renamed.
const (
	stateSuffix = ".watch"
	// maxState bounds what is read: 16,384 ranks take about 60 MB.
	maxState = 1 << 30
)

// Lock makes a state directory and takes it until the file is closed: no watcher runs
// on it. The file named lock stays: a lock is held on what is open, and to remove it would let two
// processes lock two files of one name.
func Lock(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}

	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}

	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock state directory %s: %w: another `laggard watch` uses it; give each its own --state", path, err), lock.Close())
	}

	return lock, nil
}

// stateFile names a job's file: readable where it can be, unique always.
func (w *Watcher) stateFile(job string) string {
	// Two names may look alike when cleaned, so the hash tells them apart.
	sum := sha256.Sum256([]byte(job))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}

		return '_'
	}, job)
	return filepath.Join(w.o.StateDir, clean[:min(len(clean), 40)]+"-"+hex.EncodeToString(sum[:8])+stateSuffix)
}

// load returns a job as it was saved. fs.ErrNotExist and detect.ErrState mean: begin anew.
func (w *Watcher) load(name string) (j *job, err error) {
	path := w.stateFile(name)
	data, err := keep.Read(path, maxState)
	if errors.Is(err, keep.ErrNotKept) {
		err = errors.Join(err, detect.ErrState)
	}

	if err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}

	if j, err = decode(data, w.cfg); err != nil {
		return nil, fmt.Errorf("load state %s: %w", path, err)
	}

	// Somebody may have renamed or copied a file.
	if j.Job != name {
		return nil, fmt.Errorf("load state %s: %w: it is job %q's", path, detect.ErrState, j.Job)
	}

	return j, nil
}

// stateAge is how long the state of a job that is not looked at is kept.
const stateAge = 30 * 24 * time.Hour

// sweepStates removes what is older from a state directory, and halves that a crash left.
func sweepStates(dir string, before time.Time) error {
	if err := keep.Sweep(dir); err != nil {
		return fmt.Errorf("sweep state directory: %w", err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep state directory: %w", err)
	}

	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}

		if strings.HasSuffix(e.Name(), stateSuffix) && info.ModTime().Before(before) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("sweep state directory: %w", err)
			}
		}
	}

	return nil
}
