package rollup

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// busy is a directory with calls communication ranges a step, as laggard's or
// TaskD's lines.
func busy(steps, calls int64, taskd bool) *fixture {
	f := &fixture{}
	f.begin()
	m := record.Meta{Format: record.Format, Job: "j", Incarnation: 1, Writer: "go/1", Groups: []record.Group{{Dim: "dp", Name: "dp0"}}}
	enc := marker.Encoder{Process: 7, Thread: 7}
	if !taskd {
		f.add(m.AppendLine(nil))
	}

	seq := map[uint32]uint64{}
	put := func(r *record.Record) {
		if taskd {
			f.add(enc.Append(nil, r))
			return
		}

		r.Ring = 1
		if r.Kind == record.Communication {
			r.Ring = 2
		}

		r.Seq = seq[r.Ring]
		seq[r.Ring]++
		f.add(r.AppendLine(nil))
	}
	for n := range steps {
		begin := int64(epoch) + n*1e9
		for i := range calls {
			r := record.New(record.Communication)
			r.Step, r.Start, r.Dur, r.Side, r.Thread = n, begin+i*1e6+2000, 500_000, record.Device, 55
			r.HostStart, r.HostDur = begin+i*1e6, 1000
			r.Op, r.OpRaw, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "HcclAllreduce", "10.0.0.7%eth0_60000_"+strconv.FormatInt(i%4, 10), 4194304, "bf16", 8388608
			put(&r)
		}

		for i := range int64(8) {
			r := record.New(record.FP)
			r.Step, r.Start, r.Dur, r.Side, r.Thread = n, begin+i*1e8+2000, 9e7, record.Device, 2
			r.HostStart, r.HostDur = begin+i*1e8, 1000
			put(&r)
		}

		r := record.New(record.Step)
		r.Step, r.Start, r.Dur, r.Side, r.Thread = n, begin+2000, 1e9, record.Device, 2
		r.HostStart, r.HostDur = begin, 1e9
		put(&r)
	}

	return f
}

func BenchmarkStream(b *testing.B) {
	for _, taskd := range []bool{false, true} {
		for _, calls := range []int64{8, 500} {
			for _, sel := range []Selection{Light, All} {
				format := map[bool]string{false: "laggard", true: "taskd"}[taskd]
				b.Run(strings.Join([]string{format, fmt.Sprint("calls=", calls), "records=" + sel.String()}, "/"), func(b *testing.B) {
					f := busy(10_000/calls, calls, taskd)
					size := int64(0)
					for _, s := range f.segments {
						size += s.size
					}

					b.SetBytes(size)
					b.ReportAllocs()
					var rows row.Rows
					for b.Loop() {
						s := New(Options{Job: "j", Records: sel})
						n := 0
						f.feed(s, segment.Position{}, func() {
							if n++; n%4096 == 0 {
								rows = row.Rows{Ranks: rows.Ranks[:0], Steps: rows.Steps[:0], Communications: rows.Communications[:0], Raws: row.Raws{Rows: rows.Raws.Rows[:0]}}
								s.Take(&rows)
							}
						})
						s.End()
					}

					b.ReportMetric(float64(f.count()), "lines/op")
				})
			}
		}
	}
}

func BenchmarkLowWater(b *testing.B) {
	f := busy(20, 500, true)
	s := New(Options{Job: "j"})
	f.feed(s, segment.Position{}, nil)
	var rows row.Rows
	s.Take(&rows)
	b.ReportAllocs()
	for b.Loop() {
		s.mark = segment.Position{}
		if s.LowWater().State == "" {
			b.Fatal("no state")
		}
	}
}
