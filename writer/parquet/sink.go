// Package parquet is the sink that stores batches as Parquet files in hive
// folders: the store of a machine without a server. DuckDB, pandas, Spark and
// ClickHouse's file() read it as it is.
//
// Invariant: a file is complete or not there: it is written beside its place,
// synced, renamed, and its folder is synced. Its name is the batch's id, so the
// same batch twice is one file; a rank's file is named by its process and gives
// way to a higher version. Rows in a file are sorted by their identity.
//
// Small files are compacted: the new file lists in its footer those whose rows it
// holds, readers leave these out (schemas/parquet.Files), then they are removed.
//
// Caveat: a reader that listed a folder may find a file of it removed a moment
// later; it lists again.
package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/laggard-dev/laggard/schemas/keep"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// rowGroup is the number of rows of a row group: readers skip by it.
const rowGroup = 1 << 17

// Sink is a directory of Parquet files. Its methods are called by one goroutine.
type Sink struct {
	dir     string
	writers map[string]any     // a parquet.GenericWriter a table, so that their buffers are used again
	folders map[string]*folder // by path
	made    map[string]bool    // folders that are there and synced
}

// folder is what the sink knows of a job's folder of a table.
type folder struct {
	path, table, job string
	small            int // files written since it was compacted
	// ranges are where the rows of each file lie, from its footer, by the file's name; nil is unknown:
	// the file may hold anything.
	ranges map[string][]layout.Range
}

// folder returns a job's folder of a table, which need not be there yet.
func (s *Sink) folder(table, job string) *folder {
	path := layout.Folder(s.dir, table, job)
	f := s.folders[path]
	if f == nil {
		f = &folder{path: path, table: table, job: job, ranges: map[string][]layout.Range{}}
		s.folders[path] = f
	}

	return f
}

// Open prepares a sink in dir; it makes nothing before Create.
func Open(dir string) (*Sink, error) {
	if dir == "" {
		return nil, errors.New("open Parquet store: no directory; want parquet:DIR")
	}

	return &Sink{dir: filepath.Clean(dir), writers: map[string]any{}, folders: map[string]*folder{}, made: map[string]bool{}}, nil
}

// Name is the store as it is written on the command line.
func (s *Sink) Name() string {
	abs, err := filepath.Abs(s.dir)
	if err != nil {
		abs = s.dir
	}

	return "parquet:" + abs
}

// Ping implements ship.Sink: there is nothing to reach, Create and Probe try the directory.
func (s *Sink) Ping(context.Context) error { return nil }

// Create implements ship.Sink: it makes the directory and removes what writers
// that are gone left behind.
func (s *Sink) Create(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return classify("make Parquet store", err)
	}

	folders, err := filepath.Glob(filepath.Join(globEscape(s.dir), "*", "job=*"))
	if err != nil {
		return classify("list Parquet store", err)
	}

	for _, folder := range folders {
		if err := ctx.Err(); err != nil {
			return err
		}

		if err := keep.Sweep(folder); err != nil {
			return classify("clean Parquet store", err)
		}
	}

	return nil
}

// Probe implements ship.Sink.
func (s *Sink) Probe(context.Context) error {
	return classify("write into Parquet store", keep.Try(s.dir))
}

// globEscape makes a path a pattern that only it matches.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// Insert implements ship.Sink.
func (s *Sink) Insert(ctx context.Context, b *ship.Batch) error {
	if err := ctx.Err(); err != nil {
		return &ship.Error{Class: ship.Transient, Err: err}
	}

	f := s.folder(b.Table, b.Job)
	if err := s.makeFolder(f.path); err != nil {
		return classify("store "+b.Table, err)
	}

	if b.Table == row.RanksTable {
		return classify("store ranks", s.insertRanks(f.path, b.Ranks))
	}

	if err := s.writeFile(f.path, b.ID.String()+layout.Suffix, b, nil); err != nil {
		return classify("store "+b.Table, err)
	}

	if f.small++; f.small < compactAfter {
		return nil
	}

	// The rows are stored; that the folder could not be tidied is told by the next look.
	_ = s.compact(ctx, f)
	return nil
}

