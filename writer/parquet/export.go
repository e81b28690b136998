package parquet

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Export writes one table as one file, in the order in which rows come.
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
		export(e, out, func(r *row.Rows) []layout.Rank { return layout.Cast[layout.Rank](r.Ranks) })
	case row.StepsTable:
		export(e, out, func(r *row.Rows) []layout.Step { return layout.Cast[layout.Step](r.Steps) })
	case row.CommunicationsTable:
		export(e, out, func(r *row.Rows) []layout.Communication { return layout.Cast[layout.Communication](r.Communications) })
	case row.RecordsTable:
		export(e, out, func(r *row.Rows) []layout.Record { return layout.Cast[layout.Record](r.Records) })
	default:
		return nil, fmt.Errorf("export table %s: want ranks, steps, communications or records", table)
	}
	return e, nil
}

func export[T any](e *Export, out io.Writer, rows func(*row.Rows) []T) {
	w := parquet.NewGenericWriter[T](out, parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.MaxRowsPerRowGroup(rowGroup), parquet.CreatedBy("laggard", layout.SchemaVersion, ""))
	w.SetKeyValueMetadata(layout.SchemaKey, layout.SchemaVersion)
	e.write = func(r *row.Rows) error {
		_, err := w.Write(rows(r))
		return err
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
