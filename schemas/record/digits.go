package record

import "math"

// digits reads a JSON integer without sign at i and returns its value and the
// index after it. A leading zero, no digit, or more than 19 digits gives end 0:
// not sure.
func digits(b []byte, i int) (v uint64, end int) {
	for end = i; end < len(b) && b[end]-'0' <= 9; end++ {
		v = v*10 + uint64(b[end]-'0')
	}

	if n := end - i; n == 0 || n > 19 || n > 1 && b[i] == '0' {
		return 0, 0
	}

	return v, end
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
