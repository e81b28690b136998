package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// script is a stream and a short way to feed it. Times are ms after epoch.
type script struct {
	t    testing.TB
	s    *Stream
	off  int64
	rows row.Rows
	enc  marker.Encoder
	npu  uint32       // of device lines
	tee  func(string) // told of each line, nil is nobody
}

func newScript(t testing.TB, o Options) *script {
	if o.Job == "" {
		o.Job = "j"
	}

	c := &script{t: t, s: New(o), enc: marker.Encoder{Process: 4000, Thread: 4000}}
	c.s.Segment(0xabc, "1753000000")
	return c
}

const ms = int64(1e6)

func at(n int64) int64 { return epoch + n*ms }

func (c *script) text(lines ...string) {
	for _, l := range lines {
		if c.tee != nil {
			c.tee(l)
		}

		c.s.Line(c.off, []byte(l))
		c.off += int64(len(l)) + 1
	}
}

func (c *script) bytes(b []byte) {
	c.text(strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
}

// identity begins an incarnation in a new segment.
func (c *script) identity(id record.ID, name string, groups ...record.Group) {
	c.s.Segment(id<<8|record.ID(len(name)), name)
	c.off = 0
	m := record.Meta{Format: record.Format, Job: "j", Incarnation: id, Node: "n0", WorldSize: 4, PID: 9, Writer: "go/1", Groups: groups}
	c.bytes(m.AppendLine(nil))
}

// rec adds a laggard record of n ms from start.
func (c *script) rec(k record.Kind, step, start, n int64, change func(*record.Record)) {
	r := record.New(k)
	r.Step, r.Start, r.Dur = step, at(start), n*ms
	if change != nil {
		change(&r)
	}

	c.bytes(r.AppendLine(nil))
}

// host adds one TaskD host line of the process pid.
func (c *script) mark(flag, side uint32, id uint64, ts int64, name string) {
	m := marker.Marker{Kind: 1, Flag: flag, Source: side, ID: id, Timestamp: uint64(at(ts)), Process: c.enc.Process, Thread: 1, Name: []byte(name)}
	if name != "" {
		m.Domain = []byte("default")
		if name[0] == '{' {
			m.Domain = []byte("communication")
		}
	}

	if side == 1 {
		m.Process, m.Device, m.Stream = c.npu, c.npu, 2
	}

	c.bytes(marker.Append(nil, &m))
}

// span adds the four lines of a TaskD range.
func (c *script) span(id uint64, start, n int64, name string) {
	c.mark(16, 0, id, start, name)
	c.mark(32, 0, id, start+n, "")
	c.mark(16, 1, id, start+1, "")
	c.mark(32, 1, id, start+n+1, "")
}

func (c *script) take() *row.Rows {
	c.s.Take(&c.rows)
	return &c.rows
}

func (c *script) end() *row.Rows {
	c.s.End()
	return c.take()
}

// steps returns "step.repeat:flags" of all step rows.
func steps(r *row.Rows) string {
	var out []string
	for _, s := range r.Steps {
		out = append(out, fmt.Sprintf("%d.%d:%d", s.Step, s.Repeat, s.Flags))
	}

	return strings.Join(out, " ")
}

// places returns "kind@step.repeat" of all raw rows.
func places(r *row.Rows) string {
	var out []string
	for _, x := range r.Raws.AppendTo(nil) {
		out = append(out, fmt.Sprintf("%s@%d.%d", x.Kind, x.Step, x.Repeat))
	}

	return strings.Join(out, " ")
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s\n got %s\nwant %s", what, got, want)
	}
}

func TestStep_HoldsWhatBeginsInItsHostWindow(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	c.rec(record.DataLoader, -1, 5, 2, nil)                                                                                                  // before the first step
	c.rec(record.FP, 99, 10, 3, nil)                                                                                                         // at the very start; its own step is not believed
	c.rec(record.FP, 1, 500, 9, func(r *record.Record) { r.Side, r.HostStart, r.HostDur = record.Device, at(19), ms })                       // runs on the device long after
	c.rec(record.Step, 1, 10, 10, func(r *record.Record) { r.Side, r.HostStart, r.HostDur, r.Start = record.Device, at(10), 10*ms, at(12) }) // host 10…20
	c.rec(record.FP, 1, 20, 3, nil)                                                                                                          // the next one's
	c.rec(record.Step, 2, 20, 10, nil)
	r := c.end()
	want(t, "places", places(r), "DataLoader@-1.0 FP@1.0 FP@1.0 Step@1.0 FP@2.0 Step@2.0")
	s := r.Steps[0]
	if s.FPNs != 12*ms || s.FPCount != 2 || s.HostFPNs != ms || s.StartNs != at(12) || s.DataLoaderNs != -1 || s.Flags != 0 {
		t.Fatalf("%+v", s)
	}

	if r.Steps[1].Flags != row.FlagHostOnly {
		t.Fatalf("flags=%b, want host only", r.Steps[1].Flags)
	}
}

