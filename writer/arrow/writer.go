// Package arrow writes rows as Arrow IPC streams: for notebooks, and for programs
// that want columns without a store.
//
// Invariant: a stream is one table: its schema, made of schemas/row, then record batches
// in the order of the rows, then the end mark. The bytes depend on the rows alone.
//
// Caveat: this is the one package that knows Arrow's Go library, which is frozen
// upstream.
package arrow

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

const (
	// batchRows is the number of rows of a record batch. A row is some hundred bytes, so a stream
	// of any length holds about 1 MiB.
	batchRows = 4 << 10
	// schemaVersion stands in each schema's metadata.
	schemaVersion = "1"
)

// Writer writes one table, whose rows are T, a struct of schemas/row. It is not safe for
// concurrent use.
type Writer[T any] struct {
	table   string
	out     *ipc.Writer
	builder *array.RecordBuilder // the rows of the batch under way
	rows    int                  // how many
}

// NewWriter begins a stream of a table's rows, compressed with zstd. It writes nothing
// before the first Write or Close.
func NewWriter[T any](out io.Writer, table string) *Writer[T] {
	s := schemaOf(reflect.TypeFor[T](), table)
	return &Writer[T]{
		table: table, out: ipc.NewWriter(out, ipc.WithSchema(s), ipc.WithZstd()),
		builder: array.NewRecordBuilder(memory.DefaultAllocator, s),
	}
}

// schemaOf returns the columns of a table: the fields of its rows, in order; none is null.
func schemaOf(rows reflect.Type, table string) *arrow.Schema {
	fields := make([]arrow.Field, rows.NumField())
	for i := range fields {
		f := rows.Field(i)
		fields[i] = arrow.Field{Name: f.Tag.Get("col"), Type: typeOf(f.Type)}
	}

	meta := arrow.NewMetadata([]string{"schema_version", "table"}, []string{schemaVersion, table})
	return arrow.NewSchema(fields, &meta)
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

// Write adds rows, and writes each batch that is full.
func (w *Writer[T]) Write(rows []T) error {
	for i := range rows {
		v := reflect.ValueOf(&rows[i]).Elem()
		for c, b := range w.builder.Fields() {
			appendValue(b, v.Field(c))
		}

		if w.rows++; w.rows < batchRows {
			continue
		}

		if err := w.flush(); err != nil {
			return fmt.Errorf("write Arrow stream of %s: %w", w.table, err)
		}
	}

	return nil
}

// flush writes the batch under way. The builder starts anew with each, and keeps its memory.
func (w *Writer[T]) flush() error {
	if w.rows == 0 {
		return nil
	}

	w.rows = 0
	record := w.builder.NewRecord()
	defer record.Release()
	return w.out.Write(record)
}

// appendValue appends a value to its column. The types are those of typeOf: another
// one is a mistake of ours, not of the input.
func appendValue(b array.Builder, v reflect.Value) {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(v.String())
	case *array.Uint16Builder:
		b.Append(uint16(v.Uint()))
	case *array.Uint32Builder:
		b.Append(uint32(v.Uint()))
	case *array.Uint64Builder:
		b.Append(v.Uint())
	case *array.Int32Builder:
		b.Append(int32(v.Int()))
	case *array.Int64Builder:
		b.Append(v.Int())
	case *array.ListBuilder:
		b.Append(true)
		for i := range v.Len() {
			appendValue(b.ValueBuilder(), v.Index(i))
		}
	default:
		panic(fmt.Sprintf("BUG: no Arrow column for %s", v.Type()))
	}
}

// Close writes what is left and ends the stream; the io.Writer stays open.
func (w *Writer[T]) Close() error {
	err := w.flush()
	w.builder.Release()
	if err := errors.Join(err, w.out.Close()); err != nil {
		return fmt.Errorf("end Arrow stream of %s: %w", w.table, err)
	}

	return nil
}
