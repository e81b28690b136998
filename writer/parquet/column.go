package parquet

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// rawColumn makes the chunks of one column. Words, and numbers of few values, are
// dictionary-encoded; other numbers as differences (DELTA_BINARY_PACKED), or as they
// are. A chunk whose numbers turn out to be many goes on so.
type rawColumn struct {
	source   ship.Column
	physical format.Type
	direct   format.Encoding // of pages of numbers that are not dictionary-encoded

	// A page begins with same rows that have the value one, and holds values or stretches
	// (of one place in the dictionary) once there is another: most columns are constant.
	one       int64
	same      int
	values    []int64
	stretches []stretch
	placed    int // rows in stretches
	codes     []int32
	narrow    []int32
	page      []byte
	packed    []byte

	pages     []byte // of a chunk: headers and bodies
	count     int64  // of the values in them
	size      int64  // the same uncompressed
	many      bool   // the values are too many for a dictionary
	byValue   bool   // a page is not dictionary-encoded
	byCode    bool   // a page is
	low, high int64  // of the pages by value

	numbers numbers
	words   []string
	places  []int32 // of words in the dictionary, plus one
	chosen  []row.Word

	delta delta.BinaryPackedEncoding
	rle   rle.DictionaryEncoding
}

// stretch is n rows with the same value, which stands at place in the dictionary.
type stretch struct{ place, n int32 }

func newRawColumn(source ship.Column, e *format.SchemaElement) (rawColumn, error) {
	c := rawColumn{source: source, physical: e.Type.V, direct: format.DeltaBinaryPacked}
	if source.Type.Kind() == reflect.Uint16 {
		// ClickHouse (26.7) reads differences into 16 bits wrongly under a condition: in rows
		// beyond a block of its own (65,409) the first that it takes from a page or a block.
		c.direct = format.Plain
	}
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
	c.pages, c.count, c.size, c.words = c.pages[:0], 0, 0, words
	c.many, c.byValue, c.byCode = false, false, false
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
	p, n := c.address(rows), len(rows)
	switch c.source.Type.Kind() {
	case reflect.Uint16:
		collect[uint16](c, p, n)
	case reflect.Uint32, reflect.Int32:
		collect[int32](c, p, n)
	default:
		collect[int64](c, p, n)
	}
}

// collect takes n values of a column, the first of which lies at p.
func collect[T uint16 | int32 | int64](c *rawColumn, p unsafe.Pointer, n int) {
	const stride = unsafe.Sizeof(row.Raw{})
	if len(c.values)+c.placed == 0 {
		first := *(*T)(p)
		if c.same == 0 {
			c.one = int64(first)
		}
		differ, i := first^T(c.one), 0
		value := func(i int) T { return *(*T)(unsafe.Add(p, uintptr(i)*stride)) }
		for ; i+4 <= n; i += 4 { // most columns end here: worth four at a time
			differ |= (value(i) ^ first) | (value(i+1) ^ first) | (value(i+2) ^ first) | (value(i+3) ^ first)
		}
		for ; i < n; i++ {
			differ |= value(i) ^ first
		}
		if differ == 0 {
			c.same += n
			return
		}
		c.spread()
	}
	if c.physical == format.ByteArray {
		c.gatherWords(p, n)
		return
	}
	from := len(c.values)
	c.values = slices.Grow(c.values, pageRows-from)[:from+n]
	to := c.values[from:]
	for i := range to {
		to[i] = int64(*(*T)(unsafe.Add(p, uintptr(i)*stride)))
	}
}

// spread makes the rows that are the same values or a stretch.
func (c *rawColumn) spread() {
	n := c.same
	if c.same = 0; n == 0 {
		return
	}
	if c.physical != format.ByteArray {
		c.values = slices.Grow(c.values, pageRows)
		for range n {
			c.values = append(c.values, c.one)
		}
		return
	}
	c.stretch(c.place(row.Word(c.one)), n)
}

// stretch adds n rows with the value at place.
func (c *rawColumn) stretch(place int32, n int) {
	c.placed += n
	if k := len(c.stretches) - 1; k >= 0 && c.stretches[k].place == place {
		c.stretches[k].n += int32(n)
		return
	}
	c.stretches = append(c.stretches, stretch{place, int32(n)})
}

