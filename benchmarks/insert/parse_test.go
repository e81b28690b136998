package insert

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/bytedance/sonic"
	gojson "github.com/goccy/go-json"

	"github.com/laggard-dev/laggard/schemas/record"
)

// line is a record line for reflection: what a user of the rivals would write.
type line struct {
	Kind      string `json:"kind"`
	Step      int64  `json:"step"`
	Start     int64  `json:"start"`
	Dur       int64  `json:"dur"`
	Side      string `json:"side"`
	HostStart int64  `json:"host_start"`
	HostDur   int64  `json:"host_dur"`
	Exposed   int64  `json:"exposed"`
	Ring      uint32 `json:"ring"`
	Seq       uint64 `json:"seq"`
	Thread    uint64 `json:"thread"`
	Op        string `json:"op"`
	OpRaw     string `json:"op_raw"`
	Group     string `json:"group"`
	Peer      int32  `json:"peer"`
	Count     int64  `json:"count"`
	Dtype     string `json:"dtype"`
	Bytes     int64  `json:"bytes"`
	Tokens    int64  `json:"tokens"`
	Path      string `json:"path"`
	Open      bool   `json:"open"`
}

// BenchmarkParse is P8: the scanner of schemas/record and four JSON libraries on
// the same lines, in turns, one goroutine. The figures are medians of the rounds.
// ns-memory is what it takes to add up 64 MiB of this machine's memory once: a
// measure of the machine in the same run.
func BenchmarkParse(b *testing.B) {
	var lines [][]byte
	bytes := 0
	for i := range 4000 {
		r := measured(i + 990)
		lines = append(lines, r.AppendLine(nil))
		bytes += len(lines[i])
	}

	var p record.Parser
	var sink int64
	parsers := []struct {
		name  string
		parse func([]byte) error
		times []time.Duration
	}{
		{name: "laggard", parse: func(l []byte) error {
			_, err := p.Parse(l)
			sink += p.Record.Dur
			return err
		}},
		{name: "goccy", parse: func(l []byte) error { return each(l, &sink, gojson.Unmarshal) }},
		{name: "sonic", parse: func(l []byte) error { return each(l, &sink, sonic.Unmarshal) }},
		{name: "sonic-fastest", parse: func(l []byte) error { return each(l, &sink, sonic.ConfigFastest.Unmarshal) }},
		{name: "encoding-json", parse: func(l []byte) error { return each(l, &sink, json.Unmarshal) }},
	}
	memory := make([]int64, 64<<17)
	var sums []time.Duration
	for b.Loop() {
		began := time.Now()
		for _, v := range memory {
			sink += v
		}

		sums = append(sums, time.Since(began))
		for i := range parsers {
			began := time.Now()
			for _, l := range lines {
				if err := parsers[i].parse(l); err != nil {
					b.Fatal(err)
				}
			}

			parsers[i].times = append(parsers[i].times, time.Since(began))
		}
	}

	if sink == 0 {
		b.Fatal("nothing was parsed")
	}

	slices.Sort(sums)
	b.ReportMetric(float64(sums[len(sums)/2].Nanoseconds()), "ns-memory")
	for i, rival := range parsers {
		var ratios []float64
		for k := range rival.times {
			ratios = append(ratios, rival.times[k].Seconds()/parsers[0].times[k].Seconds())
		}

		slices.Sort(ratios)
		slices.Sort(parsers[i].times)
		t := parsers[i].times[len(rival.times)/2]
		b.ReportMetric(float64(bytes)/t.Seconds()/1e9, rival.name+"-GB/s")
		b.Logf("%s: %.2f GB/s; laggard is %.1fx (%.1f to %.1f, n=%d)", rival.name, float64(bytes)/t.Seconds()/1e9,
			ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], len(ratios))
	}
}

// each parses one line with a library.
func each(l []byte, sink *int64, parse func([]byte, any) error) error {
	var x line
	err := parse(l, &x)
	*sink += x.Dur
	return err
}
