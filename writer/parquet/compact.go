package parquet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sys/unix"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

const (
	// compactAfter is the number of files that one table of a job gets before they are
	// made into one.
	compactAfter = 64
	// fewFiles are fewer than are worth reading and writing again.
	fewFiles = 8
	// smallBytes, mostRows and mostBytes bound what is compacted: a file above them stays, and a
	// compaction stays within the memory of an agent. Long words pack so well that a small file may unfold
	// to a thousand times its size.
	smallBytes = 4 << 20
	mostRows   = 1 << 17
	mostBytes  = 16 << 20 // unfolded
)

// Compact makes one file of the small files of each table that was written since
// the sink was opened, unless the table has few.
func (s *Sink) Compact(ctx context.Context) error {
	var errs []error
	for _, f := range s.folders {
		if f.small > 1 {
			errs = append(errs, s.compact(ctx, f))
		}
	}

	return errors.Join(errs...)
}

// compact makes one file of the small files of a folder. A crash leaves the old
// files, or both with the new one saying so. When another process compacts the
// folder it is left to that one: the lock is on a file that stays, for to remove it would let
// two hold it.
func (s *Sink) compact(ctx context.Context, f *folder) error {
	f.small = 0
	lock, err := os.OpenFile(filepath.Join(f.path, ".compacting"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o664)
	if err != nil {
		return fmt.Errorf("compact %s: %w", f.path, err)
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}

	// What a crash left. Readers leave it out meanwhile.
	old, err := layout.Replaced(f.path)
	if err == nil {
		err = remove(old)
	}

	if err != nil {
		return fmt.Errorf("compact %s: %w", f.path, err)
	}

	files, err := layout.Files(f.path)
	if err != nil {
		return err
	}

	b, small, err := gather(ctx, f, files)
	if err == nil && small != nil {
		err = s.replace(f.path, b, small)
	}

	if err != nil {
		return fmt.Errorf("compact %s: %w", f.path, err)
	}

	return nil
}

// gather reads the small files, as many as fit, and returns which these are: nil when there
// are few.
func gather(ctx context.Context, f *folder, files []string) (*ship.Batch, []string, error) {
	small, err := choose(ctx, files)
	if err != nil || len(small) < fewFiles {
		return nil, nil, err
	}

	b := &ship.Batch{Table: f.table, Job: f.job}
	var words record.Words
	for _, path := range small {
		if err := readInto(b, &words, path); err != nil {
			return nil, nil, err
		}
	}

	b.Raws.Words, b.Raws.Bytes = words.List(), words.Bytes()
	return b, small, nil
}

// choose returns the small files that fit into memory together, by their footers. A file of another
// program's is not ours to remove, and one with a quarter of what fits would be written again each time.
func choose(ctx context.Context, files []string) (small []string, err error) {
	rows, bytes := int64(0), int64(0)
	for _, path := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return nil, err
		}

		if info.Size() > smallBytes {
			continue
		}

		file, closer, err := layout.Open(path)
		if err != nil {
			return nil, err
		}

		_, ours := file.Lookup(layout.SchemaKey)
		n, size := file.NumRows(), unfolded(file)
		if err := closer.Close(); err != nil {
			return nil, err
		}

		if !ours || n > mostRows/4 || size > mostBytes/4 || rows+n > mostRows || bytes+size > mostBytes {
			continue
		}

		rows, bytes = rows+n, bytes+size
		small = append(small, path)
	}

	return small, nil
}

// unfolded is the bytes of a file's rows before compression, each word once.
func unfolded(file *parquet.File) (bytes int64) {
	for _, g := range file.Metadata().RowGroups {
		bytes += g.TotalByteSize
	}

	return bytes
}

// readInto appends a file's rows to those of b, which has its table; words are those of raw rows. Ranks
// never come here: a process has one file, which a higher version replaces.
func readInto(b *ship.Batch, words *record.Words, path string) error {
	switch b.Table {
	case row.StepsTable:
		return appendRows(&b.Steps, path)
	case row.CommunicationsTable:
		return appendRows(&b.Communications, path)
	case row.RecordsTable:
		return layout.Read(path, func(rows []row.Record) error {
			for i := range rows {
				b.Raws.Rows = append(b.Raws.Rows, row.PackInto(words, &rows[i]))
			}

			return nil
		})
	case row.VerdictsTable:
		return appendRows(&b.Verdicts, path)
	case row.LedgerTable:
		return appendRows(&b.Ledger, path)
	}

	return fmt.Errorf("BUG: compact table %s", b.Table)
}

// appendRows appends all rows of a file.
func appendRows[T any](to *[]T, path string) error {
	return layout.Read(path, func(rows []T) error { *to = append(*to, rows...); return nil })
}

// replace writes the rows as one file and removes those that it replaces. The file is named by
// what it replaces: one that a crash left is written over by the same rows.
func (s *Sink) replace(folder string, b *ship.Batch, paths []string) error {
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}

	name := layout.CompactedPrefix + record.HashID(names...).String() + layout.Suffix
	if err := s.writeFile(folder, name, b, names); err != nil {
		return err
	}

	return remove(paths)
}

// remove removes files; those that are gone are no error.
func remove(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}
