package clickhouse

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/laggard-dev/laggard/schemas/record"
)

// texts is a String column as it goes over the wire: ch-go's would keep where each value lies
// beside them, and copy them once more.
type texts struct{ proto.ColRaw }

// append adds a value.
func (t *texts) append(s string) {
	t.Data = append(binary.AppendUvarint(t.Data, uint64(len(s))), s...)
	t.Count++
}

// usualWord is for how many bytes a numbered word finds room at once: append goes by small steps.
const usualWord = 8

// addWords adds numbered words.
func (t *texts) addWords(p unsafe.Pointer, stride uintptr, n, rest int, words []string) {
	data := slices.Grow(t.Data, usualWord*rest)
	for i := range n {
		s := words[*(*record.Word)(unsafe.Add(p, uintptr(i)*stride))]
		data = append(binary.AppendUvarint(data, uint64(len(s))), s...)
	}

	t.Data, t.Count = data, t.Count+n
}

// dictionary is a LowCardinality(String) column: each text once, and a number of it a row. ch-go's would
// keep every row's text and look it up, where most are numbered already.
type dictionary struct {
	rows []record.Word // in words, or in own
	// words are those that raw rows number, own those of other rows, which have the texts themselves.
	words []string
	own   record.Words

	index texts    // the different texts, in the order in which they came
	place []uint32 // of each word in index, from 1; 0 is not in it yet
}

// Reset empties the column.
func (d *dictionary) Reset() {
	d.rows, d.words, d.own = d.rows[:0], nil, record.Words{}
}

// append adds a text.
func (d *dictionary) append(s string) { d.rows = append(d.rows, d.own.Add(s)) }

// addWords adds numbered words.
func (d *dictionary) addWords(p unsafe.Pointer, stride uintptr, n, rest int, words []string) {
	d.words = words
	values(&d.rows)(p, stride, n, rest, words)
}

// The head of a column: how dictionaries are written, and that this block's is all in it. The low byte
// is the width of a row's place in it: 0 for one byte, 1 for two, 2 for four.
const (
	dictionaryVersion = 1
	dictionaryWhole   = 1<<9 | 1<<10
)

// EncodeColumn appends the column as it goes over the wire.
func (d *dictionary) EncodeColumn(b *proto.Buffer) {
	if len(d.rows) == 0 {
		return
	}

	if d.words == nil {
		d.words = d.own.List()
	}

	d.index.Reset()
	d.place = slices.Grow(d.place[:0], len(d.words))[:len(d.words)]
	clear(d.place)
	for _, w := range d.rows {
		if d.place[w] == 0 {
			d.index.append(d.words[w])
			d.place[w] = uint32(d.index.Count)
		}
	}

	width := int64(0)
	for width < 2 && d.index.Count > 1<<(8<<width) {
		width++
	}

	b.PutInt64(dictionaryVersion)
	b.PutInt64(dictionaryWhole | width)
	b.PutInt64(int64(d.index.Count))
	d.index.EncodeColumn(b)
	b.PutInt64(int64(len(d.rows)))
	for _, w := range d.rows {
		switch place := d.place[w] - 1; width {
		case 0:
			b.PutUInt8(uint8(place))
		case 1:
			b.PutUInt16(uint16(place))
		default:
			b.PutUInt32(place)
		}
	}
}
