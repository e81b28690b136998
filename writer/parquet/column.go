package parquet

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"laggard/schemas/row"
	"laggard/writer/ship"
)

// rawColumn makes the chunks of one column. Words, and numbers of few values, are
// dictionary-encoded; other numbers as differences (DELTA_BINARY_PACKED). A chunk whose
// numbers turn out to be many goes on as differences.
type rawColumn struct {
	source   ship.Column
	physical format.Type

	values []int64 // of a page
	codes  []int32 // of a page: places in the dictionary
	narrow []int32
	page   []byte
	packed []byte

	pages     []byte // of a chunk: headers and bodies
	size      int64  // the same uncompressed
	many      bool   // the values are too many for a dictionary
	byDelta   bool   // a page is not dictionary-encoded
	byCode    bool   // a page is
	low, high int64  // of the pages by delta

	numbers numbers
	words   []string
	places  []int32 // of words in the dictionary, plus one
	chosen  []row.Word

	delta delta.BinaryPackedEncoding
	rle   rle.DictionaryEncoding
}

func newRawColumn(source ship.Column, e *format.SchemaElement) (rawColumn, error) {
	c := rawColumn{source: source, physical: e.Type.V}
	want := format.Int64
	switch {
	case source.Type == reflect.TypeFor[row.Word]():
		want = format.ByteArray
	case source.Type.Size() < 8:
		want = format.Int32
	}
	if c.physical != want || e.Name != source.Name || !e.Type.Valid {
		return c, fmt.Errorf("BUG: column %s of records is %s %v in Parquet, want %v", source.Name, e.Name, c.physical, want)
	}
	return c, nil
}

// begin starts a chunk.
func (c *rawColumn) begin(words []string) {
	c.pages, c.size, c.words = c.pages[:0], 0, words
	c.many, c.byDelta, c.byCode = false, false, false
	c.numbers.reset()
	for _, w := range c.chosen {
		c.places[w] = 0
	}
	c.chosen = c.chosen[:0]
	if c.physical == format.ByteArray && len(c.places) < len(words) {
		c.places = make([]int32, len(words))
	}
}

// gather takes the column's values of some rows.
func (c *rawColumn) gather(rows []row.Raw) {
	const stride = unsafe.Sizeof(row.Raw{})
	p := c.address(rows)
	if c.physical == format.ByteArray {
		c.gatherWords(p, len(rows))
		return
	}
	n := len(c.values)
	if cap(c.values) < pageRows {
		c.values = make([]int64, n, pageRows)
	}
	c.values = c.values[:n+len(rows)]
	to := c.values[n:]
	switch c.source.Type.Kind() {
	case reflect.Uint16:
		for i := range to {
			to[i] = int64(*(*uint16)(unsafe.Add(p, uintptr(i)*stride)))
		}
	case reflect.Uint32, reflect.Int32:
		for i := range to {
			to[i] = int64(*(*int32)(unsafe.Add(p, uintptr(i)*stride)))
		}
	default:
		for i := range to {
			to[i] = *(*int64)(unsafe.Add(p, uintptr(i)*stride))
		}
	}
}

func (c *rawColumn) gatherWords(p unsafe.Pointer, n int) {
	const stride = unsafe.Sizeof(row.Raw{})
	for i := range n {
		w := *(*row.Word)(unsafe.Add(p, uintptr(i)*stride))
		place := c.places[w]
		if place == 0 {
			c.chosen = append(c.chosen, w)
			place = int32(len(c.chosen))
			c.places[w] = place
		}
		c.codes = append(c.codes, place-1)
	}
}

