package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// fixture is a rank's directory as lines.
type fixture struct {
	segments []fixtureSegment
	clock    int64
}

type fixtureSegment struct {
	id    record.ID
	name  string
	lines []fixtureLine
	size  int64
}

type fixtureLine struct {
	offset int64
	text   []byte
}

// begin starts a new segment.
func (f *fixture) begin() {
	n := len(f.segments)
	f.segments = append(f.segments, fixtureSegment{id: record.ID(0xabc000 + n), name: fmt.Sprint(1753000000 + n)})
}

// add appends lines, each with its '\n', to the last segment.
func (f *fixture) add(text []byte) {
	if len(f.segments) == 0 {
		f.begin()
	}

	s := &f.segments[len(f.segments)-1]
	start := 0
	for i, c := range text {
		if c == '\n' {
			s.lines = append(s.lines, fixtureLine{s.size, text[start:i]})
			s.size += int64(i + 1 - start)
			start = i + 1
		}
	}
}

func (f *fixture) addText(text string) { f.add([]byte(text + "\n")) }

// String shows what matters of the lines.
func (f *fixture) String() string {
	var b strings.Builder
	for _, s := range f.segments {
		fmt.Fprintf(&b, "segment %s\n", s.name)
		for _, l := range s.lines {
			text := strings.NewReplacer(`"MsptiObjectId":{"Pt":`, "", `"Kind":1,`, "", `"Timestamp":`, "", `"SourceKind":`, "side ").Replace(string(l.text))
			fmt.Fprintf(&b, "%6d %.150s\n", l.offset, text)
		}
	}

	return b.String()
}

func (f *fixture) count() int {
	n := 0
	for _, s := range f.segments {
		n += len(s.lines)
	}

	return n
}

// feed feeds the lines from p on, calling each after every one.
func (f *fixture) feed(s *Stream, p segment.Position, each func()) {
	for _, seg := range f.segments {
		if p.Segment != "" && (segment.Position{Segment: seg.name}).Before(segment.Position{Segment: p.Segment}) {
			continue
		}

		s.Segment(seg.id, seg.name)
		for _, l := range seg.lines {
			if seg.name == p.Segment && l.offset < p.Offset {
				continue
			}

			s.Line(l.offset, l.text)
			if each != nil {
				each()
			}
		}
	}
}

// run feeds everything and returns all rows.
func (f *fixture) run(o Options) (row.Rows, Counts) {
	s := New(o)
	f.feed(s, segment.Position{}, nil)
	s.End()
	var rows row.Rows
	s.Take(&rows)
	return rows, s.Counts()
}

// work draws a directory in which everything that can happen happens: TaskD's and
// laggard's lines, several processes after and beside each other, late, torn,
// doubled and lost lines.
func work(t *rapid.T) *fixture {
	f := &fixture{clock: epoch}
	f.begin()
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		switch rapid.IntRange(0, 3).Draw(t, "part") {
		case 0, 1:
			taskdWork(t, f)
		case 2:
			laggardWork(t, f)
		case 3:
			f.addText(rapid.SampledFrom([]string{
				"", "x", "{}", `{"kind":"Step"`, `{"new":{"a":1}}`, `{"Kind":9,"Flag":1}`,
				`{"Kind":1,"Flag":16,"Sou{"kind":"FP","start":1753000000000000000,"dur":5,"ring":1,"seq":900}`,
				`{"Kind":3,"Start":1753000000000000000,"End":1753000000000000009,"Pt":{"ProcessId":7,"ThreadId":7},"CorrelationId":1,"Name":"aclnnMul"}`,
			}).Draw(t, "junk"))
		}
	}

	return f
}

const epoch = 1753000000_000000000

