package source

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// file is one of a table that was not handed over yet.
type file struct {
	table, path string
	spans       []span
	first, last int64 // start_ns
}

// name is what a cursor keeps.
func (f *file) name() string { return f.table + "/" + filepath.Base(f.path) }

// look implements tables.
func (s *store) look(_ context.Context, r *storeReader) (rows, first, last int64, err error) {
	r.at.found = nil
	first, last = math.MaxInt64, math.MinInt64
	for _, table := range []string{row.StepsTable, row.CommunicationsTable} {
		if table == row.CommunicationsTable && !r.comms {
			continue
		}

		paths, err := s.files(table, r.job)
		if err != nil {
			return 0, 0, 0, err
		}

		for _, path := range paths {
			f := file{table: table, path: path}
			if _, done := slices.BinarySearch(r.at.Done, f.name()); done {
				continue
			}

			some, err := guarded(path, f.measure)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}

			if err != nil {
				return 0, 0, 0, err
			}

			r.at.found = append(r.at.found, f)
			rows, first, last = rows+some, min(first, f.first), max(last, f.last)
		}
	}

	return rows, first, last, nil
}

// read implements tables.
func (s *store) read(ctx context.Context, r *storeReader, from, to int64) (*row.Rows, error) {
	rows, found := &row.Rows{}, r.at.found
	err := inOrder(ctx, len(found), r.o.workers(), func(_ context.Context, i int) (*row.Rows, error) {
		return found[i].read(r.job, from, to)
	}, func(_ int, some *row.Rows) error {
		rows.Add(some)
		return nil
	})
	// The feed wants rows of one process by their starts, and files are of several ranks each.
	slices.SortStableFunc(rows.Steps, func(a, b row.Step) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Rank, b.Rank))
	})
	return rows, err
}

// startColumn is the start alone, which is the same in both tables.
var startColumn = slices.DeleteFunc(columnsOfSteps(), func(c column[row.Step]) bool { return c.name != "start_ns" })

// measure reads the starts alone: how many rows, from when to when.
func (f *file) measure() (rows int64, err error) {
	f.first, f.last = math.MaxInt64, math.MinInt64
	if f.spans, err = spansOf([]string{f.path}); err != nil {
		return 0, err
	}

	var some []row.Step
	for _, s := range f.spans {
		if some, err = readSpan(s, startColumn, "", some); err != nil {
			return 0, err
		}

		for i := range some {
			f.first, f.last = min(f.first, some[i].StartNs), max(f.last, some[i].StartNs)
		}

		rows += int64(len(some))
	}

	return rows, nil
}

// read returns the rows that start in [from, to).
func (f *file) read(job string, from, to int64) (*row.Rows, error) {
	all := &row.Rows{}
	// Most files hold one stretch of time, so that a window opens few of them.
	if f.last < from || f.first >= to {
		return all, nil
	}

	var some row.Rows
	for _, s := range f.spans {
		if err := s.read(f.table, job, &some); err != nil {
			return nil, err
		}

		some.Steps = slices.DeleteFunc(some.Steps, func(s row.Step) bool { return s.StartNs < from || s.StartNs >= to })
		some.Communications = slices.DeleteFunc(some.Communications, func(c row.Communication) bool { return c.StartNs < from || c.StartNs >= to })
		all.Add(&some)
	}

	return all, nil
}

// newest implements tables: when the job's newest file was written.
func (s *store) newest(_ context.Context, job string) (time.Time, error) {
	var newest time.Time
	for _, table := range []string{row.StepsTable, row.RanksTable} {
		paths, err := s.files(table, job)
		if err != nil {
			return newest, err
		}

		for _, p := range paths {
			if info, err := os.Lstat(p); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}

	return newest, nil
}
