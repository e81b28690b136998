package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// RankDir is one rank's directory.
type RankDir struct {
	record.RankID
	Path string // absolute, without symbolic links
}

// Walk returns the rank directories under root, sorted by job and rank. root may
// be the profiling directory, one job's or one rank's directory; which it is,
// Walk tells from what is in it. Symbolic links below root are not followed, names
// with a dot in front and what is no rank number are skipped. A directory that
// can't be read is part of the error (an fs.PathError, joined); the others are returned
// all the same.
func Walk(root string) ([]RankDir, error) {
	abs, err := resolve(root)
	if err != nil {
		return nil, err
	}

	dirs, segments, err := look(abs)
	if err != nil {
		return nil, err
	}

	if segments && !hasRanksBelow(abs, dirs) {
		rank, ok := rankOf(filepath.Base(abs))
		if !ok {
			return nil, fmt.Errorf("read directory %s: it holds segments but its name is no rank number (want <dir>/<job>/<rank>/<segment>)", root)
		}

		return []RankDir{{record.RankID{Job: filepath.Base(filepath.Dir(abs)), Rank: rank}, abs}}, nil
	}

	if isJob(abs, dirs) {
		ranks := jobRanks(abs, dirs)
		return ranks, errors.Join(unreadable(ranks)...)
	}

	return profiling(abs, dirs)
}

// Ranks is Walk for a directory that is known to be the profiling directory: it
// guesses nothing.
func Ranks(dir string) ([]RankDir, error) {
	abs, err := resolve(dir)
	if err != nil {
		return nil, err
	}

	dirs, _, err := look(abs)
	if err != nil {
		return nil, err
	}

	return profiling(abs, dirs)
}

// profiling returns the rank directories of the jobs in a profiling directory.
func profiling(dir string, jobs []string) ([]RankDir, error) {
	var all []RankDir
	var errs []error
	for _, job := range jobs {
		path := filepath.Join(dir, job)
		dirs, _, err := look(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}

		if err != nil {
			errs = append(errs, err)
			continue
		}

		ranks := jobRanks(path, dirs)
		errs = append(errs, unreadable(ranks)...)
		all = append(all, ranks...)
	}

	slices.SortFunc(all, func(a, b RankDir) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank))
	})
	return all, errors.Join(errs...)
}

// jobRanks returns those of a job's directories that are a rank's.
func jobRanks(path string, dirs []string) []RankDir {
	var ranks []RankDir
	for _, name := range dirs {
		if rank, ok := rankOf(name); ok {
			ranks = append(ranks, RankDir{record.RankID{Job: filepath.Base(path), Rank: rank}, filepath.Join(path, name)})
		}
	}

	slices.SortFunc(ranks, func(a, b RankDir) int { return cmp.Compare(a.Rank, b.Rank) })
	return ranks
}

// unreadable returns an error for each rank directory that can't be opened.
func unreadable(ranks []RankDir) []error {
	var errs []error
	for _, r := range ranks {
		dir, err := openDir(r.Path)
		switch {
		case err == nil:
			dir.Close()
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, dirError(r.Path, err))
		}
	}

	return errs
}

// rankOf returns the rank that a directory is named for: digits without leading
// zeros.
func rankOf(name string) (int, bool) {
	n, err := strconv.ParseInt(name, 10, 32)
	return int(n), err == nil && n >= 0 && strconv.FormatInt(n, 10) == name
}

// look tells the directories in a directory, without links and dot names, and whether it holds
// segments. It lists by the descriptor and never follows a link: another user may replace a name
// between the listing and the question what it is. A name that is gone by then is left out.
func look(path string) (dirs []string, segments bool, err error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, false, dirError(path, err)
	}
	defer dir.Close()
	err = eachName(dir, func(name string) error {
		if strings.HasPrefix(name, ".") {
			return nil
		}

		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		if err != nil {
			return err
		}

		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			dirs = append(dirs, name)
		case unix.S_IFREG:
			if _, ok := Number(name); ok {
				segments = true
			}
		}

		return nil
	})
	if err != nil {
		return nil, false, dirError(path, err)
	}

	slices.Sort(dirs)
	return dirs, segments, nil
}

// isJob reports whether the directory is one job's: a child is a rank's directory,
// which means numeric, with segments in it and no directories of ranks.
func isJob(path string, dirs []string) bool {
	job := false
	for _, name := range dirs {
		if _, ok := rankOf(name); !ok {
			continue
		}

		below, segments, err := look(filepath.Join(path, name))
		if err != nil {
			continue
		}

		if hasRanks(below) {
			return false // a job with a number for a name
		}

		job = job || segments
	}

	return job
}

// hasRanks reports whether one of the directories may be a rank's.
func hasRanks(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(name string) bool { _, ok := rankOf(name); return ok })
}

// hasRanksBelow reports whether there are rank directories in or under the
// directory: then a file with a number for a name is a stray.
func hasRanksBelow(path string, dirs []string) bool {
	if hasRanks(dirs) {
		return true
	}

	return slices.ContainsFunc(dirs, func(name string) bool {
		below, _, err := look(filepath.Join(path, name))
		return err == nil && hasRanks(below)
	})
}

// resolve makes root absolute and free of links: the user may name it by one, what
// is below it may not be one.
func resolve(root string) (string, error) {
	abs, err := filepath.EvalSymlinks(root)
	if err == nil {
		abs, err = filepath.Abs(abs)
	}

	if err != nil {
		return "", dirError(root, err)
	}

	if st, err := os.Stat(abs); err == nil && !st.IsDir() {
		return "", dirError(root, unix.ENOTDIR)
	}

	return abs, nil
}

// Trusts returns the test for owners of segments in a rank directory to believe: ourselves, root,
// the owner of the job's directory, and others.
func Trusts(rankDir string, others []uint32) func(uid uint32) bool {
	owner, _ := Owner(filepath.Dir(rankDir)) // root where it is not to be known
	uids := append([]uint32{0, uint32(os.Geteuid()), owner}, others...)
	return func(uid uint32) bool { return slices.Contains(uids, uid) }
}

// Owner returns who owns a directory, false for what is none: a link to one, too.
func Owner(dir string) (uint32, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, false
	}

	return st.Uid, true
}