// taskdWork writes a process's lines the way TaskD does, with device lines behind.
func taskdWork(t *rapid.T, f *fixture) {
	pid := rapid.SampledFrom([]uint32{4000, 4000, 5000}).Draw(t, "pid")
	clock := f.clock + rapid.Int64Range(2, 40).Draw(t, "pause")*1e9 // a process takes a second to start
	stepNs := rapid.SampledFrom([]int64{30e6, 1e9, 20e9}).Draw(t, "step time")
	first := rapid.Int64Range(0, 40).Draw(t, "first step")
	id := uint64(0)
	var later [][]byte // device lines
	flush := func(n int) {
		for len(later) > n {
			i := 0
			if rapid.IntRange(0, 9).Draw(t, "disorder") == 0 {
				i = rapid.IntRange(0, len(later)-1).Draw(t, "which")
			}

			if rapid.IntRange(0, 60).Draw(t, "lost") != 0 {
				f.add(later[i])
			}

			later = append(later[:i], later[i+1:]...)
		}
	}
	put := func(m marker.Marker) {
		line := marker.Append(nil, &m)
		if m.Source == marker.DeviceSide {
			later = append(later, line)
			return
		}

		if m.ID == 1 && m.Flag == 16 || rapid.IntRange(0, 80).Draw(t, "lost") != 0 {
			f.add(line)
		}
	}
	point := func(id uint64, flag, source uint32, ts int64, name, domain string) marker.Marker {
		m := marker.Marker{Kind: 1, Flag: flag, Source: source, Timestamp: uint64(ts), ID: id, Name: []byte(name), Domain: []byte(domain)}
		m.Process, m.Thread, m.Device, m.Stream = pid, pid, pid, pid
		if source == marker.DeviceSide {
			m.Process, m.Thread, m.Device, m.Stream = 0, 2, 0, 2
		}

		return m
	}
	backlog := rapid.IntRange(0, 12).Draw(t, "backlog")
	for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
		step := first + int64(i)
		if rapid.IntRange(0, 9).Draw(t, "rollback") == 0 {
			step = first
		}

		id++
		stepID, begin := id, clock
		put(point(stepID, 16, 0, begin, fmt.Sprintf("step %d", step), "default"))
		at := begin
		for range rapid.IntRange(0, 4).Draw(t, "ranges") {
			id++
			at += stepNs / 8
			what := rapid.SampledFrom([]string{"forward", "dataloader", "save_checkpoint", "backward", "comm", "comm2"}).Draw(t, "what")
			domain := "default"
			if what[0] == 'c' {
				domain, what = "communication", fmt.Sprintf(`{"count": "64","dataType": "fp32","groupName": "%s","opName": "HcclAllreduce"}`, what)
			}

			if what == "dataloader" {
				put(point(id, 2, 0, at, what, domain))
				put(point(id, 4, 0, at+stepNs/16, "", ""))
				continue
			}

			put(point(id, 16, 0, at, what, domain))
			put(point(id, 32, 0, at+1000, "", ""))
			put(point(id, 16, 1, at+2000, "", ""))
			put(point(id, 32, 1, at+2000+stepNs/9, "", ""))
		}

		clock = begin + stepNs
		put(point(stepID, 32, 0, clock, "", ""))
		put(point(stepID, 16, 1, begin+3000, "", ""))
		put(point(stepID, 32, 1, clock+3000, "", ""))
		flush(backlog)
		if rapid.IntRange(0, 5).Draw(t, "rotate") == 0 {
			f.begin()
		}
	}

	flush(0)
	f.clock = clock
}

