package recorder_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// BenchmarkAgainstLoggers is P3 of the benchmark table: a Go range beside zerolog and
// a hand-made JSON line, a write(2) for each, as loggers do it that lose nothing to a
// SIGKILL. zerolog writes the same fields and looks at the clock once, as mark does;
// a range looks twice. What zerolog's users have beside that, by its README, a level
// and With().Timestamp(), is measured, too, but not what is compared with: a record
// has no need of it. The agent is fast: rings are drained before each round.
func BenchmarkAgainstLoggers(b *testing.B) {
	const rounds, n = 21, 20000
	r, run := open(b, recorder.Options{})
	th := r.Thread()
	a := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 4194304, 12)
	off := mustOpen(b, recorder.Options{RunDir: ringtest.Shared(b), Trace: "off"})
	quiet := off.Thread()
	silent := quiet.Begin(record.FP, a) // the first makes the folder
	silent.End()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	log := zerolog.New(f)
	usual := zerolog.New(f).With().Timestamp().Logger()
	line := record.New(record.Communication)
	line.Op, line.Group, line.Count, line.Dtype = "allreduce", "dp0", 4194304, "bf16"
	var buf []byte
	empty := drained(b, th, run)
	var got map[string]cost
	for b.Loop() {
		got = compare(b, rounds, n,
			side{name: "range", before: empty, do: func(n int) {
				for range n {
					c := th.Begin(record.Communication, a)
					c.End()
				}
			}},
			side{name: "mark", before: empty, do: func(n int) {
				for range n {
					th.Mark(record.Communication, a, r.Now(), 5)
				}
			}},
			side{name: "clock", do: func(n int) {
				for range n {
					r.Now()
				}
			}},
			side{name: "off", do: func(n int) {
				for range n {
					c := quiet.Begin(record.Communication, recorder.Attr{})
					c.End()
				}
			}},
			side{name: "zerolog", do: func(n int) {
				for i := range n {
					event(log.Log(), r.Now(), i)
				}
			}},
			side{name: "zerolog usual", do: func(n int) {
				for i := range n {
					event(usual.Info(), r.Now(), i)
				}
			}},
			side{name: "line", do: func(n int) {
				for i := range n {
					line.Start, line.Dur, line.Ring, line.Seq = r.Now(), 5, 2, uint64(i)
					buf = line.AppendLine(buf[:0])
					if _, err := f.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
			}},
		)
		if err := f.Truncate(0); err != nil {
			b.Fatal(err)
		}
	}

	if l := r.Lost(); l[record.Communication] != 0 {
		b.Fatalf("%d lost", l)
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(got["zerolog"].least/got["mark"].least, "zerolog/mark")
	b.ReportMetric(got["zerolog"].least/got["range"].least, "zerolog/range")
	b.ReportMetric(got["line"].least/got["range"].least, "line/range")
	b.ReportMetric(got["off"].least, "off-ns")
}

// event writes what a mark holds.
func event(e *zerolog.Event, start int64, i int) {
	e.Str("kind", "Communication").Int64("step", 1).Int64("start", start).Int64("dur", 5).
		Int("ring", 2).Int("seq", i).Str("op", "allreduce").Str("group", "dp0").Int64("count", 4194304).Str("dtype", "bf16").Send()
}

func mustOpen(b *testing.B, o recorder.Options) *recorder.Recorder {
	b.Helper()
	r, _ := open(b, o)
	return r
}

// drained records once, and returns what empties that ring as an agent would.
func drained(b *testing.B, th *recorder.Thread, run string) func() {
	b.Helper()
	c := th.Begin(record.Communication, recorder.Attr{})
	c.End()
	dirs, _ := filepath.Glob(filepath.Join(run, "*"))
	f, err := ring.OpenFolder(run, filepath.Base(dirs[0]))
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(f.Close)
	rd, err := f.OpenReader(1)
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(rd.Close)
	return func() {
		c, err := rd.Counters()
		if err == nil {
			err = rd.SetTail(ring.Bulk, c.Head[ring.Bulk])
		}

		if err != nil {
			b.Fatal(err)
		}
	}
}
