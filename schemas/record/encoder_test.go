package record

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestEncoder_AgreesWithAppendLine holds an Encoder to the line that a record makes
// alone, over streams in which some fields stay and others change.
func TestEncoder_AgreesWithAppendLine(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(7, 11))}
	const lines = 100_000
	var e Encoder
	r := g.record()
	var got, want []byte
	for i := range lines {
		other := g.record()
		if i%5 == 0 {
			other.Start = minStart + g.Int64N(math.MaxInt64-minStart)
		}
		r = mixed(g.Rand, r, other)
		got, want = e.AppendLine(got[:0], &r), r.AppendLine(want[:0])
		if string(got) != string(want) {
			t.Fatalf("record %d %+v\n got %s\nwant %s", i, r, got, want)
		}
	}
}

// mixed returns a with about a tenth of the fields of b.
func mixed(rnd *rand.Rand, a, b Record) Record {
	for _, set := range []func(){
		func() { a.Kind, a.Name = b.Kind, b.Name },
		func() { a.Step = b.Step }, func() { a.Start = b.Start }, func() { a.Start++ }, func() { a.Dur = b.Dur },
		func() { a.Side, a.HostStart, a.HostDur = b.Side, b.HostStart, b.HostDur }, func() { a.Exposed = b.Exposed },
		func() { a.Ring = b.Ring }, func() { a.Seq = b.Seq }, func() { a.Thread = b.Thread },
		func() { a.Op = b.Op }, func() { a.OpRaw = b.OpRaw }, func() { a.Group = b.Group }, func() { a.Peer = b.Peer },
		func() { a.Count = b.Count }, func() { a.Dtype = b.Dtype }, func() { a.Bytes = b.Bytes },
		func() { a.Tokens = b.Tokens }, func() { a.Path = b.Path }, func() { a.Open = b.Open },
	} {
		if rnd.IntN(10) == 0 {
			set()
		}
	}
	return a
}

func TestPutDecimal(t *testing.T) {
	var b [32]byte
	check := func(v uint64) {
		t.Helper()
		if got, want := string(b[:putDecimal(b[:], 0, v)]), strconv.FormatUint(v, 10); got != want {
			t.Fatalf("putDecimal(%d) = %s", v, got)
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
}

func TestEncoder_AllocatesNothing(t *testing.T) {
	records, _ := benchRecords(t)
	var e Encoder
	var buf []byte
	if n := testing.AllocsPerRun(100, func() {
		for i := range records {
			buf = e.AppendLine(buf[:0], &records[i])
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}
