package record

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// load returns the eight bytes of b at i as a little-endian word, zeros past the
// end: those are no digits, and no part of a key, so nothing else looks for the end.
// i is never negative.
func load(b []byte, i int) uint64 {
	if i+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[i : i+8])
	}

	return loadEnd(b, i)
}

func loadEnd(b []byte, i int) uint64 {
	var w uint64
	for k := 0; i+k < len(b); k++ {
		w |= uint64(b[i+k]) << (8 * k)
	}

	return w
}

// digits reads a JSON integer without sign at i and returns its value and the
// index after it. A leading zero, no digit, or more than 19 digits gives end 0:
// not sure.
func digits(b []byte, i int) (v uint64, end int) {
	x := load(b, i) ^ 0x30*ones
	k := leading(x)
	if k == 8 {
		return moreDigits(b, i, x)
	}

	if k == 0 || x&0xFF == 0 && k > 1 {
		return 0, 0
	}

	return eight(x << (64 - 8*k)), i + k
}

// leading returns how many of the eight bytes of x, from the lowest on, are 0…9.
func leading(x uint64) int {
	// A byte above 9 sets its high bit here. A carry spoils only what follows the
	// first such byte.
	return bits.TrailingZeros64(((x+0x76*ones)|x)&highs) >> 3
}

// moreDigits is digits when the first eight bytes, x, are digits.
func moreDigits(b []byte, i int, x uint64) (v uint64, end int) {
	if x&0xFF == 0 {
		return 0, 0
	}

	v = eight(x)
	for n := 8; n <= 16; n += 8 {
		x = load(b, i+n) ^ 0x30*ones
		k := leading(x)
		if k == 8 {
			v = v*100000000 + eight(x)
			continue
		}

		if n+k > 19 {
			return 0, 0
		}

		return v*powers[k] + eight(x<<(64-8*k)), i + n + k // k == 0: a shift by 64 gives 0
	}

	return 0, 0
}

// nineteen reads a number of exactly 19 digits at i, which every start between
// 2001 and 2286 is: what follows is found without waiting for the digits to be
// counted. 0 is not sure.
func nineteen(b []byte, i int) uint64 {
	if i+20 > len(b) {
		return 0
	}

	x, y, z := load(b, i)^0x30*ones, load(b, i+8)^0x30*ones, load(b, i+11)^0x30*ones
	if ((x+0x76*ones)|x|(y+0x76*ones)|y|(z+0x76*ones)|z)&highs != 0 || x&0xFF == 0 || b[i+19]-'0' <= 9 {
		return 0
	}

	return eight(x)*100_000_000_000 + eight(y)*1000 + eight(z>>40<<40)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

var powers = [8]uint64{1, 10, 100, 1000, 10000, 100000, 1000000, 10000000}

// eight returns the value of eight decimal digits, the first in the lowest byte: pairs are
// made of neighbours, then two multiplications add the four pairs with their weights.
func eight(x uint64) uint64 {
	x = x*10 + x>>8
	return ((x&0x000000FF000000FF)*0x000F424000000064 +
		((x>>16)&0x000000FF000000FF)*0x0000271000000001) >> 32
}

// signed is digits for an int64 with an optional sign.
func signed(b []byte, i int) (v int64, end int) {
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}

	u, end := digits(b, i)
	if u > math.MaxInt64 {
		return 0, 0
	}

	if neg {
		return -int64(u), end
	}

	return int64(u), end
}
