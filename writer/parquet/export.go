package parquet

import (
	"fmt"
	"io"
	"iter"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Export writes one table as one file, in the order in which rows come. Its footer names no
// sorting columns and no ranges: whoever exports may put any rows in any order.
type Export struct {
	table string
	write func(*row.Rows) error
	close func() error
}

// NewExport begins a file of a table.
func NewExport(out io.Writer, table string) (*Export, error) {
	e := &Export{table: table}
	switch table {
	case row.RanksTable:
		export(e, out, func(r *row.Rows) iter.Seq[[]row.Rank] { return run(r.Ranks) })
	case row.StepsTable:
		export(e, out, func(r *row.Rows) iter.Seq[[]row.Step] { return run(r.Steps) })
	case row.CommunicationsTable:
		export(e, out, func(r *row.Rows) iter.Seq[[]row.Communication] { return run(r.Communications) })
	case row.RecordsTable:
		export(e, out, func(r *row.Rows) iter.Seq[[]row.Record] { return unpacked(r.Raws.Words, r.Raws.Rows) })
	default:
		return nil, fmt.Errorf("export table %s: want ranks, steps, communications or records", table)
	}

	return e, nil
}

// export makes e write the rows that it is given of each bundle.
func export[T any](e *Export, out io.Writer, rows func(*row.Rows) iter.Seq[[]T]) {
	w := newWriter[T](out)
	w.SetKeyValueMetadata(layout.SchemaKey, layout.SchemaVersion)
	e.write = func(r *row.Rows) error {
		for some := range rows(r) {
			if _, err := w.Write(some); err != nil {
				return err
			}
		}

		return nil
	}
	e.close = w.Close
}

// Write adds the rows of the export's table; those of others are left alone.
func (e *Export) Write(r *row.Rows) error {
	if err := e.write(r); err != nil {
		return fmt.Errorf("export %s: %w", e.table, err)
	}

	return nil
}

// Close ends the file; the io.Writer stays open.
func (e *Export) Close() error {
	if err := e.close(); err != nil {
		return fmt.Errorf("export %s: %w", e.table, err)
	}

	return nil
}
