package ship

import (
	"reflect"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Layout is how the rows of a table lie in memory: their columns in order.
type Layout struct {
	Columns []Column
	Stride  uintptr // bytes from one row to the next
}

// Column is one column: a field of a row struct.
type Column struct {
	Name   string
	Type   reflect.Type
	Offset uintptr // bytes from the start of the row
}

// layouts is filled once: the fields of schemas/row never change at run time.
var layouts = map[string]Layout{
	row.RanksTable:          layoutOf[row.Rank](),
	row.StepsTable:          layoutOf[row.Step](),
	row.CommunicationsTable: layoutOf[row.Communication](),
	row.RecordsTable:        layoutOf[row.Record](),
	row.VerdictsTable:       layoutOf[row.Verdict](),
	row.LedgerTable:         layoutOf[row.Ledger](),
}

func layoutOf[T any]() Layout {
	t := reflect.TypeFor[T]()
	l := Layout{Stride: t.Size()}
	for i := range t.NumField() {
		f := t.Field(i)
		l.Columns = append(l.Columns, Column{Name: f.Tag.Get("col"), Type: f.Type, Offset: f.Offset})
	}
	return l
}

// rawLayout is that of packed rows of the table records: its columns in the table's
// order, wherever in a row they lie.
var rawLayout = layoutOf[row.Raw]().inOrderOf(layouts[row.RecordsTable])

// inOrderOf returns l with its columns in another layout's order, by their names.
func (l Layout) inOrderOf(table Layout) Layout {
	of := map[string]Column{}
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

// RawLayout returns the layout of packed rows of the table records.
func RawLayout() Layout { return rawLayout }

// Layout returns the layout of the batch's rows, packed or not, and the address of
// the first (nil without rows).
func (b *Batch) Layout() (Layout, unsafe.Pointer) {
	if len(b.Raws.Rows) > 0 {
		return rawLayout, unsafe.Pointer(unsafe.SliceData(b.Raws.Rows))
	}
	var base unsafe.Pointer
	switch b.Table {
	case row.RanksTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Ranks))
	case row.StepsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Steps))
	case row.CommunicationsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Communications))
	case row.RecordsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Records))
	case row.VerdictsTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Verdicts))
	case row.LedgerTable:
		base = unsafe.Pointer(unsafe.SliceData(b.Ledger))
	}
	return layouts[b.Table], base
}

// Scratch holds one column at a time, so that turning rows into columns
// allocates nothing once it has grown. The zero value is ready.
type Scratch struct {
	u16 []uint16
	u32 []uint32
	u64 []uint64
	i32 []int32
	i64 []int64
	s   []string
	ss  [][]string
	uss [][][]uint32
}

// Gather returns column c of n rows as a slice of its Go type ([]int64,
// []string, …). It is valid until the next Gather of the same type.
func (s *Scratch) Gather(l Layout, c Column, base unsafe.Pointer, n int) any {
	switch c.Type.Kind() {
	case reflect.Uint16:
		s.u16 = gather(s.u16, l, c, base, n)
		return s.u16
	case reflect.Uint32:
		s.u32 = gather(s.u32, l, c, base, n)
		return s.u32
	case reflect.Uint64:
		s.u64 = gather(s.u64, l, c, base, n)
		return s.u64
	case reflect.Int32:
		s.i32 = gather(s.i32, l, c, base, n)
		return s.i32
	case reflect.Int64:
		s.i64 = gather(s.i64, l, c, base, n)
		return s.i64
	case reflect.String:
		s.s = gather(s.s, l, c, base, n)
		return s.s
	}
	if c.Type.Elem().Kind() == reflect.String {
		s.ss = gather(s.ss, l, c, base, n)
		return s.ss
	}
	s.uss = gather(s.uss, l, c, base, n)
	return s.uss
}

// Release drops the references to strings that the last columns left behind.
func (s *Scratch) Release() {
	clear(s.s[:cap(s.s)])
	clear(s.ss[:cap(s.ss)])
	clear(s.uss[:cap(s.uss)])
}

func gather[T any](dst []T, l Layout, c Column, base unsafe.Pointer, n int) []T {
	if cap(dst) < n {
		dst = make([]T, n)
	}
	dst = dst[:n]
	for i := range dst {
		dst[i] = *(*T)(unsafe.Add(base, uintptr(i)*l.Stride+c.Offset))
	}
	return dst
}

// value returns column c of row i.
func (c Column) value(base unsafe.Pointer, i int, stride uintptr) any {
	return reflect.NewAt(c.Type, unsafe.Add(base, uintptr(i)*stride+c.Offset)).Elem().Interface()
}

// At is the address of row i.
func (l Layout) At(base unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(base, uintptr(i)*l.Stride)
}
