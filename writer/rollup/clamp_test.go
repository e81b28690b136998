package rollup

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// TestBadTime: a line whose time can't be right is told, counted, and makes no row.
func TestBadTime(t *testing.T) {
	const day = 86_400_000_000_000
	at := int64(1_753_000_000_000_000_000)
	line := func(t int64) string { return fmt.Sprintf(`{"kind":"FP","step":1,"start":%d,"dur":5}`, t) }
	device := func(host int64) string {
		return fmt.Sprintf(`{"kind":"FP","side":"device","step":1,"start":%d,"dur":5,"host_start":%d,"host_dur":1}`, at, host)
	}
	for _, c := range []struct {
		name, line string
		kind       string
		want       bool
	}{
		{"1753000000", line(at), "FP", true},
		{"1753000000.zst", line(at + 3649*day), "FP", true},
		{"1753000000", line(at - 3651*day), "FP", false},
		{"1753000000", line(0), "FP", true}, // not known
		{"1753000000", line(5), "FP", true}, // since the start of its process
		{"1753000000", line(399 * day), "FP", true},
		{"1753000000", line(401 * day), "FP", false},
		{"1753000000", line(-at), "FP", false},
		{"1753000000", `{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":8070450532247928832,"Id":1,"MsptiObjectId":{"Pt":{"ProcessId":1,"ThreadId":1},"Ds":{"DeviceId":1,"StreamId":1}},"Name":"step 1","Domain":"default"}`, "", false},
		{"1753000000", device(at), "FP", true},
		{"1753000000", device(-1), "FP", false},
		{"1753000000", `{"kind":"FP","path":"\"start\":1","start":1753000000000000000,"dur":5}`, "FP", true},
		{"100", line(at), "FP", true}, // a clock that began in 1970, and was set
		{"100", line(100), "FP", true},
		{"100", line(-100), "FP", false},
		{"100", line(8 << 59), "FP", false},
		{"999999999999", line(at), "FP", true},
	} {
		told := ""
		s := New(Options{Job: "j", Refused: func(offset int64, line []byte, _ string) {
			told = fmt.Sprintf("%d %s", offset, line)
		}})
		s.Segment(1, c.name)
		s.Line(0, []byte(`{"meta":{"format":"laggard/1","segment":"0000000000000001","job":"j","incarnation":"0000000000000007"}}`))
		s.Line(100, []byte(c.line))
		s.End()
		var rows row.Rows
		s.Take(&rows)
		counts := s.Counts()
		if want := fmt.Sprintf("100 %s", c.line); c.want && told != "" || !c.want && told != want {
			t.Errorf("segment %s, %s: told %q", c.name, c.line, told)
		}

		if got := counts.LostAs(c.kind, BadTime) == 0; got != c.want || c.want != (counts.LostFor(BadTime) == 0) || counts.Garbage > 0 {
			t.Errorf("segment %s, %s: %+v, want it taken %t", c.name, c.line, counts, c.want)
		}

		if (len(rows.Raws.Rows) == 1) != (c.want) {
			t.Errorf("segment %s, %s: %d rows", c.name, c.line, len(rows.Raws.Rows))
		}
	}
}

// TestClamp: whatever a line says, its numbers are in range and its words short after it,
// and what was so before is left as it was.
func TestClamp(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) int64 {
		edge := rapid.SampledFrom([]int64{0, math.MinInt64, math.MaxInt64, -farthest, farthest, longest}).Draw(t, "edge")
		return edge + rapid.Int64Range(-2, 2).Draw(t, "by") // may wrap around
	})
	word := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat("w", rapid.SampledFrom([]int{0, 1, record.MaxWord - 1, record.MaxWord, record.MaxWord + 1, record.MaxPath, record.MaxPath + 1}).Draw(t, "length"))
	})
	within := func(n, lo, hi int64) bool { return lo <= n && n <= hi }
	numbersFit := func(r *record.Record) bool {
		return within(r.Start, -farthest, farthest) && within(r.HostStart, -farthest, farthest) &&
			within(r.Dur, 0, longest) && within(r.HostDur, 0, longest) && within(r.Exposed, -1, longest)
	}
	lengthsFit := func(r *record.Record) bool {
		return max(len(r.Name), len(r.Op), len(r.OpRaw), len(r.Group), len(r.Dtype)) <= record.MaxWord && len(r.Path) <= record.MaxPath
	}
	rapid.Check(t, func(t *rapid.T) {
		s, r := New(Options{}), record.New(record.FP)
		for _, n := range [...]*int64{&r.Start, &r.Dur, &r.HostStart, &r.HostDur, &r.Exposed} {
			if rapid.Bool().Draw(t, "odd") {
				*n = number.Draw(t, "number")
			}
		}

		for _, w := range [...]*string{&r.Name, &r.Op, &r.OpRaw, &r.Group, &r.Dtype, &r.Path} {
			if rapid.IntRange(0, 3).Draw(t, "long") == 0 {
				*w = word.Draw(t, "word")
			}
		}

		was := r
		clamp(&r)
		words := s.number(&r)
		if !numbersFit(&r) || !lengthsFit(&r) {
			t.Fatalf("%+v is made %+v", was, r)
		}

		if r != was && numbersFit(&was) && lengthsFit(&was) {
			t.Fatalf("%+v was in range and is made %+v", was, r)
		}

		if words.Name != s.words.Add(r.Name) || words.Path != s.words.Add(r.Path) {
			t.Fatalf("%+v has the words %+v", r, words)
		}

		cut := uint64(0)
		if !lengthsFit(&was) {
			cut = 1
		}

		if s.counts.Clipped != cut {
			t.Fatalf("%+v: %d records counted as cut, want %d", was, s.counts.Clipped, cut)
		}
	})
}
