package ring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Names returns the names of the folders in a run directory that could be a
// process's, sorted. A run directory that does not exist (yet) has none.
func Names(runDir string) ([]string, error) {
	run, err := openRun(runDir)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("list run directory: %w", err)
	}

	defer unix.Close(run)
	all, err := namesIn(run, -1)
	if err != nil {
		return nil, fmt.Errorf("list run directory: %w", err)
	}

	names := slices.DeleteFunc(all, func(n string) bool {
		_, suffix, ok := parseName(n)
		return !ok || suffix != ""
	})
	slices.Sort(names)
	return names, nil
}

const (
	newSuffix  = ".new"  // of a folder that its recorder is making
	goneSuffix = ".gone" // of one that an agent is removing
)

// parseName reads a folder's name: 16 lower-case hex digits; with a dot before them and a
// suffix behind while the folder is made or removed.
func parseName(name string) (id record.ID, suffix string, ok bool) {
	hex, hidden := strings.CutPrefix(name, ".")
	if hidden {
		suffix = filepath.Ext(hex)
		hex = strings.TrimSuffix(hex, suffix)
	}

	v, err := strconv.ParseUint(hex, 16, 64)
	id = record.ID(v)
	return id, suffix, err == nil && id.String() == hex && hidden == (suffix == newSuffix || suffix == goneSuffix)
}

// Sweep removes folders that a recorder was killed over while it made them, when
// nothing has changed in them since before, and those that an agent was killed over
// while it removed them: they have another name, or nothing in them any more but a
// lock. It returns how many.
func Sweep(runDir string, before time.Time) (int, error) {
	run, err := openRun(runDir)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}

	if err != nil {
		return 0, fmt.Errorf("sweep run directory: %w", err)
	}

	defer unix.Close(run)
	names, err := namesIn(run, -1)
	if err != nil {
		return 0, fmt.Errorf("sweep run directory: %w", err)
	}

	n := 0
	var errs []error
	for _, name := range names {
		if !abandoned(run, name, before) {
			continue
		}

		if err := removeUnnamed(run, name); err != nil {
			errs = append(errs, err)
			continue
		}

		n++
	}

	return n, errors.Join(errs...)
}

// abandoned reports whether a folder is one that nobody will finish: half made, half
// removed, or emptied by an agent that could not rename it. What is half made or emptied
// must be old, because its recorder or agent may be at it; what has the name of removed
// folders may go at once.
func abandoned(run int, name string, before time.Time) bool {
	_, suffix, ok := parseName(name)
	var st unix.Stat_t
	if !ok || unix.Fstatat(run, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}

	old := time.Unix(st.Mtim.Unix()).Before(before)
	return suffix == goneSuffix || old && (suffix == newSuffix || emptied(run, name))
}

// emptied reports whether a folder has a process's name and no file but a lock.
func emptied(run int, name string) bool {
	fd, err := openAt(run, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return false
	}

	defer unix.Close(fd)
	files, err := namesIn(fd, 2)
	return err == nil && (len(files) == 0 || len(files) == 1 && files[0] == LockName)
}

// OwnerOf returns the uid of a folder in a run directory, without opening it.
func OwnerOf(runDir, name string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(runDir, name), &st); err != nil {
		return 0, fmt.Errorf("stat ring folder %s: %w", name, err)
	}

	return st.Uid, nil
}

// removeUnnamed removes a folder that has not got its name yet, or has it no more.
func removeUnnamed(run int, name string) error {
	dir, err := openAt(run, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return nil // there is none
	}
	defer unix.Close(dir)
	return remove(run, dir, name)
}

// openRun opens the run directory, which may be no link.
func openRun(runDir string) (int, error) {
	return openAt(unix.AT_FDCWD, filepath.Clean(runDir), unix.O_DIRECTORY|unix.O_RDONLY, 0) // see OpenRunDir for Clean
}

// OpenRunDir opens the run directory, following no symlink at its name, and makes it when
// it is missing.
func OpenRunDir(path string) (int, error) {
	path = filepath.Clean(path) // behind a slash at the end a link would be followed
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return -1, fmt.Errorf("make run directory: %w", err)
	}

	made := unix.Mkdir(path, 0o777)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, fmt.Errorf("make run directory %s: %w", path, made)
	}

	fd, err := openAt(unix.AT_FDCWD, path, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return -1, err
	}

	if made == nil {
		if err := setMode(fd, 0o1777); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("set mode of run directory %s: %w", path, err)
		}
	}

	return fd, nil
}
