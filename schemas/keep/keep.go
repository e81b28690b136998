// Package keep writes files that must survive a crash of their writer or of the machine.
//
// Invariant: under its name a file is complete, the old one or the new one: it is written
// beside, synced, renamed, and the directory synced. The half that is being written is locked
// by its writer until it has its name, so Sweep takes only those of writers that are gone.
//
// Caveat: who owns a directory sweeps it. It must not be one that others may write: links in
// the path to it are followed.
package keep

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Half begins the names of files that are not complete.
const Half = ".new-"

// Read returns a regular file of at most most bytes. A link in its place is an error.
func Read(path string, most int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: %w: want a file of at most %d bytes", path, ErrNotKept, most)
	}

	data = make([]byte, info.Size())
	_, err = io.ReadFull(f, data)

	return data, err
}

// ErrNotKept is that something else is in a file's place.
var ErrNotKept = errors.New("not a file of ours")

// Write replaces the file by data.
func Write(path string, mode fs.FileMode, data []byte) error {
	return Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)

		return err
	})
}

// Replace has a file appear as fill writes it. After an error the old one is there, unless only
// the directory could not be synced: then it is the new one, which a loss of power may take.
func Replace(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), Half+"*")
	if err != nil {
		return err
	}

	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = fill(f)
	}

	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}

	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}

	return errors.Join(f.Close(), SyncDir(filepath.Dir(path)))
}

// Try finds out whether a directory takes bytes: it writes a page of them, and removes it.
func Try(dir string) error {
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}

	_, err = f.Write(make([]byte, os.Getpagesize()))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// SyncDir makes the names in a directory durable, where the file system can.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}

	err = d.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}

	return errors.Join(err, d.Close())
}

// Sweep removes what writers that are gone left half done in a directory.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}

	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), Half) {
			continue
		}

		if err := removeLeft(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep %s: %w", dir, err)
		}
	}

	return nil
}

// removeLeft removes a half unless its writer lives.
func removeLeft(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()

	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}

	return os.Remove(path)
}
