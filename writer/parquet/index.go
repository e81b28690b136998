package parquet

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// owner is the process or segment that a range of rows belongs to.
type owner struct {
	rank uint32
	id   uint64
}

// interval is a range of steps or offsets, both ends inclusive.
type interval struct{ first, last uint64 }

// intervalsOf returns where the rows of b lie.
func intervalsOf(b *ship.Batch) map[owner]interval {
	m := map[owner]interval{}
	var at owner // of s, which is not yet in m
	var s interval
	add := func(rank uint32, id, v uint64) {
		if o := (owner{rank, id}); o != at || s.last < s.first {
			if s.first <= s.last {
				m[at] = s
			}

			known, ok := m[o]
			if !ok {
				known = interval{v, v}
			}

			at, s = o, known
		}

		s = interval{min(s.first, v), max(s.last, v)}
	}
	s = interval{1, 0} // nothing
	for i := range b.Steps {
		add(b.Steps[i].Rank, b.Steps[i].Incarnation, b.Steps[i].Step)
	}

	for i := range b.Communications {
		add(b.Communications[i].Rank, b.Communications[i].Incarnation, b.Communications[i].StepFrom)
	}

	for i := range b.Raws.Rows {
		add(b.Raws.Rows[i].Rank, b.Raws.Rows[i].Segment, b.Raws.Rows[i].Offset)
	}

	for i := range b.Ledger {
		// Entries of segments and those of batches are never the same: apart, a look
		// for the few of segments does not read the many of batches.
		kind := uint64(0)
		if b.Ledger[i].Batch != "" {
			kind = 1
		}

		add(b.Ledger[i].Rank, b.Ledger[i].Segment, kind)
	}

	for i := range b.Verdicts {
		add(0, 0, b.Verdicts[i].Step)
	}

	if s.first <= s.last {
		m[at] = s
	}

	return m
}

// rangesOf is intervalsOf in the form that stands in a file's footer, sorted.
func rangesOf(b *ship.Batch) []layout.Range {
	ranges := []layout.Range{}
	for o, s := range intervalsOf(b) {
		ranges = append(ranges, layout.Range{Rank: o.rank, Owner: record.ID(o.id), First: s.first, Last: s.last})
	}

	slices.SortFunc(ranges, func(a, b layout.Range) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Owner, b.Owner))
	})
	return ranges
}

// index knows of each file of a folder where its rows lie, from the footers.
type index struct {
	files map[string]map[owner]interval // nil value: unknown, may hold anything
}

// refresh reads the footers of files that are new in the folder.
func (x *index) refresh(files []string) error {
	seen := make(map[string]bool, len(files))
	for _, path := range files {
		name := filepath.Base(path)
		seen[name] = true
		if _, known := x.files[name]; known {
			continue
		}

		intervals, err := footer(path)
		if err != nil {
			return err
		}

		x.files[name] = intervals
	}

	for name := range x.files {
		if !seen[name] {
			delete(x.files, name)
		}
	}

	return nil
}

// footer reads which steps and offsets of whom a file holds. Nil says that the file doesn't tell (an
// older version wrote it, or somebody else): then it may hold anything.
func footer(path string) (map[owner]interval, error) {
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

	intervals := make(map[owner]interval, len(ranges))
	for _, r := range ranges {
		o, s := owner{r.Rank, uint64(r.Owner)}, interval{r.First, r.Last}
		if known, ok := intervals[o]; ok {
			s = interval{min(s.first, known.first), max(s.last, known.last)}
		}

		intervals[o] = s
	}

	return intervals, nil
}

// touching returns the files that may hold a row of b.
func (x *index) touching(b *ship.Batch) []string {
	wanted := intervalsOf(b)
	var names []string
	for name, intervals := range x.files {
		hit := intervals == nil
		for o, w := range wanted {
			if s, ok := intervals[o]; ok && s.first <= w.last && w.first <= s.last {
				hit = true
				break
			}
		}

		if hit {
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
	folder := layout.Folder(s.dir, b.Table, b.Job)
	if b.Table == row.RanksTable {
		for i := range b.Ranks {
			have, err := rankVersion(filepath.Join(folder, rankFile(&b.Ranks[i])))
			if err != nil {
				return nil, classify("look up ranks", err)
			}

			stored[i] = have >= int64(b.Ranks[i].Version)
		}

		return stored, nil
	}

	files, err := layout.Files(s.dir, b.Table, &b.Job)
	if err != nil {
		return nil, classify("look up "+b.Table, err)
	}

	x := s.indexes[folder]
	if x == nil {
		x = &index{files: map[string]map[owner]interval{}}
		s.indexes[folder] = x
	}

	if err := x.refresh(files); err != nil {
		return nil, classify("look up "+b.Table, err)
	}

	read := reader(b, stored)
	for _, name := range x.touching(b) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		if err := read(filepath.Join(folder, name)); err != nil {
			return nil, classify("look up "+b.Table, err)
		}
	}

	return stored, nil
}

// Sums implements ship.Windows.
func (s *Sink) Sums(ctx context.Context, b *ship.Batch) ([]ship.Sum, error) {
	sums := make([]ship.Sum, b.Len())
	places := ship.Places(b.Communications, ship.KeyOfCommunication)
	folder := layout.Folder(s.dir, b.Table, b.Job)
	for _, name := range s.indexes[folder].touching(b) { // Stored has made it
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		err := layout.Read(filepath.Join(folder, name), func(rows []storedWindow) error {
			for i := range rows {
				r := &rows[i]
				k := r.CommunicationKey
				k.Repeat = row.BaseRepeat(k.Repeat)
				for _, place := range places(k) {
					sums[place].Add(&row.Communication{Steps: r.Steps, Calls: r.Calls, TotalNs: r.TotalNs, Bytes: r.Bytes})
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

// storedWindow is what is read of a window to sum it up.
type storedWindow struct {
	ship.CommunicationKey
	Steps   uint32 `parquet:"steps"`
	Calls   uint32 `parquet:"calls"`
	TotalNs int64  `parquet:"total_ns"`
	Bytes   int64  `parquet:"bytes"`
}

// reader returns what marks the rows of b that are in a file.
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

// marker reads the keys of a file.
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