func TestStep_ClosesByContent(t *testing.T) {
	c := newScript(t, Options{})
	c.span(1, 0, 100, "step 1")
	c.mark(16, 0, 2, 100, "step 2")
	c.mark(32, 0, 2, 200, "")
	want(t, "before the device end of a later step", steps(c.take()), "")
	c.mark(16, 1, 2, 101, "")
	c.mark(32, 1, 2, 201, "")
	want(t, "after it", steps(c.take()), "1.0:0")
	want(t, "at the end of input", steps(c.end()), "1.0:0 2.0:0")
}

func TestStep_WaitsForMissingDeviceLinesByRecordedTime(t *testing.T) {
	c := newScript(t, Options{})
	c.mark(16, 0, 1, 0, "step 1")
	c.mark(16, 0, 2, 10, "forward")
	c.mark(32, 0, 2, 11, "")
	c.mark(32, 0, 1, 100, "")
	c.mark(16, 1, 1, 1, "")
	c.mark(32, 1, 1, 101, "")
	c.span(3, 100, 100, "step 2")
	want(t, "a forward pass without its device lines", steps(c.take()), "")
	c.mark(16, 1, 2, 20, "") // 10 s late for all we know
	c.mark(32, 1, 2, 60, "")
	c.span(4, 200, 100, "step 3")
	want(t, "with them", steps(c.take()), "1.0:0 2.0:0")
	if fp := c.rows.Steps[0].FPNs; fp != 40*ms {
		t.Fatalf("fp_ns=%d, want the device's 40 ms", fp)
	}

	c.mark(16, 0, 5, 300, "forward") // never heard of again
	c.span(6, 400, 10_000, "step 4")
	c.span(7, 10_400, 10_000, "step 5")
	want(t, "an unmatched start holds for a while", steps(c.take()), "1.0:0 2.0:0 3.0:0")
	c.span(8, 20_400, 10_000, "step 6")
	want(t, "not for ever", steps(c.take()), "1.0:0 2.0:0 3.0:0 4.0:0 5.0:0")
}

func TestStep_EndLeavesWhatIsPending(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.span(1, 0, 100, "step 1")
	c.mark(16, 0, 2, 100, "step 2")
	c.span(3, 110, 10, "forward")
	r := c.end()
	want(t, "steps", steps(r), "1.0:0")
	want(t, "places", places(r), "Step@1.0 FP@2.0") // step 2 began: that much is known
	if n := c.s.Counts().Waiting; n != 1 {
		t.Fatalf("waiting=%d, want step 2", n)
	}
}

func TestStep_RepeatsWithinOneIncarnation(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	for i, n := range []int64{5, 6, 7, 5, 6, 7, 8, 5} {
		c.rec(record.Step, n, int64(i)*10, 10, nil)
	}

	want(t, "steps", steps(c.end()), "5.0:1 6.0:1 7.0:1 5.1:1 6.1:1 7.1:1 8.0:1 5.2:1")
}

