package source

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// span is a range of a file's rows: what one worker reads at a time.
type span struct {
	path     string
	from, to int64
}

const (
	// spanRows bounds the rows that a worker holds. It is the row group of our own files, so that a span of
	// them is in one; those of others may be cut anywhere.
	spanRows = 128 << 10
	// smallFile is the bytes of a file that is read without asking first how many rows it has, wholeFile the
	// end of its span, mostRows what it may unfold to.
	smallFile = 64 << 10
	wholeFile = -1
	mostRows  = 4 << 20
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
	if s.to == wholeFile {
		if s.to = p.NumRows(); s.to > mostRows {
			return nil, fmt.Errorf("%d rows in a file of %d bytes", s.to, p.Size())
		}
	}

	first := int64(0) // row of the group
	for _, g := range p.RowGroups() {
		from, to := max(s.from-first, 0), min(s.to-first, g.NumRows())
		if from < to {
			if rows, err = readGroup(p, g, from, to, columns, job, rows); err != nil {
				return nil, err
			}
		}

		first += g.NumRows()
	}

	if int64(len(rows)) != s.to-s.from {
		return nil, fmt.Errorf("%d rows where %d were expected: the file changed while it was read, or its row groups don't add up", len(rows), s.to-s.from)
	}

	return rows, nil
}

// readGroup appends rows from…to of a row group to rows.
func readGroup[T any](p *parquet.File, g parquet.RowGroup, from, to int64, columns []column[T], job string, rows []T) ([]T, error) {
	first := len(rows)
	rows = slices.Grow(rows, int(to-from))[:first+int(to-from)]
	assignJob(rows[first:], job)
	chunks := g.ColumnChunks()
	values := make([]parquet.Value, valuesAtOnce)
	for _, c := range columns {
		leaf, ok := p.Schema().Lookup(c.name)
		if !ok {
			n := len(rows) - first
			c.move(rows[first:], &native.Column{Numbers: slices.Repeat([]int64{c.missing}, n), Texts: make([]string, n)})
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
	if data := page.Data(); !c.text && page.Dictionary() == nil && data.Kind() == encoding.Int64 {
		all := data.Int64() // most columns of most files: no value of them is looked at alone
		done = min(len(all), len(rows))
		c.move(rows[:done], &native.Column{Numbers: all})
		return done, nil
	}

	var read native.Column
	for from := page.Values(); done < len(rows) && err == nil; {
		var n int
		n, err = from.ReadValues(values[:min(len(values), len(rows)-done)])
		if err := take(&read, values[:n], c.text, words); err != nil {
			return 0, fmt.Errorf("%w (%s)", err, page.Type())
		}

		c.move(rows[done:done+n], &read)
		done += n
	}

	if errors.Is(err, io.EOF) {
		err = nil
	}

	return done, err
}

// take makes a column of values, which are to be texts or to be integers.
func take(c *native.Column, values []parquet.Value, texts bool, words map[string]string) error {
	c.Numbers, c.Texts = c.Numbers[:0], c.Texts[:0]
	for i := range values {
		v := &values[i]
		switch kind := v.Kind(); {
		case texts && kind == parquet.ByteArray:
			word, ok := words[string(v.ByteArray())]
			if !ok {
				word = string(v.ByteArray())
				words[word] = word
			}

			c.Texts = append(c.Texts, word)
		case !texts && kind == parquet.Int64:
			c.Numbers = append(c.Numbers, v.Int64())
		case !texts && kind == parquet.Int32:
			c.Numbers = append(c.Numbers, int64(v.Int32()))
		case v.IsNull():
			return errors.New("holds nulls; laggard's columns do not")
		default:
			return errType
		}
	}

	return nil
}
