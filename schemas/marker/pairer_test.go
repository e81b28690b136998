package marker

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// joiner collects what a Pairer yields.
type joiner struct {
	t    testing.TB
	p    Pairer
	done []record.Record
	at   int64
}

func (j *joiner) line(pid uint32, flag, side uint32, id uint64, ts int64, name, domain string) Result {
	m := Marker{Kind: KindMarker, Flag: flag, Source: side, ID: id, Timestamp: uint64(ts), Process: pid, Thread: pid + 1, Name: []byte(name), Domain: []byte(domain)}
	m.Device, m.Stream = m.Process, m.Thread
	if side == DeviceSide {
		m.Process, m.Thread, m.Device, m.Stream = 0, 2, 0, 2
	}

	return j.add(&m)
}

func (j *joiner) add(m *Marker) Result {
	j.at++
	res := j.p.Add(m, Place{Segment: 1, Offset: j.at})
	if res.Range != nil {
		j.done = append(j.done, res.Range.Record)
	}

	return res
}

const t0 = 1753000000_000000000

func TestPairer_DeviceTimesArePreferred(t *testing.T) {
	j := joiner{t: t}
	j.line(7, 16, 0, 41, t0, "step 120", "default")
	j.line(7, 32, 0, 41, t0+950, "", "")
	j.line(7, 16, 1, 41, t0+100, "", "")
	if len(j.done) != 0 {
		t.Fatalf("done=%d before the device's end", len(j.done))
	}

	res := j.line(7, 32, 1, 41, t0+961, "", "")
	want := record.New(record.Step)
	want.Step, want.Side, want.Start, want.Dur, want.HostStart, want.HostDur, want.Thread = 120, record.Device, t0+100, 861, t0, 950, 2
	if d := cmp.Diff([]record.Record{want}, j.done); d != "" {
		t.Fatal(d)
	}

	if res.Range.Begin != t0 || res.Range.Place.Offset != 1 {
		t.Fatalf("begin=%d place=%v, want the host start's", res.Range.Begin, res.Range.Place)
	}
}

func TestPairer_AnyOrder(t *testing.T) {
	lines := [4][2]uint32{{16, 0}, {32, 0}, {16, 1}, {32, 1}}
	ts := [4]int64{t0, t0 + 900, t0 + 100, t0 + 1000}
	var permute func(done []int)
	permute = func(done []int) {
		if len(done) < 4 {
			for i := range lines {
				if !slices.Contains(done, i) {
					permute(append(slices.Clone(done), i))
				}
			}

			return
		}

		j := joiner{t: t}
		for _, i := range done {
			name := ""
			if i == 0 {
				name = "forward"
			}

			j.line(7, lines[i][0], lines[i][1], 5, ts[i], name, "default")
		}

		if len(j.done) != 1 || j.done[0].Kind != record.FP || j.done[0].Dur != 900 || j.done[0].HostDur != 900 || j.p.Unmatched != 0 {
			t.Errorf("order %v: %+v, unmatched %d", done, j.done, j.p.Unmatched)
		}
	}
	permute(nil)
}

func TestPairer_SettlesWithoutDevice(t *testing.T) {
	j := joiner{t: t}
	j.line(7, 16, 0, 1, t0, "forward", "default")
	j.line(7, 32, 0, 1, t0+5, "", "")
	j.line(7, 16, 0, 2, t0+6, "forward", "default") // never ends
	q := j.p.Processes()[0]
	var got []record.Record
	j.p.Settle(q, t0+7, func(r *Range) { got = append(got, r.Record) })
	if len(got) != 1 || got[0].Side != record.Host || got[0].Dur != 5 {
		t.Fatalf("settled %+v, want the host's times of range 1", got)
	}

	if _, waits := q.Oldest(); waits {
		t.Fatal("an overdue start still holds things up")
	}

	if q.Waiting() != 1 {
		t.Fatalf("waiting=%d, want the overdue one", q.Waiting())
	}

	j.line(7, 32, 0, 2, t0+90, "", "")
	j.line(7, 16, 1, 2, t0+7, "", "")
	j.line(7, 32, 1, 2, t0+95, "", "")
	if len(j.done) != 1 || j.done[0].Dur != 88 {
		t.Fatalf("overdue range: %+v, want it after all", j.done)
	}
}