func TestExposed(t *testing.T) {
	groups := []record.Group{{Dim: "tp", Name: "t"}, {Dim: "exp", Name: "e"}, {Dim: "dp", Name: "d"}, {Dim: "mp", Name: "m"}}
	device := func(r *record.Record) { r.Side, r.HostStart, r.HostDur = record.Device, at(1), ms }
	comm := func(group string, exposed int64) func(*record.Record) {
		return func(r *record.Record) {
			device(r)
			r.Op, r.Group, r.Exposed = "allreduce", group, exposed
		}
	}
	for _, c := range []struct {
		name                string
		fill                func(*script)
		comm, exposed, self int64 // ms; -1 = not recorded
		tp, ep, dp, other   int64
		estimated           bool
	}{
		{name: "no communication", fill: func(c *script) { c.rec(record.FP, 0, 10, 20, device) }, comm: -1, exposed: -1, self: -1, tp: -1, ep: -1, dp: -1, other: -1},
		{name: "all ranges say it", fill: func(c *script) {
			c.rec(record.Communication, 0, 10, 20, comm("t", 5*ms))
			c.rec(record.Communication, 0, 20, 20, comm("t", 7*ms))
		}, comm: 30, exposed: 12, self: 88, tp: 30, ep: -1, dp: -1, other: -1},
		{name: "one does not say it: union beyond forward", fill: func(c *script) {
			c.rec(record.FP, 0, 15, 10, device)
			c.rec(record.Communication, 0, 10, 20, comm("t", 5*ms))
			c.rec(record.Communication, 0, 20, 20, comm("e", -1))
			c.rec(record.Communication, 0, 50, 10, comm("x", -1))
		}, comm: 40, exposed: 30, self: 70, tp: 20, ep: 20, dp: -1, other: 10, estimated: true},
		{name: "backward is known", fill: func(c *script) {
			c.rec(record.FP, 0, 0, 20, device)
			c.rec(record.Other, 0, 20, 40, func(r *record.Record) { device(r); r.Name = "backward" })
			c.rec(record.Communication, 0, 30, 50, comm("d", -1))
			c.rec(record.Communication, 0, 35, 5, comm("m", -1))
		}, comm: 50, exposed: 20, self: 80, tp: -1, ep: -1, dp: 50, other: 5},
		{name: "past the end of the step", fill: func(c *script) {
			c.rec(record.Communication, 0, 90, 50, comm("d", -1))
		}, comm: 50, exposed: 10, self: 90, tp: -1, ep: -1, dp: 50, other: -1, estimated: true},
		{name: "forward on another clock hides nothing", fill: func(c *script) {
			c.rec(record.FP, 0, 10, 80, nil)
			c.rec(record.Communication, 0, 20, 30, comm("d", -1))
		}, comm: 30, exposed: 30, self: 70, tp: -1, ep: -1, dp: 30, other: -1, estimated: true},
		{name: "dataloader and checkpoint are not the rank's own work", fill: func(c *script) {
			c.rec(record.DataLoader, 0, 5, 6, nil)
			c.rec(record.DataLoader, 0, 12, 1, nil)
			c.rec(record.SaveCheckpoint, 0, 70, 13, nil)
			c.rec(record.Communication, 0, 20, 30, comm("d", 30*ms))
		}, comm: 30, exposed: 30, self: 50, tp: -1, ep: -1, dp: 30, other: -1},
		{name: "more than the step is nothing left", fill: func(c *script) {
			c.rec(record.SaveCheckpoint, 0, 70, 500, nil)
			c.rec(record.Communication, 0, 20, 30, comm("d", 30*ms))
		}, comm: 30, exposed: 30, self: 0, tp: -1, ep: -1, dp: 30, other: -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newScript(t, Options{})
			b.identity(1, "1", groups...)
			b.rec(record.Step, 0, 0, 100, func(r *record.Record) { r.Side, r.HostStart, r.HostDur = record.Device, at(0), 100*ms })
			c.fill(b)
			r := b.end()
			if len(r.Steps) != 1 {
				t.Fatalf("%d steps", len(r.Steps))
			}

			s := r.Steps[0]
			in := func(v int64) int64 {
				if v < 0 {
					return v
				}

				return v / ms
			}
			got := []int64{in(s.CommNs), in(s.ExposedNs), in(s.SelfNs), in(s.CommTPNs), in(s.CommEPNs), in(s.CommDPNs), in(s.CommOtherNs)}
			if d := cmp.Diff([]int64{c.comm, c.exposed, c.self, c.tp, c.ep, c.dp, c.other}, got); d != "" {
				t.Fatalf("comm, exposed, self, tp, ep, dp, other (-want +got):\n%s", d)
			}

			if e := s.Flags&row.FlagEstimated != 0; e != c.estimated {
				t.Fatalf("estimated=%v", e)
			}
		})
	}
}

