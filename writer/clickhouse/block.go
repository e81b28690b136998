package clickhouse

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/ClickHouse/ch-go/proto"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/ship"
)

// block is a native block being made: the rows of one batch as ch-go's columns. Its memory is
// used again by the table's next batch.
//
// Invariant: a column has the type that the server's header names. Rows are read
// a tile at a time, all columns of it, so that a row's cache lines are fetched once
// and not once a column.
type block struct {
	columns []column
	rows    int
	buffer  proto.Buffer
}

// column is one column of a block.
type column struct {
	source reflect.StructField // of the rows; its Name is the column's
	typ    string              // at the server
	data   interface {
		Reset()
		EncodeColumn(*proto.Buffer)
	}
	add adder
}

// tile is how many rows are turned into columns at once: 160 KiB of the widest row, which
// stay in the L2 cache.
const tile = 512

// lowCardinality is the type of a column of few different words.
const lowCardinality = "LowCardinality(String)"

// wants gives the types that a Go type may have on a server. They alone decide the encoding.
var wants = map[reflect.Type][]string{
	reflect.TypeFor[uint16]():      {"UInt16"},
	reflect.TypeFor[uint32]():      {"UInt32"},
	reflect.TypeFor[int32]():       {"Int32"},
	reflect.TypeFor[uint64]():      {"UInt64"},
	reflect.TypeFor[record.ID]():   {"UInt64"},
	reflect.TypeFor[int64]():       {"Int64"},
	reflect.TypeFor[string]():      {"String", lowCardinality},
	reflect.TypeFor[record.Word](): {"String", lowCardinality},
	reflect.TypeFor[[]string]():    {"Array(String)"},
	reflect.TypeFor[[][]uint32]():  {"Array(Array(UInt32))"},
}

// shape makes b have the columns of a table's layout in the types of the server's
// header.
func (b *block) shape(table string, layout ship.Layout, header []ddl.Column) error {
	want := layout.Columns
	if len(header) != len(want) {
		return fmt.Errorf("the server names %d columns of %s, want %d", len(header), table, len(want))
	}

	if b.columns == nil {
		b.columns = make([]column, len(want))
	}

	for i, h := range header {
		types := wants[want[i].Type]
		if h.Name != want[i].Name || !slices.Contains(types, h.Type) {
			return fmt.Errorf("column %s of %s is %s %s at the server, want %s", want[i].Name, table, h.Name, h.Type, strings.Join(types, " or "))
		}

		if c := &b.columns[i]; c.typ == h.Type {
			c.data.Reset()
		} else {
			*c = newColumn(want[i], h.Type)
		}
	}

	return nil
}

// newColumn returns an empty column of one of the types in wants.
func newColumn(source reflect.StructField, typ string) column {
	c := column{source: source, typ: typ}
	switch typ {
	case "UInt16":
		data := new(proto.ColUInt16)
		c.data, c.add = data, values((*[]uint16)(data))
	case "UInt32":
		data := new(proto.ColUInt32)
		c.data, c.add = data, values((*[]uint32)(data))
	case "Int32":
		data := new(proto.ColInt32)
		c.data, c.add = data, values((*[]int32)(data))
	case "UInt64":
		data := new(proto.ColUInt64)
		c.data, c.add = data, values((*[]uint64)(data))
	case "Int64":
		data := new(proto.ColInt64)
		c.data, c.add = data, values((*[]int64)(data))
	case "String":
		data := new(texts)
		if c.data, c.add = data, each(data.append); source.Type == reflect.TypeFor[record.Word]() {
			c.add = data.addWords
		}
	case lowCardinality:
		data := new(dictionary)
		if c.data, c.add = data, each(data.append); source.Type == reflect.TypeFor[record.Word]() {
			c.add = data.addWords
		}
	case "Array(String)":
		data := new(proto.ColStr).Array()
		c.data, c.add = data, each(data.Append)
	case "Array(Array(UInt32))":
		data := proto.NewArray(proto.NewArray(new(proto.ColUInt32)))
		c.data, c.add = data, each(data.Append)
	}

	return c
}

// adder adds n values to a column, the first at p, each stride bytes after the one before. rest is how
// many come until the block is full: the column grows once. words are those that raw rows number.
type adder func(p unsafe.Pointer, stride uintptr, n, rest int, words []string)

// values adds numbers as they are.
func values[T any](to *[]T) adder {
	return func(p unsafe.Pointer, stride uintptr, n, rest int, _ []string) {
		at := len(*to)
		all := slices.Grow(*to, rest)[:at+n]
		for i := range n {
			all[at+i] = *(*T)(unsafe.Add(p, uintptr(i)*stride))
		}

		*to = all
	}
}

// each adds values one by one.
func each[T any](add func(T)) adder {
	return func(p unsafe.Pointer, stride uintptr, n, _ int, _ []string) {
		for i := range n {
			add(*(*T)(unsafe.Add(p, uintptr(i)*stride)))
		}
	}
}

// fill encodes rows that lie at base; words are those that raw rows number.
func (b *block) fill(layout ship.Layout, base unsafe.Pointer, rows int, words []string) {
	b.rows = rows
	for from := 0; from < rows; from += tile {
		n := min(tile, rows-from)
		for i := range b.columns {
			c := &b.columns[i]
			c.add(unsafe.Add(layout.At(base, from), c.source.Offset), layout.Stride, n, rows-from, words)
		}
	}
}

// encode makes the block's bytes, as native.Conn.Send asks for them: one column at a time, so that
// the block is in memory once.
func (b *block) encode(revision int, put func([]byte) error) error {
	b.buffer.Reset()
	info := proto.Block{Columns: len(b.columns), Rows: b.rows, Info: proto.BlockInfo{BucketNum: -1}}
	info.EncodeAware(&b.buffer, revision)
	for _, c := range b.columns {
		b.buffer.PutString(c.source.Name)
		b.buffer.PutString(c.typ)
		c.data.EncodeColumn(&b.buffer)
		err := put(b.buffer.Buf)
		b.buffer.Reset()
		if err != nil {
			return err
		}
	}

	return nil
}