// laggardWork writes one or two incarnations the way the drain does.
func laggardWork(t *rapid.T, f *fixture) {
	clock := f.clock + 2e9
	n := rapid.IntRange(1, 2).Draw(t, "incarnations")
	type writer struct {
		meta record.Meta
		seq  map[uint32]uint64
		step int64
		at   int64
	}
	var ws []*writer
	for i := range n {
		ws = append(ws, &writer{
			meta: record.Meta{
				Format: record.Format, Job: "j", Rank: 3, Incarnation: record.ID(0x100*f.count() + i + 1), Node: "n0", PID: 10 + i, Writer: "go/1",
				Groups: []record.Group{{Dim: "dp", Name: "dp0", Index: 0, Size: 2, Ranks: []int{0, 3}}},
			},
			seq: map[uint32]uint64{}, step: rapid.Int64Range(0, 30).Draw(t, "first"), at: clock,
		})
	}

	for range rapid.IntRange(1, 6).Draw(t, "passes") {
		w := ws[rapid.IntRange(0, n-1).Draw(t, "writer")]
		f.begin()
		f.add(w.meta.AppendLine(nil))
		lines := map[uint32][][]byte{}
		put := func(ring uint32, r record.Record) {
			r.Ring, r.Seq = ring, w.seq[ring]
			w.seq[ring]++
			if rapid.IntRange(0, 40).Draw(t, "gap") == 0 {
				w.seq[ring]++
			}

			line := r.AppendLine(nil)
			lines[ring] = append(lines[ring], line)
			if rapid.IntRange(0, 40).Draw(t, "twice") == 0 {
				lines[ring] = append(lines[ring], line)
			}
		}
		stepNs := rapid.SampledFrom([]int64{10e6, 900e6, 8e9}).Draw(t, "step time")
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			begin := w.at
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				c := record.New(record.Communication)
				c.Step, c.Start, c.Dur, c.Op, c.Group = w.step, w.at+stepNs/8, stepNs/10, "allreduce", "dp0"
				c.Exposed = rapid.SampledFrom([]int64{-1, 5}).Draw(t, "exposed")
				put(rapid.SampledFrom([]uint32{2, 4}).Draw(t, "ring"), c)
				w.at += stepNs / 8
			}

			fp := record.New(record.FP)
			fp.Step, fp.Start, fp.Dur, fp.Tokens = w.step, w.at, stepNs/20, 7
			put(1, fp)
			s := record.New(record.Step)
			s.Step, s.Start, s.Dur = w.step, begin, stepNs
			put(1, s)
			w.at = begin + stepNs
			w.step++
		}

		order := []uint32{1, 2, 4}
		if rapid.Bool().Draw(t, "bulk first") {
			order = []uint32{2, 4, 1}
		}

		for _, ring := range order {
			for _, l := range lines[ring] {
				f.add(l)
			}
		}

		switch rapid.IntRange(0, 9).Draw(t, "control") {
		case 0:
			f.addText(fmt.Sprintf(`{"switch":{"at":%d,"default":true,"communication":%v}}`, w.at-1, rapid.Bool().Draw(t, "on")))
		case 1:
			f.addText(`{"loss":{"ring":2,"kind":"Communication","reason":"ring-full","count":3}}`)
		}
	}

	for _, w := range ws {
		f.clock = max(f.clock, w.at)
		if rapid.Bool().Draw(t, "ends") {
			f.begin()
			f.add(w.meta.AppendLine(nil))
			f.addText(fmt.Sprintf(`{"end":{"at":%d,"how":"killed","emitted":{"Step":%d}}}`, w.at, w.step))
		}
	}
}