// gatherWords takes words, which follow one another in runs.
func (c *rawColumn) gatherWords(p unsafe.Pointer, n int) {
	const stride = unsafe.Sizeof(row.Raw{})
	last, from := *(*row.Word)(p), 0
	for i := range n {
		if w := *(*row.Word)(unsafe.Add(p, uintptr(i)*stride)); w != last {
			c.stretch(c.place(last), i-from)
			last, from = w, i
		}
	}
	c.stretch(c.place(last), n-from)
}

// place returns where a word stands in the dictionary.
func (c *rawColumn) place(w row.Word) int32 {
	if c.places[w] == 0 {
		c.chosen = append(c.chosen, w)
		c.places[w] = int32(len(c.chosen))
	}
	return c.places[w] - 1
}

// endPage encodes what was gathered as a page.
func (c *rawColumn) endPage(z *zstd.Encoder) (err error) {
	n := c.same + len(c.values) + c.placed
	encoding := format.RLEDictionary
	switch {
	case c.same > 0 && c.placeSame(), c.physical == format.ByteArray, c.placeNumbers():
		err = c.encodeStretches()
	default:
		c.many, encoding = true, c.direct
		c.bound()
		err = c.encodeDirect()
	}
	c.count += int64(n)
	c.byCode = c.byCode || encoding == format.RLEDictionary
	c.byValue = c.byValue || encoding != format.RLEDictionary
	c.same, c.values, c.stretches, c.placed = 0, c.values[:0], c.stretches[:0], 0
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

// placeSame makes the rows that are the same one stretch. When the dictionary is full it
// makes values of them instead.
func (c *rawColumn) placeSame() bool {
	place, ok := int32(0), !c.many
	if c.physical == format.ByteArray {
		place = c.place(row.Word(c.one))
	} else if ok {
		place, ok = c.numbers.place(c.one)
	}
	if !ok {
		c.spread()
		return false
	}
	c.stretch(place, c.same)
	return true
}

// fewRows is how many rows a stretch holds, on the average, from which on it costs less
// as a run of its own than its rows do one by one.
const fewRows = 8

// encodeStretches makes the page the places of its rows: RLE_DICTIONARY.
func (c *rawColumn) encodeStretches() (err error) {
	if len(c.stretches)*fewRows > c.placed {
		c.codes = c.codes[:0]
		for _, s := range c.stretches {
			for range s.n {
				c.codes = append(c.codes, s.place)
			}
		}
		c.page, err = c.rle.EncodeInt32(c.page, c.codes)
		return err
	}
	most := int32(0)
	for _, s := range c.stretches {
		most = max(most, s.place)
	}
	width := bits.Len32(uint32(most))
	c.page = append(c.page[:0], byte(width))
	for _, s := range c.stretches {
		c.page = binary.AppendUvarint(c.page, uint64(s.n)<<1)
		for k := 0; k < width; k += 8 {
			c.page = append(c.page, byte(s.place>>k))
		}
	}
	return nil
}

// placeNumbers makes stretches of values; false means that they are too many.
func (c *rawColumn) placeNumbers() bool {
	if c.many {
		return false
	}
	last, from := c.values[0], 0
	end := func(i int) bool {
		place, ok := c.numbers.place(last)
		if ok {
			c.stretch(place, i-from)
		}
		return ok
	}
	for i, v := range c.values {
		if v != last {
			if !end(i) {
				return false
			}
			last, from = v, i
		}
	}
	return end(len(c.values))
}

func (c *rawColumn) encodeDirect() (err error) {
	if c.direct == format.Plain {
		c.page = c.page[:0]
		for _, v := range c.values {
			c.page = c.appendNumber(c.page, v)
		}
		return nil
	}
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
		Type: c.physical, PathInSchema: []string{c.source.Name}, Codec: format.Zstd, NumValues: c.count, Statistics: c.statistics(),
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
	if c.byValue && !slices.Contains(m.Encoding, c.direct) {
		m.Encoding = append(m.Encoding, c.direct)
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
