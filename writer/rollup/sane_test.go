package rollup

import (
	"fmt"
	"testing"
)

func TestSane(t *testing.T) {
	const day = 86_400_000_000_000
	at := int64(1_753_000_000_000_000_000)
	line := func(key string, t int64) string { return fmt.Sprintf(`{"kind":"FP","step":1,%q:%d,"dur":5}`, key, t) }
	for _, c := range []struct {
		name, line string
		want       bool
	}{
		{"1753000000", line("start", at), true},
		{"1753000000.zst", line("start", at+3649*day), true},
		{"1753000000", line("start", at-3651*day), false},
		{"1753000000", line("start", 0), true}, // not known
		{"1753000000", line("start", 5), true}, // since the start of its process
		{"1753000000", line("start", 399*day), true},
		{"1753000000", line("start", 401*day), false},
		{"1753000000", line("start", -at), false},
		{"1753000000", line("Timestamp", 7<<60), false},
		{"1753000000", `{"kind":"FP","start":99999999999999999999}`, false},
		{"1753000000", `{"kind":"FP","side":"device","start":1753000000000000000,"host_start":-1}`, false},
		{"1753000000", `{"kind":"FP","path":"\"start\":1","start":1753000000000000000}`, true},
		{"1753000000", `{"loss":{"kind":"FP"}}`, true},
		{"1753000000", `{"kind":"FP","start":"then"}`, true}, // the parser's to refuse
		{"100", line("start", at), true},                     // a clock that began in 1970, and was set
		{"100", line("start", 100), true},
		{"100", line("start", -100), false},
		{"100", line("start", 8<<59), false},
		{"999999999999", line("start", at), true},
	} {
		if got := BoundsOf(c.name).Sane([]byte(c.line)); got != c.want {
			t.Errorf("segment %s, %s: %t, want %t", c.name, c.line, got, c.want)
		}
	}
}
