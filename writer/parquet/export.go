package parquet

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
)

// Export writes one table as one file, in the order in which rows come. Its footer names no
// sorting columns and no ranges: whoever exports may put any rows in any order. T is a struct of
// schemas/row.
type Export[T any] struct {
	table string
	out   *parquet.GenericWriter[T]
}

// NewExport begins a file of a table.
func NewExport[T any](out io.Writer, table string) *Export[T] {
	w := newWriter[T](out)
	w.SetKeyValueMetadata(layout.SchemaKey, layout.SchemaVersion)
	return &Export[T]{table: table, out: w}
}

// Write adds rows.
func (e *Export[T]) Write(rows []T) error {
	if _, err := e.out.Write(rows); err != nil {
		return fmt.Errorf("export %s: %w", e.table, err)
	}

	return nil
}

// Close ends the file; the io.Writer stays open.
func (e *Export[T]) Close() error {
	if err := e.out.Close(); err != nil {
		return fmt.Errorf("export %s: %w", e.table, err)
	}

	return nil
}
