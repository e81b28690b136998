package source

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unique"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// span is a range of rows of one row group of a file: what one worker reads at
// a time.
type span struct {
	path     string
	group    int   // row group; -1 is the whole of a small file
	from, to int64 // rows of the group
}

// spanRows bounds the rows that a worker holds, smallFile the bytes of a file
// that is read without asking first how many rows it has.
const (
	spanRows  = 128 << 10
	smallFile = 64 << 10
	// mostRows bounds what a small file may unfold to.
	mostRows = 4 << 20
)

// read reads the rows of a span of a table, as a part does.
func (s span) read(table, job string, rows *row.Rows) error {
	if table == row.StepsTable {
		steps, err := guarded(s.path, func() ([]row.Step, error) { return readSpan(s, stepColumns, job, rows.Steps) })
		*rows = row.Rows{Steps: steps}
		return err
	}

	communications, err := guarded(s.path, func() ([]row.Communication, error) {
		return readSpan(s, communicationColumns, job, rows.Communications)
	})
	*rows = row.Rows{Communications: communications}
	return err
}

// readSpan reads the rows of a span, column by column, into buffer, which it
// overwrites and may replace.
func readSpan[T any](s span, columns []column[T], job string, buffer []T) (rows []T, err error) {
	rows = buffer[:0]
	p, f, err := layout.Open(s.path)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	groups := p.RowGroups()
	if s.group >= 0 {
		if s.group >= len(groups) {
			return nil, errors.New("the file changed while it was read")
		}

		return readGroup(p, groups[s.group], s.from, s.to, columns, job, rows)
	}

	if p.NumRows() > mostRows {
		return nil, fmt.Errorf("%d rows in a file of %d bytes", p.NumRows(), p.Size())
	}

	for _, g := range groups {
		if rows, err = readGroup(p, g, 0, g.NumRows(), columns, job, rows); err != nil {
			return nil, err
		}
	}

	return rows, nil
}

// readGroup appends rows from…to of a row group to rows.
func readGroup[T any](p *parquet.File, g parquet.RowGroup, from, to int64, columns []column[T], job string, rows []T) ([]T, error) {
	if from < 0 || to < from || to > g.NumRows() || to-from > math.MaxInt32 {
		return nil, fmt.Errorf("a row group of %d rows where %d to %d were expected", g.NumRows(), from, to)
	}

	first := len(rows)
	rows = slices.Grow(rows, int(to-from))[:first+int(to-from)]
	assignJob(rows[first:], job)
	chunks := g.ColumnChunks()
	var words dictionary // its memory serves one column after the other
	for _, c := range columns {
		leaf, ok := p.Schema().Lookup(c.name)
		if !ok {
			for i := range rows[first:] {
				if c.text != nil {
					c.text(&rows[first+i], "")
				} else {
					c.set(&rows[first+i], c.missing)
				}
			}

			continue
		}

		if leaf.MaxRepetitionLevel != 0 || leaf.MaxDefinitionLevel != 0 {
			return nil, fmt.Errorf("column %s is optional or repeated; laggard's are not", c.name)
		}

		if err := readColumn(chunks[leaf.ColumnIndex], from, c, &words, rows[first:]); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
	}

	return rows, nil
}

// readColumn fills one column of rows from the chunk, from its row `from` on.
func readColumn[T any](chunk parquet.ColumnChunk, from int64, c column[T], words *dictionary, rows []T) (err error) {
	if from > 0 {
		// SeekToRow goes by the index of pages where there is one: a damaged one is found here, by name.
		if _, err := chunk.OffsetIndex(); err != nil && !errors.Is(err, parquet.ErrMissingOffsetIndex) {
			return err
		}
	}

	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	if from > 0 {
		if err := pages.SeekToRow(from); err != nil {
			return err
		}
	}

	for done := 0; done < len(rows); {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("ends after %d of %d rows", done, len(rows))
		}

		if err != nil {
			return err
		}

		n, err := words.use(page, c.text != nil, len(rows)-done)
		if err == nil {
			into := rows[done : done+n]
			if c.text != nil {
				for i := range into {
					c.text(&into[i], words.texts[words.at(i)])
				}
			} else {
				for i := range into {
					c.set(&into[i], words.ints[words.at(i)])
				}
			}
		}

		parquet.Release(page)
		if err != nil {
			return err
		}

		done += n
	}

	return nil
}

// dictionary is the values of one page: by index into the chunk's dictionary
// where it has one, plain otherwise.
type dictionary struct {
	of      parquet.Dictionary // whose values ints and texts hold
	indexes []int32            // nil = plain
	ints    []int64
	texts   []string
}

// at is the place of a page's i-th value among the decoded ones.
func (d *dictionary) at(i int) int {
	if d.indexes == nil {
		return i
	}

	return int(d.indexes[i])
}

// use takes a page over and returns how many of its values to read, at most most.
func (d *dictionary) use(page parquet.Page, text bool, most int) (int, error) {
	n := int(min(page.NumValues(), int64(most)))
	if page.NumNulls() != 0 {
		return 0, errors.New("holds nulls; laggard's columns do not")
	}

	of := page.Dictionary()
	if of == nil {
		d.of, d.indexes = nil, nil
		return n, d.values(page.Data(), page.Type(), text, n)
	}

	// Indexes are data of a hostile file: each is checked before it is used, below.
	data := page.Data()
	if data.Kind() != encoding.Int32 {
		return 0, errors.New("has a dictionary with indexes of an unknown type")
	}

	d.indexes = data.Int32()
	if len(d.indexes) < n {
		return 0, fmt.Errorf("a page of %d values holds %d", n, len(d.indexes))
	}

	// The pages of a chunk share a dictionary: it is decoded once, and the rest are indexes.
	if d.of != of {
		d.of = of
		if err := d.values(of.Page().Data(), of.Type(), text, of.Len()); err != nil {
			return 0, err
		}
	}

	for _, index := range d.indexes[:n] {
		if index < 0 || int(index) >= of.Len() {
			return 0, fmt.Errorf("index %d into a dictionary of %d", index, of.Len())
		}
	}

	return n, nil
}

// values decodes n plain values.
func (d *dictionary) values(v encoding.Values, typ parquet.Type, text bool, n int) error {
	have := 0
	switch kind := v.Kind(); {
	case text && kind == encoding.ByteArray:
		data, offsets := v.ByteArray()
		have = max(0, len(offsets)-1)
		d.texts = d.texts[:0]
		for i := 0; i < min(have, n); i++ { // one copy of each: millions of rows repeat few of them
			d.texts = append(d.texts, unique.Make(string(data[offsets[i]:offsets[i+1]])).Value())
		}
	case !text && kind == encoding.Int64:
		plain := v.Int64()
		have = len(plain)
		d.ints = append(d.ints[:0], plain[:min(have, n)]...)
	case !text && kind == encoding.Int32:
		plain := v.Int32()
		have = len(plain)
		d.ints = d.ints[:0]
		for _, x := range plain[:min(have, n)] {
			d.ints = append(d.ints, int64(x))
		}
	default:
		return fmt.Errorf("is of type %s", typ)
	}

	if have < n {
		return fmt.Errorf("a page of %d values holds %d", n, have)
	}

	return nil
}
