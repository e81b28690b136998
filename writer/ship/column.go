package ship

import (
	"reflect"
	"slices"
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
	row.RecordsTable:        layoutOf[row.Raw]().inOrderOf(layoutOf[row.Record]()),
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

// Scratch holds one column at a time, so that turning rows into columns
// allocates nothing once it has grown. The zero value is ready.
type Scratch struct {
	words []row.Word
	u16   []uint16
	u32   []uint32
	u64   []uint64
	i32   []int32
	i64   []int64
	s     []string
	ss    [][]string
	uss   [][][]uint32
}

// Gather returns column c of rows [from, to) as a slice of its Go type ([]int64,
// []string, …), words as strings. It is valid until the next Gather of the same type.
func (s *Scratch) Gather(b *Batch, c Column, from, to int) any {
	l, base := b.Layout()
	base, n := l.At(base, from), to-from
	if c.Type == reflect.TypeFor[row.Word]() {
		s.words = gather(s.words, l, c, base, n)
		s.s = slices.Grow(s.s[:0], n)
		for _, w := range s.words {
			s.s = append(s.s, b.Raws.Words[w])
		}

		return s.s
	}

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
