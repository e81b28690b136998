package record

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// generator makes record lines, from tidy to broken.
type generator struct{ *rand.Rand }

var (
	genStrings = []string{
		"", "allreduce", "dp0", "bf16", "10.20.0.1%eth0_60000_0_1753000000000000", "é", "日本語", "a\"b", `a\b`, "tab\tnl\n",
		"\x00", "\x7f", "\u2028", "<&>", "\xff\xfe", "a\xc3", "12345678", "123456789012345", "😀", "Step", "communication",
		strings.Repeat("x", 200),
	}
	genInts = []int64{0, 1, -1, 7, 42, 1753000000000000001, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MaxUint32, 1 << 32, 99999999, 100000000, 1 << 53}
	genRaw  = []string{
		"null", "true", "false", "1.0", "1e3", "-0", "00", "01", "+1", "NaN", "Infinity", ".5", "1.", "18446744073709551615",
		"18446744073709551616", "9223372036854775808", "-9223372036854775809", "9999999999999999999", "99999999999999999999",
		"4294967296", `"5"`, "[]", "{}", `[1,{"a":[]}]`, `{"kind":"x"}`, `"\u0041"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\uZZZZ"`, `"\x"`, "\"\x01\"", `"` + "\xff" + `"`, "1 2", "",
		"-", "--1", "0x1", "tru", `"unterminated`, strings.Repeat("[", 20) + strings.Repeat("]", 20), `{"a":1,}`, `[1,]`, `{"a" : [ 1 , 2 ] }`, "-1.5E-7", "1E", "2e+",
	}
	genKeys = []string{"Step", "KIND", "start\u017f", "oP", "x", "", "next", "host_", "open\\u0031", "st\\u0065p", "\u212aind", "dur "}
)

func (g generator) text() string {
	switch g.IntN(8) {
	case 0:
		return genStrings[g.IntN(len(genStrings))]
	case 1:
		b := make([]byte, g.IntN(40))
		for i := range b {
			b[i] = byte(' ' + g.IntN(95))
		}

		return string(b)
	}

	return genStrings[1+g.IntN(4)]
}

func (g generator) int() int64 {
	switch g.IntN(16) {
	case 0:
		return genInts[g.IntN(len(genInts))]
	case 1, 2, 3, 4:
		return g.Int64N(1 << g.IntN(63))
	case 5, 6, 7:
		return int64(g.IntN(100))
	}

	return 1753000000000000000 + g.Int64N(1e12)
}

// record returns a record with any field set or not.
func (g generator) record() Record {
	r := New(Kind(g.IntN(KindCount)))
	if r.Kind == Other {
		if r.Name = g.text(); KindOf(r.Name) != Other {
			r.Name = "backward"
		}
	}

	r.Start, r.Dur = g.int(), g.int()
	if r.Start == math.MinInt64 || r.Dur == math.MinInt64 {
		r.Start, r.Dur = 1, 1
	}

	for _, set := range []func(){
		func() { r.Step = g.int() }, func() { r.Side = Device }, func() { r.HostStart = g.int() },
		func() { r.HostDur = g.int() }, func() { r.Exposed = g.int() },
		func() { r.Ring, r.Seq = uint32(g.int()), uint64(g.int()) }, func() { r.Thread = uint64(g.int()) },
		func() { r.Op = g.text() }, func() { r.OpRaw = g.text() }, func() { r.Group = g.text() },
		func() { r.Peer = int32(g.int()) }, func() { r.Count = g.int() }, func() { r.Dtype = g.text() },
		func() { r.Bytes = g.int() }, func() { r.Tokens = g.int() }, func() { r.Path = g.text() },
		func() { r.Open = true },
	} {
		if g.IntN(2) == 0 {
			set()
		}
	}

	return r
}

