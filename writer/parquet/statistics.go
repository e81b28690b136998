package parquet

import (
	"math/bits"
	"reflect"

	"github.com/parquet-go/parquet-go/format"
)

// longestStatistic bounds the smallest and largest words in a footer.
const longestStatistic = 64

// statistics returns the smallest and the largest value of a chunk.
func (c *rawColumn) statistics() format.Statistics {
	if c.physical == format.ByteArray {
		low, high := c.words[c.chosen[0]], c.words[c.chosen[0]]
		for _, w := range c.chosen {
			low, high = min(low, c.words[w]), max(high, c.words[w])
		}
		if max(len(low), len(high)) > longestStatistic {
			return format.Statistics{}
		}
		return format.Statistics{MinValue: []byte(low), MaxValue: []byte(high)}
	}
	if c.byCode {
		c.widen(c.numbers.values, !c.byValue)
	}
	return format.Statistics{MinValue: c.appendNumber(nil, c.low), MaxValue: c.appendNumber(nil, c.high)}
}

// bound widens low and high by the values of a page.
func (c *rawColumn) bound() { c.widen(c.values, !c.byValue) }

// widen makes low and high hold values, or begins with them.
func (c *rawColumn) widen(values []int64, first bool) {
	flip := c.flip()
	low, high := values[0]^flip, values[0]^flip
	if !first {
		low, high = c.low^flip, c.high^flip
	}
	for _, v := range values {
		low, high = min(low, v^flip), max(high, v^flip)
	}
	c.low, c.high = low^flip, high^flip
}

// flip makes a number compare as what it is: an unsigned one of 64 bits lies in an
// int64, one of 32 bits was read as an int32.
func (c *rawColumn) flip() int64 {
	switch c.source.Type.Kind() {
	case reflect.Uint64:
		return -1 << 63
	case reflect.Uint32:
		return -1 << 31
	}
	return 0
}

const (
	// mostNumbers is up to how many values a dictionary of numbers is worth it: their
	// places fit a byte.
	mostNumbers = 256
	numberSlots = 1024 // power of two
)

// numbers is a dictionary of few numbers.
type numbers struct {
	values []int64
	slots  [numberSlots]int16 // place plus one
}

func (d *numbers) reset() {
	if len(d.values) > 0 {
		clear(d.slots[:])
	}
	d.values = d.values[:0]
}

// place returns where v stands; false means that there are too many.
func (d *numbers) place(v int64) (int32, bool) {
	at := uint64(v) * 0x9e3779b97f4a7c15 >> (64 - bits.TrailingZeros(numberSlots))
	for ; ; at = (at + 1) & (numberSlots - 1) {
		p := d.slots[at]
		if p == 0 {
			break
		}
		if d.values[p-1] == v {
			return int32(p - 1), true
		}
	}
	if len(d.values) == mostNumbers {
		return 0, false
	}
	d.values = append(d.values, v)
	d.slots[at] = int16(len(d.values))
	return int32(len(d.values) - 1), true
}
