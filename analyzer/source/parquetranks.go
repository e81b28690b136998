package source

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// maxRanks bounds the rows of one file of ranks: 100 times the largest job known.
const maxRanks = 10_000_000

// readRanks reads a file of the table of ranks, value by value: it is small (one
// process a file), and two of its columns are lists.
func readRanks(path, job string) (ranks []row.Rank, err error) {
	p, f, err := layout.Open(path)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	if p.NumRows() > maxRanks {
		return nil, fmt.Errorf("%d ranks, more than %d", p.NumRows(), maxRanks)
	}

	columns := p.Schema().Columns()
	for _, g := range p.RowGroups() {
		if g.NumRows() < 0 || g.NumRows() > maxRanks {
			return nil, fmt.Errorf("a row group of %d ranks", g.NumRows())
		}

		group := make([]row.Rank, g.NumRows())
		for i := range group {
			// A file from before the column has none, and an empty list is what the other stores say.
			group[i].Off = []string{}
		}

		assignJob(group, job)

		for _, chunk := range g.ColumnChunks() {
			set := rankSetters[columns[chunk.Column()][0]]
			if set == nil {
				continue
			}

			if err := readValues(chunk, group, set); err != nil {
				return nil, fmt.Errorf("column %s: %w", columns[chunk.Column()][0], err)
			}
		}

		ranks = append(ranks, group...)
	}

	return ranks, nil
}

// readValues hands every value of a chunk to set, with the row it belongs to.
func readValues(chunk parquet.ColumnChunk, rows []row.Rank, set func(*row.Rank, parquet.Value)) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	var buffer [64]parquet.Value
	at := -1
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			if at+1 != len(rows) {
				return fmt.Errorf("ends after %d of %d rows", at+1, len(rows))
			}

			return nil
		}

		if err != nil {
			return err
		}

		values := page.Values()
		for err == nil {
			var n int
			n, err = values.ReadValues(buffer[:])
			for _, v := range buffer[:n] {
				// Dremel's levels: 0 begins a row, 1 an element of its list, 2 one of a list in the list.
				if v.RepetitionLevel() == 0 {
					at++
				}

				if at < 0 || at >= len(rows) {
					return fmt.Errorf("has more values than the %d rows", len(rows))
				}

				if !v.IsNull() {
					set(&rows[at], v)
				}
			}
		}

		parquet.Release(page)
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// rankSetters take the value of a leaf column, by its top-level name.
var rankSetters = settersOfRank()

// settersOfRank are made once; a column that has no setter is of a newer laggard, and is skipped.
func settersOfRank() map[string]func(*row.Rank, parquet.Value) {
	setters := map[string]func(*row.Rank, parquet.Value){
		"groups": func(r *row.Rank, v parquet.Value) { r.Groups = append(r.Groups, text(v)) },
		"off":    func(r *row.Rank, v parquet.Value) { r.Off = append(r.Off, text(v)) },
		"group_ranks": func(r *row.Rank, v parquet.Value) {
			if v.RepetitionLevel() < 2 { // a new group
				r.GroupRanks = append(r.GroupRanks, nil)
			}

			last := len(r.GroupRanks) - 1
			r.GroupRanks[last] = append(r.GroupRanks[last], uint32(number(v)))
		},
	}
	for _, c := range columnsOf[row.Rank](nil) {
		switch {
		case c.set != nil:
			setters[c.name] = func(r *row.Rank, v parquet.Value) { c.set(r, number(v)) }
		case c.text != nil:
			setters[c.name] = func(r *row.Rank, v parquet.Value) { c.text(r, text(v)) }
		}
	}

	return setters
}

// number returns an integer column's value; a column of another type gives 0.
func number(v parquet.Value) int64 {
	switch v.Kind() {
	case parquet.Int64:
		return v.Int64()
	case parquet.Int32:
		return int64(v.Int32())
	}

	return 0
}

// text returns a copy of a text column's value; a column of another type gives "".
func text(v parquet.Value) string {
	if v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray {
		return string(v.ByteArray())
	}

	return ""
}