// lines returns a record as lines: tidy, changed, cut, and twice put together in
// another way.
func (g generator) lines() [][]byte {
	r := g.record()
	tidy := r.AppendLine(nil)
	changed := bytes.Clone(tidy)
	for range 1 + g.IntN(2) { // a byte changed, put in or taken out
		i := g.IntN(len(changed))
		switch g.IntN(3) {
		case 0:
			changed[i] ^= 1 << g.IntN(8)
		case 1:
			changed = slices.Insert(changed, i, `{}[],:"\ 0-.eE`[g.IntN(14)])
		default:
			changed = slices.Delete(changed, i, i+1)
		}
	}

	pairs := pairsOf(&r)
	return [][]byte{tidy, changed, tidy[:g.IntN(len(tidy))], g.wild(pairs), g.wild(pairs)}
}

// pairsOf returns the keys and values of a record's line.
func pairsOf(r *Record) [][2]string {
	integer := func(v int64) string { return strconv.FormatInt(v, 10) }
	text := func(s string) string { return string(appendText(nil, s)) }
	pairs := [][2]string{{"kind", text(r.Word())}, {"start", integer(r.Start)}, {"dur", integer(r.Dur)}}
	for _, p := range []struct {
		set        bool
		key, value string
	}{
		{r.Step != NoStep, "step", integer(r.Step)}, {r.Side == Device, "side", `"device"`},
		{r.HostStart != 0, "host_start", integer(r.HostStart)}, {r.HostDur != 0, "host_dur", integer(r.HostDur)},
		{r.Exposed != -1, "exposed", integer(r.Exposed)}, {r.Ring != 0, "ring", integer(int64(r.Ring))},
		{r.Ring != 0, "seq", strconv.FormatUint(r.Seq, 10)}, {r.Thread != 0, "thread", strconv.FormatUint(r.Thread, 10)},
		{r.Op != "", "op", text(r.Op)}, {r.OpRaw != "", "op_raw", text(r.OpRaw)}, {r.Group != "", "group", text(r.Group)},
		{r.Peer != NoPeer, "peer", integer(int64(r.Peer))}, {r.Count != 0, "count", integer(r.Count)},
		{r.Dtype != "", "dtype", text(r.Dtype)}, {r.Bytes != 0, "bytes", integer(r.Bytes)},
		{r.Tokens != 0, "tokens", integer(r.Tokens)}, {r.Path != "", "path", text(r.Path)}, {r.Open, "open", "true"},
	} {
		if p.set {
			pairs = append(pairs, [2]string{p.key, p.value})
		}
	}

	return pairs
}

// wild puts a line together with keys shuffled, doubled, foreign and spaced, and
// values that are none.
func (g generator) wild(pairs [][2]string) []byte {
	parts := make([]string, 0, len(pairs)+2)
	for _, p := range pairs {
		if g.IntN(30) == 0 {
			p[1] = genRaw[g.IntN(len(genRaw))]
		}

		parts = append(parts, g.pair(p[0], p[1]))
	}

	switch g.IntN(6) { // doubled keys, or keys that are not ours: never both, see withoutFolded
	case 0:
		parts = append(parts, g.pair(plainKeys[g.IntN(len(plainKeys))], genRaw[g.IntN(len(genRaw))]))
		parts = append(parts, g.pair(plainKeys[g.IntN(len(plainKeys))], strconv.FormatInt(g.int(), 10)))
	case 1:
		parts = append(parts, g.pair(genKeys[g.IntN(len(genKeys))], genRaw[g.IntN(len(genRaw))]))
	}

	swap := func(x []string) { g.Shuffle(len(x), func(i, j int) { x[i], x[j] = x[j], x[i] }) }
	if g.IntN(2) == 0 {
		swap(parts[1:])
	}

	if g.IntN(20) == 0 {
		swap(parts)
	}

	return []byte(g.space() + "{" + g.space() + strings.Join(parts, ",") + g.space() + "}" + g.space())
}

func (g generator) pair(k, v string) string {
	return g.space() + `"` + k + `"` + g.space() + ":" + g.space() + v + g.space()
}

func (g generator) space() string {
	if g.IntN(8) > 0 {
		return ""
	}

	return []string{" ", "\t", "\r", "\n", "  "}[g.IntN(5)]
}
