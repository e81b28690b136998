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

// hivePrefix begins the name of a job's folder under a table's.
const hivePrefix = "job="

// store is a Parquet store: <dir>/<table>/job=<job>/*.parquet.
type store struct {
	dir string
}

func openParquet(dir string) (Source, error) {
	if dir == "" {
		return nil, errors.New("open source parquet: no directory given: write parquet:DIR")
	}

	if err := checkDir("Parquet store", dir); err != nil {
		return nil, err
	}

	if !isStore(dir) {
		return nil, fmt.Errorf("open Parquet store %s: no %s/%s… folder in it: fill one with `laggard ingest SOURCE --to parquet:%s`, or leave out `parquet:` for a profiling directory",
			dir, row.StepsTable, hivePrefix, dir)
	}

	return &store{dir: dir}, nil
}

// Close implements Source.
func (s *store) Close() error { return nil }

// Jobs implements Source.
func (s *store) Jobs(ctx context.Context) ([]string, error) {
	jobs, err := s.listJobs(ctx)
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("list jobs of Parquet store %s: no job in it: fill it with `laggard ingest SOURCE --to parquet:%s`", s.dir, s.dir)
	}

	return jobs, err
}

// listJobs returns the jobs of the store in order; none is no error.
func (s *store) listJobs(context.Context) ([]string, error) {
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
	dir := filepath.Join(s.dir, table)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("list jobs of Parquet store %s: %w", s.dir, err)
	}

	folders := map[string]string{}
	for _, e := range entries {
		escaped, ok := strings.CutPrefix(e.Name(), hivePrefix)
		if !ok || !e.IsDir() {
			continue
		}

		job, err := jobOf(filepath.Join(dir, e.Name()), escaped)
		if err != nil {
			return nil, err
		}

		folders[job] = filepath.Join(dir, e.Name())
	}

	return folders, nil
}

// jobOf returns the job whose rows a folder holds. The folder of a job with a
// long or empty name doesn't tell it in full; the rows do.
func jobOf(folder, escaped string) (string, error) {
	job, err := url.PathUnescape(escaped)
	if err == nil && escaped != layout.Escape("") && layout.Folder("", "", job) == hivePrefix+escaped {
		return job, nil
	}

	files, err := partsOf(folder)
	if err != nil || len(files) == 0 {
		return escaped, err
	}

	return guarded(files[0], func() (string, error) {
		name := escaped
		err := layout.Read(files[0], func(rows []struct {
			Job string `parquet:"job"`
		}) error {
			name = rows[0].Job
			return io.EOF // one row is enough
		})
		if errors.Is(err, io.EOF) {
			err = nil
		}

		return name, err
	})
}

// parts returns the Parquet files of one job of a table, in the order of names.
func (s *store) parts(table, job string) ([]string, error) {
	folders, err := s.folders(table)
	if err != nil || folders[job] == "" {
		return nil, err
	}

	return partsOf(folders[job])
}

func partsOf(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list Parquet files: %w", err)
	}

	var paths []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), layout.Suffix) && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}

	return layout.Current(paths)
}

// Load implements Source.
func (s *store) Load(ctx context.Context, job string, b row.Builder, o Options) (Info, error) {
	return loadTables(ctx, s, "Parquet store "+s.dir, job, b, o)
}

// split implements tables.
func (s *store) split(_ context.Context, table, job string, info *Info) ([]span, error) {
	paths, err := s.parts(table, job)
	if err != nil {
		return nil, err
	}

	info.Parts += len(paths)
	return spansOf(paths)
}

// steps implements tables.
func (s *store) steps(_ context.Context, part span, job string, buffer []row.Step) ([]row.Step, error) {
	return guarded(part.path, func() ([]row.Step, error) { return readSpan(part, stepColumns, job, buffer) })
}

// communications implements tables.
func (s *store) communications(_ context.Context, part span, job string, buffer []row.Communication) ([]row.Communication, error) {
	return guarded(part.path, func() ([]row.Communication, error) { return readSpan(part, communicationColumns, job, buffer) })
}

// ranks reads the table of ranks, the highest version of each incarnation.
func (s *store) ranks(ctx context.Context, job string, o Options, info *Info) ([]row.Rank, error) {
	paths, err := s.parts(row.RanksTable, job)
	if err != nil {
		return nil, err
	}

	var all []row.Rank
	groups := members{}
	err = inOrder(ctx, len(paths), o.workers(), func(_ context.Context, i int) ([]row.Rank, error) {
		return guarded(paths[i], func() ([]row.Rank, error) { return readRanks(paths[i], job) })
	}, func(_ int, rows []row.Rank) error {
		groups.share(rows)
		all = append(all, rows...)
		return nil
	})
	info.Parts += len(paths)
	return newestRanks(all), err
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
			spans = append(spans, span{path: path, group: -1})
			continue
		}

		some, err := guarded(path, func() (some []span, err error) {
			p, f, err := layout.Open(path)
			if err != nil {
				return nil, err
			}

			for i, g := range p.RowGroups() {
				for from := int64(0); from < g.NumRows(); from += spanRows {
					some = append(some, span{path, i, from, min(from+spanRows, g.NumRows())})
				}
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

// guarded names the file in an error of read, and turns a panic of the Parquet
// library on a damaged file into one.
func guarded[T any](path string, read func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode: %v", p)
		}

		if err != nil {
			err = fmt.Errorf("read %s: %w: damaged, or no file of laggard's; move it away to go on without it, or ingest its source again", path, err)
		}
	}()
	return read()
}