// TestMixed: TaskD's lines, ours, garbage, torn and foreign lines in one directory
// give the rows of the clean one, and the counts of what was not understood.
func TestMixed(t *testing.T) {
	feed := func(dirt bool) (*row.Rows, Counts) {
		c := newScript(t, Options{Records: All})
		soil := func(lines ...string) {
			if dirt {
				off := c.off
				c.text(lines...)
				c.off = off // the same offsets as in the clean one
			}
		}
		soil("\x00\x01garbage", `{"kind":`, "", `[1,2]`)
		for i := range int64(5) {
			c.span(uint64(2*i+1), i*100, 100, fmt.Sprintf("step %d", i))
			soil(`{"Kind":5,"Start":1}`, `{"severity":"info","msg":"other program"}`)
			c.span(uint64(2*i+2), i*100+10, 20, "forward")
		}

		if dirt { // a crash in the middle of a line, then a good one behind it
			c.text(`{"Kind":1,"Flag":16,"SourceKind":0,"Timest{"Kind":1,"Flag":4,"SourceKind":0,"Timestamp":1,"Id":999,"MsptiObjectId":{"Pt":{"ProcessId":4000,"ThreadId":1},"Ds":{"DeviceId":1,"StreamId":1}},"Name":"","Domain":""}`)
		}

		return c.end(), c.s.Counts()
	}
	clean, _ := feed(false)
	dirty, k := feed(true)
	if d := cmp.Diff(clean, dirty, unpacked); d != "" {
		t.Fatalf("rows differ (-clean +dirty):\n%s", d)
	}

	if k.Unknown != 10 || k.Garbage != 4 || k.Torn != 1 {
		t.Fatalf("unknown=%d garbage=%d torn=%d, want 10, 4, 1", k.Unknown, k.Garbage, k.Torn)
	}
}

func TestLowWater_IsNotPinnedByAnUnmatchedStart(t *testing.T) {
	c := newScript(t, Options{})
	c.mark(16, 0, 1, 0, "forward") // its end was lost
	for i := range int64(40) {
		c.span(uint64(i+2), 10+i*1000, 1000, fmt.Sprintf("step %d", i))
	}

	c.take()
	p := c.s.LowWater()
	if p.Offset < c.off-2000 {
		t.Fatalf("low water is at %d of %d", p.Offset, c.off)
	}

	if c.s.Counts().Waiting == 0 {
		t.Fatal("the unmatched start is forgotten, want it remembered without holding anything up")
	}
}

func TestResume_Rejects(t *testing.T) {
	c := newScript(t, Options{Rank: 3})
	c.span(1, 0, 10, "step 1")
	c.take()
	p := c.s.LowWater()
	for name, bad := range map[string]segment.Position{
		"no state": {Segment: "1", Offset: 5},
		"garbage":  {Segment: "1", State: "{"},
		"version":  {Segment: "1", State: `{"v":99,"job":"j","rank":3}`},
	} {
		if err := New(Options{Job: "j", Rank: 3}).Resume(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	if err := New(Options{Job: "j", Rank: 4}).Resume(p); err == nil {
		t.Error("accepted another rank's position")
	}

	if err := New(Options{Job: "j", Rank: 3}).Resume(p); err != nil {
		t.Error(err)
	}

	if err := New(Options{}).Resume(segment.Position{}); err != nil {
		t.Error(err)
	}
}

func TestStream_IsBounded(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	line := []byte(nil)
	for i := range int64(3 * maxPending) { // no step ever
		r := record.New(record.Communication)
		r.Start, r.Dur, r.Group, r.Op = at(0)+i*1000, 500, fmt.Sprint("g", i%9000), "allreduce"
		line = r.AppendLine(line[:0])
		c.s.Line(i*200, line)
	}

	inc := c.s.incarnations[0]
	if len(inc.pending) > maxPending || len(inc.Window.all) > maxCalls+1 {
		t.Fatalf("pending=%d names=%d", len(inc.pending), len(inc.Window.all))
	}

	c.end()
	k := c.s.Counts()
	if k.Emitted["Communication"] != 3*maxPending || k.Emitted["Communication"] != k.Summarised["Communication"] {
		t.Fatalf("%+v", k)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"meta":{"format":"laggard/1","job":"j","rank":0,"incarnation":"0000000000000001"}}` + "\n" +
		`{"kind":"Step","step":1,"start":5,"dur":9,"ring":1,"seq":0}` + "\n" + `{"end":{"at":20,"how":"killed"}}`))
	f.Add([]byte(`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":5,"Id":1,"MsptiObjectId":{"Pt":{"ProcessId":7,"ThreadId":7},"Ds":{"DeviceId":7,"StreamId":7}},"Name":"step 1","Domain":"default"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := New(Options{Records: All})
		s.Segment(1, "1")
		off := int64(0)
		for _, line := range strings.SplitAfter(string(text), "\n") {
			s.Line(off, []byte(line))
			off += int64(len(line))
		}

		s.End()
		var rows row.Rows
		s.Take(&rows)
		c := s.Counts()
		if total(c.Emitted) != total(c.Stored)+total(c.Summarised)+c.InFlight+c.LostFor(LateRange) {
			t.Fatalf("%+v", c)
		}

		for _, r := range rows.Steps {
			if r.StepNs < 0 || r.SelfNs < -1 || r.CommNs < -1 {
				t.Fatalf("%+v", r)
			}
		}
	})
}
