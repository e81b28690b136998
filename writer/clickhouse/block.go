package clickhouse

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/ClickHouse/ch-go/proto"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// block is a native block being made: the rows of one batch as columns, each in
// the bytes that go over the wire. Its memory is used again by the next batch.
//
// Invariant: a column has the type that the server's header names. Rows are read
// a tile at a time, all columns of it, so that a row's cache lines are fetched once
// and not once a column.
type block struct {
	columns []column
	rows    int
}

// column is one column of a block.
type column struct {
	source reflect.StructField // of the rows; its Name is the column's
	typ    string              // at the server
	data   []byte
	dict   dictionary
	words  []string // of a column of numbered words, nil of any other
	// Of arrays: their ends, which go before the values; of arrays of arrays the inner
	// ends go between the two.
	ends, inner []byte
	values      uint64
	elements    uint64
}

// tile is how many rows are turned into columns at once: 160 KiB of the widest row, which
// stay in the L2 cache.
const tile = 512

// lowCardinality is the type of a column of few different words, see dictionary.
const lowCardinality = "LowCardinality(String)"

// wants gives the types that a Go type may have on a server. They alone decide the encoding.
var wants = map[reflect.Type][]string{
	reflect.TypeFor[uint16]():     {"UInt16"},
	reflect.TypeFor[uint32]():     {"UInt32"},
	reflect.TypeFor[int32]():      {"Int32"},
	reflect.TypeFor[uint64]():     {"UInt64"},
	reflect.TypeFor[record.ID]():  {"UInt64"},
	reflect.TypeFor[int64]():      {"Int64"},
	reflect.TypeFor[string]():     {"String", lowCardinality},
	reflect.TypeFor[row.Word]():   {"String", lowCardinality},
	reflect.TypeFor[[]string]():   {"Array(String)"},
	reflect.TypeFor[[][]uint32](): {"Array(Array(UInt32))"},
}

// shape makes b have the columns of a table's layout in the types of the server's
// header.
func (b *block) shape(table string, layout ship.Layout, header []ddl.Column) error {
	want := layout.Columns
	if len(header) != len(want) {
		return fmt.Errorf("the server names %d columns of %s, want %d", len(header), table, len(want))
	}

	if cap(b.columns) < len(want) {
		b.columns = append(b.columns[:cap(b.columns)], make([]column, len(want)-cap(b.columns))...)
	}

	b.columns = b.columns[:len(want)]
	for i, h := range header {
		types := wants[want[i].Type]
		if h.Name != want[i].Name || !slices.Contains(types, h.Type) {
			return fmt.Errorf("column %s of %s is %s %s at the server, want %s", want[i].Name, table, h.Name, h.Type, strings.Join(types, " or "))
		}

		c := &b.columns[i]
		*c = column{source: want[i], typ: h.Type, data: c.data[:0], ends: c.ends[:0], inner: c.inner[:0], dict: c.dict}
		c.dict.reset()
	}

	b.rows = 0
	return nil
}

// fill encodes rows that lie at base; words are those that raw rows number.
func (b *block) fill(layout ship.Layout, base unsafe.Pointer, rows int, words []string) {
	b.rows = rows
	for i := range b.columns {
		if c := &b.columns[i]; c.source.Type == reflect.TypeFor[row.Word]() {
			c.words = words
		}
	}

	for from := 0; from < b.rows; from += tile {
		n := min(tile, b.rows-from)
		for i := range b.columns {
			c := &b.columns[i]
			c.add(unsafe.Add(layout.At(base, from), c.source.Offset), layout.Stride, n)
		}
	}

	for i := range b.columns {
		b.columns[i].words = nil
	}
}

// add encodes n values, the first at p, each stride bytes after the one before.
func (c *column) add(p unsafe.Pointer, stride uintptr, n int) {
	at := func(i int) unsafe.Pointer { return unsafe.Add(p, uintptr(i)*stride) }
	data := c.data
	switch c.typ {
	case "UInt16":
		for i := range n {
			data = binary.LittleEndian.AppendUint16(data, *(*uint16)(at(i)))
		}
	case "UInt32", "Int32":
		for i := range n {
			data = binary.LittleEndian.AppendUint32(data, *(*uint32)(at(i)))
		}
	case "UInt64", "Int64":
		for i := range n {
			data = binary.LittleEndian.AppendUint64(data, *(*uint64)(at(i)))
		}
	case "String":
		for i := range n {
			data = appendText(data, c.text(at(i)))
		}
	case lowCardinality:
		for i := range n {
			c.dict.add(c.text(at(i)))
		}
	case "Array(String)":
		for i := range n {
			data = c.appendTexts(data, *(*[]string)(at(i)))
		}
	case "Array(Array(UInt32))":
		for i := range n {
			data = c.appendNumbers(data, *(*[][]uint32)(at(i)))
		}
	}

	c.data = data
}

// text is a value, which may be a numbered word.
func (c *column) text(at unsafe.Pointer) string {
	if c.words != nil {
		return c.words[*(*row.Word)(at)]
	}

	return *(*string)(at)
}

func (c *column) appendTexts(data []byte, list []string) []byte {
	for _, s := range list {
		c.values++
		data = appendText(data, s)
	}

	c.ends = binary.LittleEndian.AppendUint64(c.ends, c.values)
	return data
}

func (c *column) appendNumbers(data []byte, lists [][]uint32) []byte {
	for _, list := range lists {
		c.values++
		for _, v := range list {
			c.elements++
			data = binary.LittleEndian.AppendUint32(data, v)
		}

		c.inner = binary.LittleEndian.AppendUint64(c.inner, c.elements)
	}

	c.ends = binary.LittleEndian.AppendUint64(c.ends, c.values)
	return data
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// encode makes the block's bytes, as native.Conn.Send asks for them.
func (b *block) encode(revision int, put func([]byte) error) error {
	var head proto.Buffer
	info := proto.Block{Columns: len(b.columns), Rows: b.rows, Info: proto.BlockInfo{BucketNum: -1}}
	info.EncodeAware(&head, revision)
	for i := range b.columns {
		c := &b.columns[i]
		head.PutString(c.source.Name)
		head.PutString(c.typ)
		pieces := [][]byte{c.ends, c.inner, c.data}
		if c.typ == lowCardinality {
			pieces = c.dict.encode(&head, b.rows)
		}

		if err := put(head.Buf); err != nil {
			return err
		}

		head.Reset()
		for _, piece := range pieces {
			if err := put(piece); err != nil {
				return err
			}
		}
	}

	return nil
}
