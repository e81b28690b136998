package ship

import (
	"reflect"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Layout is how the rows of a table lie in memory: their columns in the table's order, each a
// field of the row struct under the column's name.
type Layout struct {
	Columns []reflect.StructField
	Stride  uintptr // bytes from one row to the next
	first   func(*row.Rows) unsafe.Pointer
}

// layouts is filled once: the fields of schemas/row never change at run time.
var layouts = map[string]Layout{
	row.RanksTable:          layoutOf(func(r *row.Rows) []row.Rank { return r.Ranks }),
	row.StepsTable:          layoutOf(func(r *row.Rows) []row.Step { return r.Steps }),
	row.CommunicationsTable: layoutOf(func(r *row.Rows) []row.Communication { return r.Communications }),
	row.RecordsTable:        layoutOf(func(r *row.Rows) []row.Raw { return r.Raws.Rows }).inOrderOf(reflect.TypeFor[row.Record]()),
	row.VerdictsTable:       layoutOf(func(r *row.Rows) []row.Verdict { return r.Verdicts }),
	row.LedgerTable:         layoutOf(func(r *row.Rows) []row.Ledger { return r.Ledger }),
}

// layoutOf is the layout of a table's rows, which of picks out.
func layoutOf[T any](of func(*row.Rows) []T) Layout {
	t := reflect.TypeFor[T]()
	l := Layout{Stride: t.Size(), first: func(r *row.Rows) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(of(r))) }}
	for i := range t.NumField() {
		f := t.Field(i)
		f.Name = f.Tag.Get("col")
		l.Columns = append(l.Columns, f)
	}

	return l
}

// inOrderOf returns l with its columns in the order of another struct's fields, by their names.
func (l Layout) inOrderOf(t reflect.Type) Layout {
	of := map[string]reflect.StructField{}
	for _, c := range l.Columns {
		of[c.Name] = c
	}

	for i := range l.Columns {
		l.Columns[i] = of[t.Field(i).Tag.Get("col")]
	}

	return l
}

// LayoutOf returns the layout of a table; one that is not laggard's has no columns.
func LayoutOf(table string) Layout { return layouts[table] }

// Layout returns the layout of the batch's rows and the address of the first (nil
// without rows).
func (b *Batch) Layout() (Layout, unsafe.Pointer) {
	l := layouts[b.Table]
	return l, l.first(&b.Rows)
}

// Value returns column c of row i as a value of Go's own types, words as strings.
func (b *Batch) Value(c reflect.StructField, i int) any {
	l, first := b.Layout()
	v := reflect.NewAt(c.Type, unsafe.Add(l.At(first, i), c.Offset)).Elem()
	switch c.Type {
	case reflect.TypeFor[record.Word]():
		return b.Raws.Words[v.Uint()]
	case reflect.TypeFor[record.ID]():
		return v.Uint()
	}

	return v.Interface()
}

// At is the address of row i.
func (l Layout) At(base unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(base, uintptr(i)*l.Stride)
}