// TestStream_RestartAnywhere kills a stream at any line and goes on from a low
// water, also from an older one: the rows that were not taken by then follow, in the
// same order, cell by cell, and the account is the same.
func TestStream_RestartAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := work(t)
		o := Options{Job: "j", Rank: 3, Node: "n9", Records: rapid.SampledFrom([]Selection{Light, None, All}).Draw(t, "records")}
		want, counts := f.run(o)

		type mark struct {
			p    segment.Position
			rows row.Rows // taken up to there
		}
		var marks []mark
		var taken row.Rows
		every := rapid.IntRange(1, 9).Draw(t, "take every")
		s, n := New(o), 0
		marks = append(marks, mark{})
		kill := rapid.IntRange(0, f.count()).Draw(t, "kill at")
		f.feed(s, segment.Position{}, func() {
			if n++; n > kill || n%every != 0 {
				return
			}

			s.Take(&taken)
			m := mark{p: s.LowWater()}
			appendRows(&m.rows, &taken)
			marks = append(marks, m)
		})
		m := marks[len(marks)-1]
		if rapid.Bool().Draw(t, "older") {
			m = marks[rapid.IntRange(0, len(marks)-1).Draw(t, "mark")]
		}

		s = New(o)
		if err := s.Resume(m.p); err != nil {
			t.Fatalf("Resume: %v", err)
		}

		rows := m.rows
		f.feed(s, m.p, func() {
			if rapid.IntRange(0, 5).Draw(t, "take") == 0 {
				s.Take(&rows)
				s.LowWater() // it may forget segments, nothing else
			}
		})
		s.End()
		s.Take(&rows)
		if d := cmp.Diff(want, rows, unpacked); d != "" {
			t.Fatalf("rows after a restart at %s:%d differ (-unbroken +restarted):\n%s\n%s", m.p.Segment, m.p.Offset, d, f)
		}

		if d := cmp.Diff(counts, s.Counts()); d != "" {
			t.Fatalf("counts after a restart at %s:%d differ (-unbroken +restarted):\n%s\n%s\n%s", m.p.Segment, m.p.Offset, d, f, m.p.State)
		}
	})
}

// unpacked compares raw rows with their words, however these are numbered.
var unpacked = cmp.Transformer("unpacked", func(r row.Raws) []row.Record { return r.AppendTo(nil) })

func appendRows(dst, src *row.Rows) {
	dst.Ranks = append(dst.Ranks, src.Ranks...)
	dst.Steps = append(dst.Steps, src.Steps...)
	dst.Communications = append(dst.Communications, src.Communications...)
	dst.Raws.Append(&src.Raws)
}

// TestStream_Account holds the equation of Counts and what rows promise each other.
func TestStream_Account(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := work(t)
		o := Options{Job: "j", Rank: 3, Records: rapid.SampledFrom([]Selection{Light, None, All}).Draw(t, "records")}
		rows, c := f.run(o)
		emitted := total(c.Emitted)
		if got := total(c.Stored) + total(c.Summarised) + c.InFlight + c.LostFor(LateRange); got != emitted {
			t.Fatalf("emitted=%d, stored+summarised+in flight+late=%d\n%+v", emitted, got, c)
		}

		if n := uint64(len(rows.Raws.Rows)); n != total(c.Stored) {
			t.Fatalf("record rows=%d, stored=%d", n, total(c.Stored))
		}

		calls := uint64(0)
		for _, r := range rows.Communications {
			calls += uint64(r.Calls)
			if r.Calls == 0 || r.Steps > r.Calls || r.MinNs > r.MaxNs || r.TotalNs < r.MaxNs || r.StepFrom%row.Window != 0 {
				t.Fatalf("window %+v", r)
			}
		}

		if o.Records != All && calls != c.Summarised["Communication"] {
			t.Fatalf("calls=%d, summarised=%d", calls, c.Summarised["Communication"])
		}

		unique(t, rows, f)
	})
}

// unique checks that no two rows have the same key.
func unique(t *rapid.T, rows row.Rows, f *fixture) {
	seen := map[any]bool{}
	check := func(key any) {
		if seen[key] {
			t.Fatalf("two rows with key %+v\n%s", key, f)
		}

		seen[key] = true
	}
	for _, r := range rows.Steps {
		check([4]any{"step", r.Incarnation, r.Step, r.Repeat})
	}

	for _, r := range rows.Communications {
		check([6]any{"window", r.Incarnation, r.StepFrom, r.Repeat, r.Group, r.Op})
	}

	for _, r := range rows.Raws.Rows {
		check([3]any{"record", r.Segment, r.Offset})
	}

	for _, r := range rows.Ranks {
		check([3]any{"rank", r.Incarnation, r.Version})
	}
}
