package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
)

// partsReader follows the files of a job in a Parquet store.
type partsReader struct {
	storeReader
	s     *store
	done  map[string]bool // base names that were handed over
	batch []part          // new files, being handed over by windows
}

type part struct {
	path, name     string
	communications bool
	rows           int64
	first, last    int64 // start_ns
}

// follow implements Source.
func (s *store) follow(o Options, job string, from []byte) (feed.Reader, error) {
	c, err := goOn("Parquet store "+s.dir, from)
	if err != nil {
		return nil, err
	}

	r := &partsReader{s: s, done: map[string]bool{}}
	for _, name := range c.Done {
		r.done[name] = true
	}

	r.storeReader, err = newStoreReader(o, job)
	return r, err
}

// Read implements feed.Reader.
func (r *partsReader) Read(ctx context.Context, take func(*row.Rows) error) (bool, error) {
	if r.batch == nil {
		if err := r.readRanks(ctx, take); err != nil {
			return false, err
		}

		if err := r.look(); err != nil || r.batch == nil {
			return false, err
		}
	}

	from := r.from + int64(r.window)*r.width
	to := from + r.width
	r.window++
	if r.window == r.number {
		// Division rounds down: the last window takes what is left over.
		to = math.MaxInt64
	}

	var rows row.Rows
	err := inOrder(ctx, len(r.batch), r.o.workers(), func(_ context.Context, i int) (*row.Rows, error) {
		p := &r.batch[i]
		// Most files hold one stretch of time, so that a window opens few of them.
		if p.last < from || p.first >= to {
			return &row.Rows{}, nil
		}

		return guarded(p.path, func() (*row.Rows, error) { return p.read(r.job, from, to) })
	}, func(_ int, some *row.Rows) error {
		rows.Steps = append(rows.Steps, some.Steps...)
		rows.Communications = append(rows.Communications, some.Communications...)
		return nil
	})
	if err != nil {
		r.batch = nil // from the beginning next time
		return false, err
	}

	// The feed wants rows of one process by their starts, and files are of several ranks each.
	slices.SortStableFunc(rows.Steps, func(a, b row.Step) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Rank, b.Rank))
	})
	if err := take(&rows); err != nil {
		r.batch = nil
		return false, err
	}

	if r.window < r.number {
		return true, nil
	}

	for _, p := range r.batch {
		r.done[p.name] = true
	}

	r.batch = nil
	return false, nil
}

// readRanks hands the table of ranks over when it changed.
func (r *partsReader) readRanks(ctx context.Context, take func(*row.Rows) error) error {
	paths, err := r.s.parts(row.RanksTable, r.job)
	if err != nil {
		return err
	}

	sign := ""
	for _, p := range paths {
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return fmt.Errorf("read Parquet store: %w", err)
		}

		sign += fmt.Sprint(filepath.Base(p), info.Size(), info.ModTime().UnixNano(), ";")
	}

	if sign == r.sign {
		return nil
	}

	var info Info
	ranks, err := r.s.ranks(ctx, r.job, r.o, &info)
	if err != nil {
		return err
	}

	return r.identities(ranks, sign, take)
}

// look finds new files and cuts their time into windows.
func (r *partsReader) look() error {
	var batch []part
	total := int64(0)
	for _, table := range []string{row.StepsTable, row.CommunicationsTable} {
		if table == row.CommunicationsTable && !r.comms {
			continue
		}

		paths, err := r.s.parts(table, r.job)
		if err != nil {
			return err
		}

		for _, path := range paths {
			p := part{path: path, name: table + "/" + filepath.Base(path), communications: table == row.CommunicationsTable}
			if r.done[p.name] {
				continue
			}

			p, err := guarded(path, func() (part, error) { return p, p.measure(r.job) })
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}

			if err != nil {
				return err
			}

			batch = append(batch, p)
			total += p.rows
		}
	}

	if len(batch) == 0 {
		return nil
	}

	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, p := range batch {
		first, last = min(first, p.first), max(last, p.last)
	}

	r.batch = batch
	r.cut(total, first, last)
	return nil
}

// Cursor implements feed.Reader.
func (r *partsReader) Cursor() []byte {
	return cursor{Done: slices.Sorted(maps.Keys(r.done))}.text()
}

// measure reads the starts alone: how many rows, from when to when.
func (p *part) measure(job string) error {
	p.first, p.last = math.MaxInt64, math.MinInt64
	see := func(start int64) {
		p.first, p.last = min(p.first, start), max(p.last, start)
		p.rows++
	}
	if p.communications {
		return eachOf(p.path, startOf(communicationColumns), job, func(r *row.Communication) { see(r.StartNs) })
	}

	return eachOf(p.path, startOf(stepColumns), job, func(r *row.Step) { see(r.StartNs) })
}

// read returns the rows that start in [from, to).
func (p *part) read(job string, from, to int64) (*row.Rows, error) {
	var out row.Rows
	if p.communications {
		return &out, eachOf(p.path, communicationColumns, job, func(r *row.Communication) {
			if r.StartNs >= from && r.StartNs < to {
				out.Communications = append(out.Communications, *r)
			}
		})
	}

	return &out, eachOf(p.path, stepColumns, job, func(r *row.Step) {
		if r.StartNs >= from && r.StartNs < to {
			out.Steps = append(out.Steps, *r)
		}
	})
}

// startOf is the column of a row's start alone.
func startOf[T any](columns []column[T]) []column[T] {
	i := slices.IndexFunc(columns, func(c column[T]) bool { return c.name == "start_ns" })
	return columns[i : i+1]
}

// eachOf calls use with each row of a file.
func eachOf[T any](path string, columns []column[T], job string, use func(*T)) error {
	spans, err := spansOf([]string{path})
	if err != nil {
		return err
	}

	var rows []T
	for _, s := range spans {
		if rows, err = readSpan(s, columns, job, rows); err != nil {
			return err
		}

		for i := range rows {
			use(&rows[i])
		}
	}

	return nil
}

// newest returns when the job's newest file was written.
func (s *store) newest(_ context.Context, job string) (time.Time, error) {
	var newest time.Time
	for _, table := range []string{row.StepsTable, row.RanksTable} {
		paths, err := s.parts(table, job)
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
