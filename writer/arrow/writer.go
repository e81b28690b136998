// Package arrow writes rows as Arrow IPC streams: for notebooks, and for programs
// that want columns without a store.
//
// Invariant: a stream is one table: its schema (schemas/arrow), then record
// batches in the order of the rows, then the end mark. The bytes depend on the
// rows and their division into calls only.
//
// Caveat: this is the one package that knows Arrow's Go library, which is frozen
// upstream.
package arrow

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	schema "github.com/laggard-dev/laggard/schemas/arrow"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// batchRows is the number of rows of a record batch.
const batchRows = 64 << 10

// Writer writes one table. It is not safe for concurrent use.
type Writer struct {
	table   string
	out     *ipc.Writer
	builder *array.RecordBuilder
	scratch ship.Scratch
}

// Options configure a Writer.
type Options struct {
	// Plain leaves the buffers uncompressed; else they are zstd.
	Plain bool
}

// NewWriter begins a stream of a table's rows. It writes nothing before the first
// Write or Close.
func NewWriter(out io.Writer, table string, o Options) (*Writer, error) {
	s, err := schemaOf(table)
	if err != nil {
		return nil, err
	}

	options := []ipc.Option{ipc.WithSchema(s)}
	if !o.Plain {
		options = append(options, ipc.WithZstd())
	}

	return &Writer{
		table: table, out: ipc.NewWriter(out, options...),
		builder: array.NewRecordBuilder(memory.DefaultAllocator, s),
	}, nil
}

func schemaOf(table string) (*arrow.Schema, error) {
	columns := schema.Fields(table)
	if columns == nil {
		return nil, fmt.Errorf("write Arrow stream: no table is called %q", table)
	}

	types := map[schema.Type]arrow.DataType{
		schema.Utf8: arrow.BinaryTypes.String, schema.Uint16: arrow.PrimitiveTypes.Uint16,
		schema.Uint32: arrow.PrimitiveTypes.Uint32, schema.Uint64: arrow.PrimitiveTypes.Uint64,
		schema.Int32: arrow.PrimitiveTypes.Int32, schema.Int64: arrow.PrimitiveTypes.Int64,
		schema.ListUtf8:    arrow.ListOf(arrow.BinaryTypes.String),
		schema.ListListU32: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Uint32)),
	}
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.Name, Type: types[c.Type]}
	}

	meta := arrow.NewMetadata([]string{schema.SchemaKey, schema.TableKey}, []string{schema.SchemaVersion, table})
	return arrow.NewSchema(fields, &meta), nil
}

// Write writes the rows of the writer's table; those of others are left alone.
func (w *Writer) Write(rows *row.Rows) error {
	b := &ship.Batch{Table: w.table}
	switch w.table {
	case row.RanksTable:
		b.Ranks = rows.Ranks
	case row.StepsTable:
		b.Steps = rows.Steps
	case row.CommunicationsTable:
		b.Communications = rows.Communications
	case row.RecordsTable:
		b.Raws = rows.Raws
	case row.LedgerTable:
		b.Ledger = rows.Ledger
	}

	return w.write(b)
}

// WriteVerdicts writes rows of the table verdicts.
func (w *Writer) WriteVerdicts(rows []row.Verdict) error {
	if w.table != row.VerdictsTable {
		return fmt.Errorf("write Arrow stream of %s: these are verdicts", w.table)
	}

	return w.write(&ship.Batch{Table: w.table, Verdicts: rows})
}

func (w *Writer) write(b *ship.Batch) error {
	for from := 0; from < b.Len(); from += batchRows {
		if err := w.batch(b, from, min(from+batchRows, b.Len())); err != nil {
			return fmt.Errorf("write Arrow stream of %s: %w", w.table, err)
		}
	}

	return nil
}

// batch writes rows [from, to) as one record batch.
func (w *Writer) batch(b *ship.Batch, from, to int) error {
	layout, _ := b.Layout()
	for i, c := range layout.Columns {
		appendColumn(w.builder.Field(i), w.scratch.Gather(b, c, from, to))
	}

	w.scratch.Release()
	record := w.builder.NewRecord()
	defer record.Release()
	return w.out.Write(record)
}

// appendColumn appends the values of one column. The types are those of schemas/arrow: another one is a
// mistake of ours, not of the input.
func appendColumn(b array.Builder, values any) {
	switch v := values.(type) {
	case []string:
		b.(*array.StringBuilder).AppendValues(v, nil)
	case []uint16:
		b.(*array.Uint16Builder).AppendValues(v, nil)
	case []uint32:
		b.(*array.Uint32Builder).AppendValues(v, nil)
	case []uint64:
		b.(*array.Uint64Builder).AppendValues(v, nil)
	case []int32:
		b.(*array.Int32Builder).AppendValues(v, nil)
	case []int64:
		b.(*array.Int64Builder).AppendValues(v, nil)
	case [][]string:
		list := b.(*array.ListBuilder)
		for _, texts := range v {
			list.Append(true)
			list.ValueBuilder().(*array.StringBuilder).AppendValues(texts, nil)
		}
	case [][][]uint32:
		list := b.(*array.ListBuilder)
		inner := list.ValueBuilder().(*array.ListBuilder)
		for _, groups := range v {
			list.Append(true)
			for _, ranks := range groups {
				inner.Append(true)
				inner.ValueBuilder().(*array.Uint32Builder).AppendValues(ranks, nil)
			}
		}
	default:
		panic(fmt.Sprintf("BUG: no Arrow column for %T", values))
	}
}

// Close ends the stream; the io.Writer stays open.
func (w *Writer) Close() error {
	w.builder.Release()
	if err := w.out.Close(); err != nil {
		return fmt.Errorf("end Arrow stream of %s: %w", w.table, err)
	}

	return nil
}