func TestPairer_IdsBeginAnew(t *testing.T) {
	for _, c := range []struct {
		name  string
		id    uint64
		pause int64
		pid   uint32
		over  bool // the old process has ended for certain
		begun bool
	}{
		{"the next range", 101, 1e6, 7, false, false},
		{"same pid, Ids from 1", 1, 2e9, 7, true, true},
		{"same pid, Ids from 1, at once", 1, 1e6, 7, true, true},
		{"two threads that raced", 99, 1000, 7, false, false},
		{"an older line", 3, -500, 7, false, false},
		{"another pid", 1, 1e6, 8, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := joiner{t: t}
			for id := uint64(1); id <= 100; id++ {
				j.line(7, 2, 0, id, t0+int64(id), "dataloader", "default")
				j.line(7, 4, 0, id, t0+int64(id), "", "")
			}

			res := j.line(c.pid, 2, 0, c.id, t0+100+c.pause, "dataloader", "default")
			if (res.Over != nil) != c.over || (res.Begun != nil) != c.begun {
				t.Fatalf("over=%v begun=%v, want %v %v", res.Over != nil, res.Begun != nil, c.over, c.begun)
			}
		})
	}
}

func TestPairer_OldDeviceLinesAreNotTheNewProcesss(t *testing.T) {
	j := joiner{t: t}
	j.line(7, 16, 0, 1, t0, "forward", "default")
	j.line(7, 32, 0, 1, t0+5, "", "")
	res := j.line(7, 16, 0, 1, t0+3e9, "forward", "default")
	if res.Over == nil {
		t.Fatal("no restart seen")
	}

	j.p.Drain(res.Over, t0+5, func(r *Range) { j.done = append(j.done, r.Record) })
	j.line(7, 16, 1, 1, t0+100, "", "")
	j.line(7, 32, 1, 1, t0+200, "", "")
	j.line(7, 32, 0, 1, t0+3e9+5, "", "")
	j.line(7, 16, 1, 1, t0+3e9+100, "", "")
	j.line(7, 32, 1, 1, t0+3e9+300, "", "")
	if len(j.done) != 2 || j.done[0].Side != record.Host || j.done[1].Start != t0+3e9+100 || j.done[1].Dur != 200 {
		t.Fatalf("got %+v", j.done)
	}
}

func TestPairer_ProcessesAtOnceDrawTheSameIds(t *testing.T) {
	j := joiner{t: t}
	lines := func(pid uint32, id uint64, ts int64) {
		j.line(pid, 16, 0, id, ts, "forward", "default")
		j.line(pid, 32, 0, id, ts+5, "", "")
		j.line(pid, 16, 1, id, ts+10, "", "")
		j.line(pid, 32, 1, id, ts+30, "", "")
	}
	for i := range uint64(3) { // a batch of each, the younger one's first
		lines(7, i+1, t0+int64(i)*100)
	}

	for i := range uint64(5) {
		lines(8, i+1, t0+int64(i)*100+50)
	}

	for i := range uint64(5) {
		lines(7, i+4, t0+int64(i)*100+300)
	}

	for _, r := range j.done {
		if r.Side != record.Device || r.Dur != 20 {
			t.Errorf("%+v, want the device's times", r)
		}
	}

	if len(j.done) != 13 || j.p.Unmatched != 0 {
		t.Errorf("%d ranges, %d unmatched", len(j.done), j.p.Unmatched)
	}
}

