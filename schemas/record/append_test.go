package record

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestAppendDecimal: a number is what strconv makes of it.
func TestAppendDecimal(t *testing.T) {
	var b []byte
	check := func(v uint64) {
		t.Helper()
		if b = appendDecimal(b[:0], v); string(b) != strconv.FormatUint(v, 10) {
			t.Fatalf("appendDecimal(%d) = %s", v, b)
		}
	}
	for v := range uint64(200_000) {
		check(v)
	}

	for v := uint64(1); ; v *= 10 {
		check(v - 1)
		check(v)
		check(v + 1)
		if v > math.MaxUint64/10 {
			break
		}
	}

	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		check(rnd.Uint64() >> rnd.IntN(64))
	}

	check(math.MaxUint64)
	for _, v := range []int64{0, -1, 1, math.MinInt64, math.MaxInt64} {
		if got := string(appendNumber(nil, v)); got != strconv.FormatInt(v, 10) {
			t.Errorf("appendNumber(%d) = %s", v, got)
		}
	}
}

func TestAppendLine_AllocatesNothing(t *testing.T) {
	records, _ := benchRecords(t)
	var buf []byte
	if n := testing.AllocsPerRun(100, func() {
		for i := range records {
			buf = records[i].AppendLine(buf[:0])
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}
