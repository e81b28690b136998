package clickhouse

import (
	"encoding/binary"

	"github.com/ClickHouse/ch-go/proto"
)

// dictionary is a LowCardinality(String) column: the different values once, and for
// each row the place of its value, in as few bytes as their number needs. On the wire it is
//
//	int64 version, int64 flags | width of places, int64 values, the values; int64 rows, the places
type dictionary struct {
	places map[string]uint32
	keys   []byte // the values, encoded
	rows   []uint32
	packed []byte
	last   string // added last: rows mostly repeat it, and a map is slower than a comparison
	place  uint32 // of last
}

const (
	// dictionaryVersion and dictionaryFlags say that the block brings its own values.
	dictionaryVersion = 1
	dictionaryFlags   = 1<<9 | 1<<10
)

// reset empties the dictionary and keeps its memory; the values it forgets.
func (d *dictionary) reset() {
	clear(d.places)
	d.keys, d.rows, d.packed = d.keys[:0], d.rows[:0], d.packed[:0]
	d.last, d.place = "", 0
}

func (d *dictionary) add(s string) {
	if len(d.rows) > 0 && s == d.last {
		d.rows = append(d.rows, d.place)
		return
	}

	place, ok := d.places[s]
	if !ok {
		if d.places == nil {
			d.places = map[string]uint32{}
		}

		place = uint32(len(d.places))
		d.places[s] = place
		d.keys = appendText(d.keys, s)
	}

	d.last, d.place = s, place
	d.rows = append(d.rows, place)
}

// encode puts what goes before the values into head and returns the rest. A block
// without rows has no values at all.
func (d *dictionary) encode(head *proto.Buffer, rows int) [][]byte {
	if rows == 0 {
		return nil
	}

	width, code := 1, int64(0)
	switch n := len(d.places); {
	case n > 1<<16:
		width, code = 4, 2
	case n > 1<<8:
		width, code = 2, 1
	}

	head.PutInt64(dictionaryVersion)
	head.PutInt64(dictionaryFlags | code)
	head.PutInt64(int64(len(d.places)))
	d.packed = binary.LittleEndian.AppendUint64(d.packed[:0], uint64(rows))
	for _, place := range d.rows {
		switch width {
		case 1:
			d.packed = append(d.packed, byte(place))
		case 2:
			d.packed = binary.LittleEndian.AppendUint16(d.packed, uint16(place))
		default:
			d.packed = binary.LittleEndian.AppendUint32(d.packed, place)
		}
	}

	return [][]byte{d.keys, d.packed}
}