func TestPairer_Moments(t *testing.T) {
	j := joiner{t: t}
	j.line(7, 1, 0, 1, t0, "step 3", "default")
	j.line(7, 8, 0, 2, t0+1, "", "default")
	j.line(7, 8, 1, 2, t0+9, "", "")
	if len(j.done) != 2 || j.done[0].Word() != "step 3" || j.done[0].Dur != 0 || j.done[1].Word() != "unnamed" || j.done[1].Start != t0+9 {
		t.Fatalf("got %+v", j.done)
	}
}

func TestPairer_TimeNotCollected(t *testing.T) {
	j := joiner{t: t}
	j.line(7, 16, 0, 1, t0, "forward", "default") // only so that there is a time
	j.line(7, 16, 0, 2, 0, "forward", "default")
	j.line(7, 32, 0, 2, 0, "", "")
	j.line(7, 16, 1, 2, t0+10, "", "")
	j.line(7, 32, 1, 2, t0+30, "", "")
	if len(j.done) != 1 || j.done[0].Side != record.Device || j.done[0].Dur != 20 || j.done[0].HostStart != 0 {
		t.Fatalf("got %+v, want the device's times only", j.done)
	}

	j.line(7, 2, 0, 3, 0, "dataloader", "default")
	j.line(7, 4, 0, 3, t0, "", "")
	if len(j.done) != 1 || j.p.Unmatched != 1 {
		t.Fatalf("done=%d unmatched=%d, want a range without a time given up", len(j.done), j.p.Unmatched)
	}
}

// TestPairer_Activities: what TaskD has types for but never enables is unknown, as what it
// has none for.
func TestPairer_Activities(t *testing.T) {
	j := joiner{t: t}
	for kind, line := range map[uint32]string{
		2: `{"Kind":2,"Start":1753000000000000001,"End":1753000000000000009,"Ds":{"DeviceId":3,"StreamId":12},"CorrelationId":77,"Type":"AI_CORE","Name":"MatMul"}`,
		3: `{"Kind":3,"Start":1753000000000000001,"End":1753000000000000009,"Pt":{"ProcessId":3121,"ThreadId":3388},"CorrelationId":77,"Name":"aclnnMatmul"}`,
		4: `{"Kind":4,"Flag":7}`,
	} {
		var p Parser
		if err := p.Parse([]byte(line)); err != nil || p.Marker.Kind != kind {
			t.Fatalf("%s is read as %+v, %v", line, p.Marker, err)
		}

		if res := j.add(&p.Marker); !res.Unknown {
			t.Fatalf("%s is known", line)
		}
	}
}

func TestPairer_IsBounded(t *testing.T) {
	j := joiner{t: t}
	for i := range uint64(3 * maxOpen) {
		j.line(7, 2, 0, i+1, t0+int64(i), "x", "default")
		j.line(7, 16, 1, i+1<<40, t0+int64(i), "", "")
	}

	q := j.p.Processes()[0]
	if q.Waiting() > maxOpen || len(q.open) > maxOpen || len(j.p.orphans) > maxOrphans {
		t.Fatalf("waiting=%d open=%d orphans=%d", q.Waiting(), len(q.open), len(j.p.orphans))
	}

	for pid := range uint32(100) {
		if res := j.line(1000+pid, 2, 0, 1, t0+int64(pid), "x", "default"); res.Over != nil {
			j.p.Drain(res.Over, 0, func(*Range) {})
		}
	}

	if n := len(j.p.Processes()); n > maxProcesses {
		t.Fatalf("processes=%d", n)
	}
}

