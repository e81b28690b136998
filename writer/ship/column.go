package ship

import (
	"reflect"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Layout is how the rows of a table lie in memory: their columns in the table's order, each a
// field of the row struct under the column's name.
type Layout struct {
	Columns []reflect.StructField
	Stride  uintptr // bytes from one row to the next
}

// layouts is filled once: the fields of schemas/row never change at run time.
var layouts = map[string]Layout{
	row.RanksTable:          layoutOf[row.Rank](),
	row.StepsTable:          layoutOf[row.Step](),
	row.CommunicationsTable: layoutOf[row.Communication](),
	row.RecordsTable:        layoutOf[row.Raw]().inOrderOf(layoutOf[row.Record]()),
	row.VerdictsTable:       layoutOf[row.Verdict](),
	row.LedgerTable:         layoutOf[row.Ledger](),
}

// layoutOf is the layout of a row struct.
func layoutOf[T any]() Layout {
	t := reflect.TypeFor[T]()
	l := Layout{Stride: t.Size()}
	for i := range t.NumField() {
		f := t.Field(i)
		f.Name = f.Tag.Get("col")
		l.Columns = append(l.Columns, f)
	}

	return l
}

// inOrderOf returns l with its columns in another layout's order, by their names.
func (l Layout) inOrderOf(table Layout) Layout {
	of := map[string]reflect.StructField{}
	for _, c := range l.Columns {
		of[c.Name] = c
	}

	for i, c := range table.Columns {
		l.Columns[i] = of[c.Name]
	}

	return l
}

// LayoutOf returns the layout of a table; one that is not laggard's has no columns.
func LayoutOf(table string) Layout { return layouts[table] }

// Layout returns the layout of the batch's rows and the address of the first (nil
// without rows).
func (b *Batch) Layout() (Layout, unsafe.Pointer) {
	var base unsafe.Pointer
	switch b.Table {
	case row.RanksTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Ranks))
	case row.StepsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Steps))
	case row.CommunicationsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Communications))
	case row.RecordsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Raws.Rows))
	case row.VerdictsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Verdicts))
	case row.LedgerTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Ledger))
	}

	return layouts[b.Table], base
}

// Gather returns column c of rows [from, to) as a slice of its Go type ([]int64,
// []string, …), words as strings.
func (b *Batch) Gather(c reflect.StructField, from, to int) any {
	if c.Type == reflect.TypeFor[row.Word]() {
		words := gather[row.Word](b, c, from, to)
		texts := make([]string, len(words))
		for i, w := range words {
			texts[i] = b.Raws.Words[w]
		}

		return texts
	}

	switch c.Type.Kind() {
	case reflect.Uint16:
		return gather[uint16](b, c, from, to)
	case reflect.Uint32:
		return gather[uint32](b, c, from, to)
	case reflect.Uint64:
		return gather[uint64](b, c, from, to)
	case reflect.Int32:
		return gather[int32](b, c, from, to)
	case reflect.Int64:
		return gather[int64](b, c, from, to)
	case reflect.String:
		return gather[string](b, c, from, to)
	}

	if c.Type.Elem().Kind() == reflect.String {
		return gather[[]string](b, c, from, to)
	}

	return gather[[][]uint32](b, c, from, to)
}

// gather reads a column whose values are T, as Gather has found out.
func gather[T any](b *Batch, c reflect.StructField, from, to int) []T {
	l, base := b.Layout()
	values := make([]T, to-from)
	for i := range values {
		values[i] = *(*T)(unsafe.Add(l.At(base, from+i), c.Offset))
	}

	return values
}

// At is the address of row i.
func (l Layout) At(base unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(base, uintptr(i)*l.Stride)
}
