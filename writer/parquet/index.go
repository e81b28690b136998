package parquet

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// rangesOf returns where the rows of b lie, as it stands in a file's footer. Rows of one owner
// mostly follow each other, so they are joined as they come, and once more in the end.
func rangesOf(b *ship.Batch) []layout.Range {
	ranges := []layout.Range{}
	for i := range b.Len() {
		o := b.Origin(i)
		r := layout.Range{Rank: o.Rank, Owner: record.ID(o.Incarnation), First: o.At}
		switch b.Table {
		case row.RecordsTable:
			r.Owner = record.ID(o.Segment)
		case row.LedgerTable:
			// Entries of segments and those of batches are never the same: apart, a look
			// for the few of segments does not read the many of batches.
			if r.Owner = record.ID(o.Segment); b.Ledger[i].Batch != "" {
				r.First = 1
			}
		}

		r.Last = r.First
		ranges = join(ranges, r)
	}

	return merged(ranges)
}

// compareOwners orders ranges by whose they are, whatever they hold.
func compareOwners(a, b layout.Range) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Owner, b.Owner))
}

// join adds a range. The one before it reaches over it where it is of the same owner.
func join(ranges []layout.Range, r layout.Range) []layout.Range {
	n := len(ranges)
	if n == 0 || compareOwners(ranges[n-1], r) != 0 {
		return append(ranges, r)
	}

	last := &ranges[n-1]
	last.First, last.Last = min(last.First, r.First), max(last.Last, r.Last)
	return ranges
}

// merged returns one range an owner, sorted.
func merged(ranges []layout.Range) []layout.Range {
	slices.SortFunc(ranges, compareOwners)
	one := ranges[:0]
	for _, r := range ranges {
		one = join(one, r)
	}

	return one
}

// refresh reads the footers of files that are new in the folder, and forgets those that are gone.
// A file never changes under its name, but for those of ranks, of which nothing is asked here.
func (f *folder) refresh(files []string) error {
	seen := make(map[string]bool, len(files))
	for _, path := range files {
		name := filepath.Base(path)
		seen[name] = true
		if _, known := f.ranges[name]; known {
			continue
		}

		ranges, err := footer(path)
		if err != nil {
			return err
		}

		f.ranges[name] = ranges
	}

	maps.DeleteFunc(f.ranges, func(name string, _ []layout.Range) bool { return !seen[name] })
	return nil
}

// footer reads which steps and offsets of whom a file holds. Nil says that the file doesn't tell (an
// older version wrote it, or somebody else): then it may hold anything.
func footer(path string) ([]layout.Range, error) {
	file, closer, err := layout.Open(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	text, ok := file.Lookup(layout.KeysKey)
	var ranges []layout.Range
	if !ok || json.Unmarshal([]byte(text), &ranges) != nil {
		return nil, nil
	}

	return merged(ranges), nil
}

// touching returns the files that may hold a row of b: those with a range of one of its owners
// that meets the batch's own, and those that do not tell.
func (f *folder) touching(b *ship.Batch) []string {
	wanted := rangesOf(b)
	var names []string
	for name, ranges := range f.ranges {
		if ranges == nil || slices.ContainsFunc(wanted, func(w layout.Range) bool {
			i, ok := slices.BinarySearchFunc(ranges, w, compareOwners)
			return ok && ranges[i].First <= w.Last && w.First <= ranges[i].Last
		}) {
			names = append(names, name)
		}
	}

	slices.Sort(names)
	return names
}

// Stored implements ship.Sink. It reads the key columns of those files alone
// whose footers say that they may hold one of the rows.
func (s *Sink) Stored(ctx context.Context, b *ship.Batch) ([]bool, error) {
	stored := make([]bool, b.Len())
	f := s.folder(b.Table, b.Job)
	if b.Table == row.RanksTable {
		for i := range b.Ranks {
			have, err := rankVersion(filepath.Join(f.path, rankFile(&b.Ranks[i])))
			if err != nil {
				return nil, classify("look up ranks", err)
			}

			stored[i] = have >= int64(b.Ranks[i].Version)
		}

		return stored, nil
	}

	files, err := layout.Files(layout.Folder(s.dir, b.Table, b.Job))
	if err != nil {
		return nil, classify("look up "+b.Table, err)
	}

	if err := f.refresh(files); err != nil {
		return nil, classify("look up "+b.Table, err)
	}

	read := reader(b, stored)
	for _, name := range f.touching(b) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		if err := read(filepath.Join(f.path, name)); err != nil {
			return nil, classify("look up "+b.Table, err)
		}
	}

	return stored, nil
}

// Sums implements ship.Sink. The rows that complete a window carry its Repeat in a few bits of
// their own (row.BaseRepeat), so all of them come to one place.
func (s *Sink) Sums(ctx context.Context, b *ship.Batch) ([]ship.Sum, error) {
	sums := make([]ship.Sum, b.Len())
	places := ship.Places(b.Communications, ship.KeyOfCommunication)
	f := s.folder(b.Table, b.Job)
	for _, name := range f.touching(b) { // Stored has looked
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		err := layout.Read(filepath.Join(f.path, name), func(rows []row.Communication) error {
			for i := range rows {
				k := ship.KeyOfCommunication(&rows[i])
				k.Repeat = row.BaseRepeat(k.Repeat)
				for _, place := range places(k) {
					sums[place].Add(&rows[i])
					sums[place].Rows++
				}
			}

			return nil
		})
		if err != nil {
			return nil, classify("sum up "+b.Table, err)
		}
	}

	return sums, nil
}

// reader returns what marks the rows of b that are in a file. The keys of b are put into a map
// when the first file is read, and used for all of them.
func reader(b *ship.Batch, stored []bool) func(path string) error {
	switch b.Table {
	case row.StepsTable:
		return marker(ship.Places(b.Steps, ship.KeyOfStep), stored)
	case row.CommunicationsTable:
		return marker(ship.Places(b.Communications, ship.KeyOfCommunication), stored)
	case row.RecordsTable:
		return marker(ship.Places(b.Raws.Rows, ship.KeyOfRaw), stored)
	case row.VerdictsTable:
		return marker(ship.Places(b.Verdicts, ship.KeyOfVerdict), stored)
	default:
		return marker(ship.Places(b.Ledger, ship.KeyOfLedger), stored)
	}
}

// marker reads the keys of a file, which are a few columns of it, and marks those that are wanted.
func marker[K comparable](places func(K) []int, stored []bool) func(path string) error {
	return func(path string) error {
		return layout.Read(path, func(keys []K) error {
			for _, k := range keys {
				for _, i := range places(k) {
					stored[i] = true
				}
			}

			return nil
		})
	}
}
