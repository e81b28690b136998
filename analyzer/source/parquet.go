package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// store is a Parquet store: <dir>/<table>/job=<job>/*.parquet.
type store struct {
	dir string
}

// openParquet opens a directory that has a table of laggard's in it.
func openParquet(dir string) (Source, error) {
	if dir == "" {
		return nil, errors.New("open source parquet: no directory given: write parquet:DIR")
	}

	if err := checkDir("Parquet store", dir); err != nil {
		return nil, err
	}

	if !isStore(dir) {
		return nil, fmt.Errorf("open Parquet store %s: no %s/%s… folder in it: fill one with `laggard ingest SOURCE --to parquet:%s`, or leave out `parquet:` for a profiling directory",
			dir, row.StepsTable, layout.FolderPrefix, dir)
	}

	return stored{&store{dir: dir}}, nil
}

// name and Close implement tables.
func (s *store) name() string { return "Parquet store " + s.dir }
func (s *store) Close() error { return nil }

// Jobs implements tables.
func (s *store) Jobs(context.Context) ([]string, error) {
	var jobs []string
	for _, table := range []string{row.StepsTable, row.RanksTable} {
		folders, err := s.folders(table)
		if err != nil {
			return nil, err
		}

		jobs = slices.AppendSeq(jobs, maps.Keys(folders))
	}

	slices.Sort(jobs)
	return slices.Compact(jobs), nil
}

// folders maps the jobs of a table to their folders; a table that is not there
// has none.
func (s *store) folders(table string) (map[string]string, error) {
	paths, err := layout.Folders(s.dir, table)
	if err != nil {
		return nil, fmt.Errorf("list jobs of %s: %w", s.name(), err)
	}

	folders := map[string]string{}
	for _, path := range paths {
		job, err := jobOf(path)
		if err != nil {
			return nil, err
		}

		folders[job] = path
	}

	return folders, nil
}

// jobOf returns the job whose rows a folder holds. The folder of a job with a
// long or empty name doesn't tell it in full; the rows do.
func jobOf(folder string) (string, error) {
	escaped := strings.TrimPrefix(filepath.Base(folder), layout.FolderPrefix)
	job, err := url.PathUnescape(escaped)
	if err == nil && escaped != layout.Escape("") && layout.Folder("", "", job) == filepath.Base(folder) {
		return job, nil
	}

	files, err := layout.Files(folder)
	if err != nil || len(files) == 0 {
		return escaped, err
	}

	err = layout.Read(files[0], func(rows []struct {
		Job string `parquet:"job"`
	}) error {
		escaped = rows[0].Job
		return io.EOF // one row is enough
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return "", damaged(err)
	}

	return escaped, nil
}

// files returns the Parquet files of one job of a table, in the order of names.
func (s *store) files(table, job string) ([]string, error) {
	folders, err := s.folders(table)
	if err != nil || folders[job] == "" {
		return nil, err
	}

	return layout.Files(folders[job])
}

// split implements tables.
func (s *store) split(_ context.Context, table, job string) ([]part, error) {
	paths, err := s.files(table, job)
	if err != nil {
		return nil, err
	}

	spans, err := spansOf(paths)
	parts := make([]part, len(spans))
	for i := range spans {
		parts[i] = func(_ context.Context, rows *row.Rows) error { return spans[i].read(table, job, rows) }
	}

	return parts, err
}

// ranks implements tables.
func (s *store) ranks(ctx context.Context, job string, o Options) ([]row.Rank, error) {
	paths, err := s.files(row.RanksTable, job)
	if err != nil {
		return nil, err
	}

	var all []row.Rank
	// One copy of a group for all files: each rank is a file of its own, and names all of its members.
	groups := members{}
	err = inOrder(ctx, len(paths), o.workers(), func(_ context.Context, i int) ([]row.Rank, error) {
		return readRanks(paths[i], job)
	}, func(_ int, rows []row.Rank) error {
		groups.share(rows)
		all = append(all, rows...)
		return nil
	})
	return newestRanks(all), err
}

// sign implements tables.
func (s *store) sign(_ context.Context, job string) (string, error) {
	paths, err := s.files(row.RanksTable, job)
	sign := ""
	for _, p := range paths {
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return "", fmt.Errorf("read Parquet store: %w", err)
		}

		sign += fmt.Sprint(filepath.Base(p), info.Size(), info.ModTime().UnixNano(), ";")
	}

	return sign, err
}

// maxRanks bounds the rows of one file of ranks: 100 times the largest job known.
const maxRanks = 10_000_000

// readRanks reads a file of the table of ranks, row by row: mostly it is one process's, and two of
// its columns are lists.
func readRanks(path, job string) (ranks []row.Rank, err error) {
	err = layout.Read(path, func(rows []row.Rank) error {
		if len(ranks)+len(rows) > maxRanks {
			return fmt.Errorf("more than %d ranks", maxRanks)
		}

		for i := range rows {
			if rows[i].Off == nil { // a file from before the column; the other stores say an empty list
				rows[i].Off = []string{}
			}
		}

		assignJob(rows, job)
		ranks = append(ranks, rows...)
		return nil
	})
	if err != nil {
		return nil, damaged(err)
	}

	return ranks, nil
}

// spansOf cuts large files into spans of rows; a small file is one.
func spansOf(paths []string) ([]span, error) {
	var spans []span
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			return nil, fmt.Errorf("read Parquet store: %w", err)
		}

		if info.Size() <= smallFile {
			spans = append(spans, span{path: path, to: wholeFile})
			continue
		}

		some, err := guarded(path, func() (some []span, err error) {
			p, f, err := layout.Open(path)
			if err != nil {
				return nil, err
			}

			for from := int64(0); from < p.NumRows(); from += spanRows {
				some = append(some, span{path, from, min(from+spanRows, p.NumRows())})
			}

			return some, f.Close()
		})
		if err != nil {
			return nil, err
		}

		spans = append(spans, some...)
	}

	return spans, nil
}

// guarded names the file in an error of read, of which a panic of the Parquet library on a damaged
// file is one.
func guarded[T any](path string, read func() (T, error)) (T, error) {
	v, err := layout.Guard(read)
	if err != nil {
		err = damaged(fmt.Errorf("read %s: %w", path, err))
	}

	return v, err
}

// damaged says what to do about a file that can't be read, which err names.
func damaged(err error) error {
	return fmt.Errorf("%w: damaged, or no file of laggard's; move it away to go on without it, or ingest its source again", err)
}
