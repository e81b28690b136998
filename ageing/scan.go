package ageing

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/writer/segment"
)

// scan looks at the tree. An error beside one tells what could not be seen.
func (l *Loop) scan() (*tree, error) {
	ranks, err := segment.Ranks(l.o.Dir)
	if _, joined := err.(interface{ Unwrap() []error }); err != nil && !joined { // it is the root itself
		return nil, err
	}

	t := &tree{}
	told := unreadable(err)
	errs := []error{err}
	for _, r := range ranks {
		err := l.rank(t, r)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !told[r.Path] { // removed meanwhile is no trouble
			errs = append(errs, err)
		}
	}

	t.other, err = otherBytes(l.o.Dir, ranks)
	return t, errors.Join(append(errs, err)...)
}

// unreadable returns the directories that a joined error tells of.
func unreadable(err error) map[string]bool {
	told := make(map[string]bool)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if d, ok := errors.AsType[*fs.PathError](e); ok {
				told[d.Path] = true
			}
		}
	}

	return told
}

// rank adds one rank's segments.
func (l *Loop) rank(t *tree, r segment.RankDir) error {
	infos, err := segment.ListAll(r.Path)
	if err != nil || len(infos) == 0 {
		return err
	}

	newest := infos[len(infos)-1]
	owned, live := true, false
	if l.o.Rank != nil {
		owned, live = l.o.Rank(r)
	}

	live = live || l.o.Now().Sub(newest.ModTime) < quiet
	if owned && live {
		t.room += l.o.SegmentLimit
	}

	for _, s := range infos {
		c := candidate{Info: s, dir: r}
		c.accounted = owned && (l.accounted[c.path()] || l.o.Accounted != nil && l.o.Accounted(r, s))
		c.held = !owned || live && s.Number == newest.Number || !c.accounted && l.o.Held != nil && l.o.Held(r, s)
		c.shipped = !c.held && l.o.Shipped != nil && l.o.Shipped(r, s)
		t.segments = append(t.segments, c)
	}

	return nil
}

// otherBytes returns the bytes of what is in the tree and is no segment: cursor,
// ledger, foreign files. Of a sparse file only what it takes on disk counts.
func otherBytes(dir string, ranks []segment.RankDir) (int64, error) {
	rankDirs := make(map[string]bool, len(ranks))
	for _, r := range ranks {
		rankDirs[r.Path] = true
	}

	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return 0, fmt.Errorf("read directory %s: %w", dir, err)
	}

	var sum int64
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if err != nil && d != nil && d.IsDir() {
				return fs.SkipDir // told by segment.Ranks where it matters
			}

			return nil
		}

		if _, ok := segment.Number(d.Name()); ok && rankDirs[filepath.Dir(path)] {
			return nil
		}

		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			sum += min(st.Size, max(st.Blocks*512, 0))
		}

		return nil
	})
	return sum, err
}
