// Package arrow writes rows as Arrow IPC streams: for notebooks, and for programs
// that want columns without a store.
//
// Invariant: a stream is one table: its schema, made of schemas/row, then record batches
// in the order of the rows, then the end mark. The bytes depend on the rows and their
// division into calls only.
//
// Caveat: this is the one package that knows Arrow's Go library, which is frozen
// upstream.
package arrow

import (
	"fmt"
	"io"
	"reflect"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

const (
	// batchRows is the number of rows of a record batch.
	batchRows = 64 << 10
	// schemaVersion stands in each schema's metadata.
	schemaVersion = "1"
)

// Writer writes one table. It is not safe for concurrent use.
type Writer struct {
	table   string
	out     *ipc.Writer
	builder *array.RecordBuilder
}

// NewWriter begins a stream of a table's rows, compressed with zstd. It writes nothing
// before the first Write or Close.
func NewWriter(out io.Writer, table string) (*Writer, error) {
	s, err := schemaOf(table)
	if err != nil {
		return nil, err
	}

	return &Writer{
		table: table, out: ipc.NewWriter(out, ipc.WithSchema(s), ipc.WithZstd()),
		builder: array.NewRecordBuilder(memory.DefaultAllocator, s),
	}, nil
}

// tables are the rows of what export offers: their fields are the columns, in order.
var tables = map[string]reflect.Type{
	row.RanksTable:          reflect.TypeFor[row.Rank](),
	row.StepsTable:          reflect.TypeFor[row.Step](),
	row.CommunicationsTable: reflect.TypeFor[row.Communication](),
	row.RecordsTable:        reflect.TypeFor[row.Record](),
}

// schemaOf returns the columns of a table; none is null.
func schemaOf(table string) (*arrow.Schema, error) {
	rows := tables[table]
	if rows == nil {
		return nil, fmt.Errorf("write Arrow stream: no table is called %q", table)
	}

	fields := make([]arrow.Field, rows.NumField())
	for i := range fields {
		f := rows.Field(i)
		fields[i] = arrow.Field{Name: f.Tag.Get("col"), Type: typeOf(f.Type)}
	}

	meta := arrow.NewMetadata([]string{"schema_version", "table"}, []string{schemaVersion, table})
	return arrow.NewSchema(fields, &meta), nil
}

// typeOf returns the type of a column whose values have a Go type.
func typeOf(t reflect.Type) arrow.DataType {
	switch t.Kind() {
	case reflect.String:
		return arrow.BinaryTypes.String
	case reflect.Uint16:
		return arrow.PrimitiveTypes.Uint16
	case reflect.Uint32:
		return arrow.PrimitiveTypes.Uint32
	case reflect.Uint64:
		return arrow.PrimitiveTypes.Uint64
	case reflect.Int32:
		return arrow.PrimitiveTypes.Int32
	case reflect.Int64:
		return arrow.PrimitiveTypes.Int64
	case reflect.Slice:
		return arrow.ListOf(typeOf(t.Elem()))
	}

	panic(fmt.Sprintf("BUG: no Arrow column for %s", t))
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
	}

	for from := 0; from < b.Len(); from += batchRows {
		if err := w.batch(b, from, min(from+batchRows, b.Len())); err != nil {
			return fmt.Errorf("write Arrow stream of %s: %w", w.table, err)
		}
	}

	return nil
}

// batch writes rows [from, to) as one record batch. The builder starts anew with each, and keeps
// its memory.
func (w *Writer) batch(b *ship.Batch, from, to int) error {
	layout, _ := b.Layout()
	for i, c := range layout.Columns {
		appendColumn(w.builder.Field(i), b.Gather(c, from, to))
	}

	record := w.builder.NewRecord()
	defer record.Release()
	return w.out.Write(record)
}

// appendColumn appends the values of one column. The types are those of typeOf: another
// one is a mistake of ours, not of the input.
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