// insertRanks writes a file a process, unless a newer one is there. A rank's row is written again
// as more is learnt: in one file each, readers need not choose between versions.
func (s *Sink) insertRanks(folder string, ranks []row.Rank) error {
	for i := range ranks {
		name := rankFile(&ranks[i])
		have, err := rankVersion(filepath.Join(folder, name))
		if err != nil {
			return err
		}

		if have > int64(ranks[i].Version) {
			continue
		}

		one := &ship.Batch{Table: row.RanksTable, Job: ranks[i].Job}
		one.Ranks = ranks[i : i+1]
		if err := s.writeFile(folder, name, one, nil); err != nil {
			return err
		}
	}

	return nil
}

// rankFile is the name of a process's file.
func rankFile(r *row.Rank) string {
	return fmt.Sprintf("%d-%016x%s", r.Rank, r.Incarnation, layout.Suffix)
}

// rankVersion returns the version of the row in a rank's file, -1 without one.
func rankVersion(path string) (int64, error) {
	version := int64(-1)
	err := layout.Read(path, func(rows []row.Rank) error {
		for i := range rows {
			version = max(version, int64(rows[i].Version))
		}

		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}

	return version, err
}

// makeFolder makes a folder of the store and every one above it, durably: the name of
// each in the one above. What is in the folder itself is synced by who puts it there.
func (s *Sink) makeFolder(folder string) error {
	if s.made[folder] {
		return nil
	}

	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}

	// Up to the folder that holds the store: its name must last, too. That one may be
	// another's, which only its owner can sync.
	above := filepath.Dir(s.dir)
	for d := folder; d != above && d != filepath.Dir(d) && !s.made[d]; d = filepath.Dir(d) {
		holder := filepath.Dir(d)
		if err := keep.SyncDir(holder); err != nil && !(holder == above && errors.Is(err, fs.ErrPermission)) {
			return err
		}

		s.made[d] = true
	}

	return nil
}

// writeFile makes a file of a batch appear in a folder, complete and durable; replaces are the files
// that it stands for, as its footer says. An error after which the name is there is in doubt: the
// rename was done, and perhaps not synced.
func (s *Sink) writeFile(folder, name string, b *ship.Batch, replaces []string) error {
	meta := map[string]string{layout.SchemaKey: layout.SchemaVersion}
	if b.Table != row.RanksTable { // of which a file's name tells what it holds
		if err := note(meta, layout.KeysKey, rangesOf(b)); err != nil {
			return err
		}
	}

	if replaces != nil {
		if err := note(meta, layout.ReplacesKey, replaces); err != nil {
			return err
		}
	}

	path := filepath.Join(folder, name)
	err := keep.Replace(path, 0o644, func(w io.Writer) error { return s.write(w, b, meta) })
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the folder, or more
		clear(s.made)
	}

	if _, absent := os.Lstat(path); err != nil && absent == nil { // in its place, perhaps not for good
		e := kind(err)
		e.Doubt = true
		return e
	}

	return err
}

// note puts a value into a footer, as JSON.
func note(meta map[string]string, key string, v any) error {
	text, err := json.Marshal(v)
	meta[key] = string(text)
	return err
}

// Close implements ship.Sink.
func (s *Sink) Close() error { return nil }

// classify says what failed and what its error means; nil stays nil.
func classify(what string, err error) error {
	if err == nil {
		return nil
	}

	e, ok := errors.AsType[*ship.Error](err)
	if !ok {
		e = kind(err)
	}

	e.Err = fmt.Errorf("%s: %w", what, e.Err)
	return e
}

// kind is what an error of the file system means. One that a person must mend pauses the shipper;
// a full disk may be made room on at any time, so it is retried.
func kind(err error) *ship.Error {
	e := &ship.Error{Class: ship.Transient, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		e.Class, e.Hint = ship.Refused, "the store's directory must be a directory that this user may write"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "make room for the Parquet store"
	}

	return e
}
