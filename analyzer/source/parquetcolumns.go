package source

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

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
	values := make([]parquet.Value, valuesAtOnce)
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

		if err := readColumn(chunks[leaf.ColumnIndex], from, c, values, rows[first:]); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
	}

	return rows, nil
}

// readColumn fills one column of rows from the chunk, from its row `from` on. values are its own while
// it reads.
func readColumn[T any](chunk parquet.ColumnChunk, from int64, c column[T], values []parquet.Value, rows []T) (err error) {
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

	words := map[string]string{} // one copy of each: the rows of a span repeat few of them
	for done := 0; done < len(rows); {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("ends after %d of %d rows", done, len(rows))
		}

		if err != nil {
			return err
		}

		n, err := readPage(page, c, values, words, rows[done:])
		parquet.Release(page)
		if err != nil {
			return err
		}

		done += n
	}

	return nil
}

// valuesAtOnce are read of a page at a time.
const valuesAtOnce = 1 << 10

// readPage fills the column from a page, and returns how many rows it had for it.
func readPage[T any](page parquet.Page, c column[T], values []parquet.Value, words map[string]string, rows []T) (done int, err error) {
	for from := page.Values(); done < len(rows) && err == nil; {
		var n int
		n, err = from.ReadValues(values[:min(len(values), len(rows)-done)])
		for i := range values[:n] {
			v, r := &values[i], &rows[done+i]
			switch kind := v.Kind(); {
			case c.text != nil && kind == parquet.ByteArray:
				word, ok := words[string(v.ByteArray())]
				if !ok {
					word = string(v.ByteArray())
					words[word] = word
				}

				c.text(r, word)
			case c.set != nil && kind == parquet.Int64:
				c.set(r, v.Int64())
			case c.set != nil && kind == parquet.Int32:
				c.set(r, int64(v.Int32()))
			case v.IsNull():
				return 0, errors.New("holds nulls; laggard's columns do not")
			default:
				return 0, fmt.Errorf("is of type %s", page.Type())
			}
		}

		done += n
	}

	if errors.Is(err, io.EOF) {
		err = nil
	}

	return done, err
}
