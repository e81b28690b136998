package ageing

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// units are factors of bytes by their words in lower case: decimal ones and binary ones.
var units = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads a number of bytes: "5000MB" (10^6), "10MiB" (2^20), "1.5 GiB",
// "4096". Case does not matter. "10M" is refused, because it may mean either.
func ParseSize(s string) (int64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	end := 0
	for end < len(t) && (t[end] >= '0' && t[end] <= '9' || t[end] == '.') {
		end++
	}

	number, word := t[:end], strings.TrimSpace(t[end:])
	unit, ok := units[word]
	switch {
	case !ok && len(word) == 1 && strings.Contains("kmgt", word):
		u := strings.ToUpper(word)
		return 0, fmt.Errorf("parse size %q: %s may mean 10^3 or 2^10: write %sB or %siB", s, u, u, u)
	case !ok:
		return 0, fmt.Errorf("parse size %q: unknown unit %q: write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", s, word)
	}

	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("parse size %q: want a number and a unit, like 5000MB or 10MiB", s)
	}

	r.Mul(r, new(big.Rat).SetInt64(unit))
	if !r.IsInt() {
		return 0, fmt.Errorf("parse size %q: not a whole number of bytes", s)
	}

	if n := r.Num(); n.IsInt64() {
		return n.Int64(), nil
	}

	return 0, fmt.Errorf("parse size %q: more than %d bytes", s, int64(math.MaxInt64))
}