// endPage encodes what was gathered as a page.
func (c *rawColumn) endPage(z *zstd.Encoder) (err error) {
	encoding, n := format.RLEDictionary, len(c.codes)
	if c.physical != format.ByteArray {
		n = len(c.values)
		if c.many = c.many || !c.encodeNumbers(); c.many {
			encoding = format.DeltaBinaryPacked
		}
	}
	if encoding == format.RLEDictionary {
		c.byCode = true
		c.page, err = c.rle.EncodeInt32(c.page, c.codes)
	} else {
		c.bound()
		c.byDelta = true
		err = c.encodeDelta()
	}
	c.values, c.codes = c.values[:0], c.codes[:0]
	if err != nil {
		return fmt.Errorf("encode column %s: %w", c.source.Name, err)
	}
	c.pages, err = c.appendPage(c.pages, z, &format.PageHeader{
		Type: format.DataPage,
		DataPageHeader: thrift.New(format.DataPageHeader{
			NumValues: int32(n), Encoding: encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
		}),
	})
	return err
}

// encodeNumbers makes codes of values; false means that they are too many.
func (c *rawColumn) encodeNumbers() bool {
	for _, v := range c.values {
		place, ok := c.numbers.place(v)
		if !ok {
			c.codes = c.codes[:0]
			return false
		}
		c.codes = append(c.codes, place)
	}
	return true
}

func (c *rawColumn) encodeDelta() (err error) {
	if c.physical == format.Int64 {
		c.page, err = c.delta.EncodeInt64(c.page, c.values)
		return err
	}
	c.narrow = c.narrow[:0]
	for _, v := range c.values {
		c.narrow = append(c.narrow, int32(v))
	}
	c.page, err = c.delta.EncodeInt32(c.page, c.narrow)
	return err
}

// appendPage appends c.page, packed, behind its header.
func (c *rawColumn) appendPage(dst []byte, z *zstd.Encoder, h *format.PageHeader) ([]byte, error) {
	c.packed = z.EncodeAll(c.page, c.packed[:0])
	h.UncompressedPageSize, h.CompressedPageSize = int32(len(c.page)), int32(len(c.packed))
	header, err := thrift.Marshal(new(thrift.CompactProtocol), h)
	if err != nil {
		return dst, fmt.Errorf("encode page header: %w", err)
	}
	c.size += int64(len(header) + len(c.page))
	return append(append(dst, header...), c.packed...), nil
}

// end writes the chunk.
func (c *rawColumn) end(w *rawWriter) (format.ColumnChunk, error) {
	m := format.ColumnMetaData{
		Type: c.physical, PathInSchema: []string{c.source.Name}, Codec: format.Zstd, Statistics: c.statistics(),
	}
	begin := w.at
	if c.byCode {
		n := c.dictionary()
		page, err := c.appendPage(nil, w.zstd, &format.PageHeader{
			Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: int32(n), Encoding: format.Plain}),
		})
		if err != nil {
			return format.ColumnChunk{}, err
		}
		m.DictionaryPageOffset = w.at
		m.Encoding = append(m.Encoding, format.Plain, format.RLEDictionary)
		if err := w.put(page); err != nil {
			return format.ColumnChunk{}, err
		}
	}
	if c.byDelta {
		m.Encoding = append(m.Encoding, format.DeltaBinaryPacked)
	}
	m.DataPageOffset = w.at
	if err := w.put(c.pages); err != nil {
		return format.ColumnChunk{}, err
	}
	m.TotalCompressedSize, m.TotalUncompressedSize = w.at-begin, c.size
	return format.ColumnChunk{FileOffset: begin, MetaData: m}, nil
}

// dictionary makes c.page the values of the dictionary and returns their number.
func (c *rawColumn) dictionary() int {
	c.page = c.page[:0]
	if c.physical == format.ByteArray {
		for _, w := range c.chosen {
			c.page = binary.LittleEndian.AppendUint32(c.page, uint32(len(c.words[w])))
			c.page = append(c.page, c.words[w]...)
		}
		return len(c.chosen)
	}
	for _, v := range c.numbers.values {
		c.page = c.appendNumber(c.page, v)
	}
	return len(c.numbers.values)
}

func (c *rawColumn) appendNumber(dst []byte, v int64) []byte {
	if c.physical == format.Int32 {
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(v))
}
