// Package parquet says how laggard's tables lie in Parquet files: hive folders
// `<store>/<table>/job=<job>/<batch id>.parquet`. Their rows are those of schemas/row,
// whose `parquet` tags say how each column is encoded.
//
// Invariant: a file appears under its name when it is complete; names that begin with
// a dot are not data. The `job` column is also in the file, so a folder's name, which
// may be shortened, decides nothing.
//
// Caveat: files of other programs in the folders are read as far as their
// columns fit; a file that can't be read is an error that names it.
package parquet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// SchemaVersion stands in the footer of every file under SchemaKey.
const SchemaVersion = "1"

// Keys of the footer's metadata.
const (
	SchemaKey = "schema_version"
	// KeysKey holds the ranges of row identities in the file as JSON; see Range.
	KeysKey = "laggard.keys"
)

// Suffix ends the name of a data file.
const Suffix = ".parquet"

// maxFolder bounds the name of a job's folder in bytes, below the 255 of file systems.
const maxFolder = 200

// Folder returns the folder of a job's rows of a table.
func Folder(store, table, job string) string {
	name := Escape(job)
	if len(name) > maxFolder {
		name = name[:maxFolder-17] + "~" + record.HashID(job).String()
	}

	return filepath.Join(store, table, FolderPrefix+name)
}

// Escape writes a value for a hive folder: bytes other than letters, digits and
// "-", "_" (and "." inside) become %XX. The empty job is hive's null.
func Escape(job string) string {
	if job == "" {
		return "__HIVE_DEFAULT_PARTITION__"
	}

	var b strings.Builder
	for i := 0; i < len(job); i++ {
		c := job[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}

	return b.String()
}

// FolderPrefix begins the name of a job's folder under a table's.
const FolderPrefix = "job="

// Folders returns the folders of a table's jobs in a store, sorted. A table that is not there has
// none.
func Folders(store, table string) ([]string, error) {
	dir := filepath.Join(store, table)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	var folders []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), FolderPrefix) {
			folders = append(folders, filepath.Join(dir, e.Name()))
		}
	}

	return folders, nil
}

// Files returns the data files of a job's folder, sorted. A folder that is not there has none.
// Files that a compacted one replaces are left out.
func Files(folder string) ([]string, error) {
	all, replaced, err := list(folder)
	return slices.DeleteFunc(all, func(path string) bool { return replaced[path] }), err
}

// Replaced returns those that Files leaves out.
func Replaced(folder string) ([]string, error) {
	all, replaced, err := list(folder)
	return slices.DeleteFunc(all, func(path string) bool { return !replaced[path] }), err
}

// Open opens a data file for reading its footer and its rows. No symbolic link
// is followed.
func Open(path string) (*parquet.File, io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}

	var file *parquet.File
	if err == nil {
		file, err = Guard(func() (*parquet.File, error) {
			return parquet.OpenFile(f, info.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
		})
	}

	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open %s: %w", path, err), f.Close())
	}

	return file, f, nil
}

// Guard turns a panic of the decoder on a hostile file into an error.
func Guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decode: %v", r)
		}
	}()
	return f()
}

// batch is the most rows handed to the caller of Read at a time.
const batch = 4096

// Read calls f with the rows of a file, a few thousand at a time; the slice is
// the reader's again when f returns. T is a struct of schemas/row, or one with some
// of its columns.
func Read[T any](path string, f func([]T) error) error {
	file, closer, err := Open(path)
	if err != nil {
		return err
	}
	defer closer.Close()
	_, err = Guard(func() (struct{}, error) {
		r := parquet.NewGenericReader[T](file)
		defer r.Close()
		left := file.NumRows()
		var buf []T
		for {
			// No more rows than there are: for each that is missing parquet-go asks every column
			// again whether its pages are over, which for a row or two is all the time it takes.
			size := int(max(min(left, batch), 1))
			if buf == nil {
				buf = make([]T, size)
			}

			rows := buf[:size]
			clear(rows) // slices in rows must not be shared with those handed out
			n, err := r.Read(rows)
			left -= int64(n)
			if n > 0 {
				if err := f(rows[:n]); err != nil {
					return struct{}{}, err
				}
			}

			if errors.Is(err, io.EOF) {
				return struct{}{}, nil
			}

			if err != nil {
				return struct{}{}, err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}

// Range is an entry of the KeysKey metadata: rows of one process (ranks, steps,
// communications: Owner is the incarnation) or segment (records, ledger) lie
// between First and Last (step, step_from or offset), both inclusive.
type Range struct {
	Rank  uint32    `json:"r"`
	Owner record.ID `json:"o"`
	First uint64    `json:"f"`
	Last  uint64    `json:"l"`
}