func TestPairer_AllocatesARange(t *testing.T) {
	var p Pairer
	id, ts := uint64(0), uint64(t0)
	name, domain := []byte(`{"opName":"HcclAllreduce","groupName":"g","count":"12","dataType":"bfp16"}`), []byte("communication")
	round := func() {
		id++
		ts += 10
		for i, m := range [4]Marker{{Flag: 16, Name: name, Domain: domain}, {Flag: 32}, {Flag: 16, Source: 1}, {Flag: 32, Source: 1}} {
			m.Kind, m.ID, m.Timestamp, m.Process = KindMarker, id, ts+uint64(i), 7
			if m.Source == 1 {
				m.Process = 0
			}

			if res := p.Add(&m, Place{}); (res.Range != nil) != (i == 3) {
				t.Fatal("not joined")
			}
		}
	}
	for range 100 {
		round()
	}

	if n := testing.AllocsPerRun(1000, round); n > 1 {
		t.Fatalf("%v allocations a range, want the range alone", n)
	}
}

// drawn draws a record with the fields that TaskD has.
func drawn(t *rapid.T) record.Record {
	r := record.New(rapid.SampledFrom([]record.Kind{record.Other, record.Step, record.FP, record.Communication, record.SaveCheckpoint, record.DataLoader}).Draw(t, "kind"))
	switch r.Kind {
	case record.Step:
		r.Step = rapid.Int64Range(0, 1e15).Draw(t, "step")
	case record.Communication:
		r.Op = rapid.SampledFrom([]string{"allreduce", "allgather", "reducescatter", "reduce", "broadcast", "scatter", "gather", "alltoall", "send", "recv", "sendrecv", "barrier"}).Draw(t, "op")
		r.OpRaw = hcclOp(&r)
		r.Group = rapid.StringMatching(`[a-z<&"\\é%]{0,12}`).Draw(t, "group")
		r.Peer = rapid.Int32Range(-1, 100).Draw(t, "peer")
		r.Dtype = rapid.SampledFrom([]string{"", "bf16", "fp32", "int8", "uint64", "fp64"}).Draw(t, "dtype")
		r.Count = rapid.Int64Range(0, 1<<50).Draw(t, "count")
		r.Bytes = bytesOf(r.Count, r.Dtype)
	case record.Other:
		r.Name = rapid.SampledFrom([]string{"backward", "evaluate <x>", "unnamed"}).Draw(t, "word")
		r.Group = rapid.SampledFrom([]string{"", "mine"}).Draw(t, "domain")
	}

	r.Start, r.Dur = rapid.Int64Range(t0, t0+4e9).Draw(t, "start"), rapid.Int64Range(0, 1e12).Draw(t, "dur")
	r.Thread = uint64(rapid.Uint32Range(1, 1<<20).Draw(t, "thread"))
	if rapid.Bool().Draw(t, "device") {
		r.Side = record.Device
		if rapid.Bool().Draw(t, "host too") {
			r.HostStart, r.HostDur = r.Start-1000, rapid.Int64Range(1, 1e9).Draw(t, "host dur")
		}
	}

	return r
}

func FuzzPairer(f *testing.F) {
	f.Add([]byte{16, 0, 1, 0, 32, 0, 1, 9, 16, 1, 1, 3, 32, 1, 1, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Pairer
		for ; len(b) >= 4; b = b[4:] {
			m := Marker{Kind: 1, Flag: uint32(b[0]), Source: uint32(b[1] & 1), ID: uint64(b[2] & 7), Timestamp: t0 + uint64(b[3])*1e8, Process: uint32(b[1] >> 6)}
			res := p.Add(&m, Place{})
			if res.Range != nil && (res.Range.Record.Dur < 0 || !res.Range.complete()) {
				t.Fatalf("yielded %+v", res.Range)
			}

			if res.Over != nil {
				p.Drain(res.Over, 0, func(*Range) {})
			}

			if b[0] == 255 && res.Process != nil {
				p.Settle(res.Process, int64(m.Timestamp), func(*Range) {})
				p.Expire(int64(m.Timestamp))
			}
		}

		for _, q := range p.Processes() {
			p.Drain(q, t0, func(*Range) {})
			if q.Waiting() != 0 || len(q.open) != 0 {
				t.Fatalf("drained, but %d wait and %d are open", q.Waiting(), len(q.open))
			}
		}
	})
}
