package marker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestEncoder_Identity: record → lines → record is the identity on what TaskD has,
// for every kind, and the lines read and written again are the same bytes.
func TestEncoder_Identity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(drawn), 1, 5).Draw(t, "records")
		e := Encoder{Process: 7, Thread: 8, Device: 1}
		var text []byte
		for i := range want { // a process goes on, though a range that holds others is written after them
			want[i].Start += int64(i) * 1e9
			if want[i].HostStart != 0 {
				want[i].HostStart += int64(i) * 1e9
			}

			text = e.Append(text, &want[i])
		}

		var pairer Pairer
		var p Parser
		var got []record.Record
		for line := range bytes.Lines(text) {
			if err := p.Parse(line); err != nil {
				t.Fatalf("Parse(%q): %v", line, err)
			}

			if again := Append(nil, &p.Marker); !bytes.Equal(again, line) {
				t.Fatalf("wrote %q, read and wrote %q", line, again)
			}

			res := pairer.Add(&p.Marker, Place{})
			if res.Over != nil {
				t.Fatalf("a new process at %q", line)
			}

			if res.Range != nil {
				got = append(got, res.Range.Record)
			}
		}

		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("(-written +read):\n%s\n%s", d, text)
		}
	})
}

func TestEncoder_OpenRangeHasNoEnd(t *testing.T) {
	r := record.New(record.Step)
	r.Step, r.Start, r.Dur, r.Open = 4, t0, 100, true
	e := Encoder{Process: 7}
	text := e.Append(nil, &r)
	if n := bytes.Count(text, []byte("\n")); n != 1 {
		t.Fatalf("%d lines, want the start only:\n%s", n, text)
	}

	var p Parser
	var pairer Pairer
	if err := p.Parse(text); err != nil {
		t.Fatal(err)
	}

	pairer.Add(&p.Marker, Place{})
	var got []record.Record
	pairer.Drain(pairer.Processes()[0], t0+100, func(r *Range) { got = append(got, r.Record) })
	if len(got) != 1 || !got[0].Open || got[0].Dur != 100 || got[0].Step != 4 {
		t.Fatalf("read back as %+v", got)
	}
}

// TestEncoder_Lines holds the bytes: a communication carries the stream that its producer
// named, and what was measured on the host alone has device lines where TaskD has them,
// with the same stamps, which a Pairer takes for the host's.
func TestEncoder_Lines(t *testing.T) {
	comm := record.New(record.Communication)
	comm.Side, comm.Start, comm.Dur, comm.HostStart, comm.HostDur, comm.Thread = record.Device, t0+1000, 90, t0, 5, 55
	comm.Op, comm.OpRaw, comm.Group, comm.Count, comm.Dtype = "allreduce", "HcclAllreduce", "dp0", 8, "bf16"
	step, loader := record.New(record.Step), record.New(record.DataLoader)
	step.Step, step.Start, step.Dur, step.Thread = 4, t0+2000, 300, 71
	loader.Start, loader.Dur, loader.Thread = t0+2010, 20, 71
	e := Encoder{Process: 7, Thread: 8, Device: 3}
	var text []byte
	for _, r := range []record.Record{comm, step, loader} {
		text = e.Append(text, &r)
	}

	line := func(flag, side int, at int64, id, pt, ds int, name, domain string) string {
		return fmt.Sprintf(`{"Kind":1,"Flag":%d,"SourceKind":%d,"Timestamp":%d,"Id":%d,"MsptiObjectId":{"Pt":{"ProcessId":%d,"ThreadId":%d},"Ds":{"DeviceId":%[5]d,"StreamId":%[6]d}},"Name":"%[7]s","Domain":"%[8]s"}`+"\n",
			flag, side, at, id, pt, ds, name, domain)
	}
	want := line(16, 0, t0, 1, 7, 8, `{\"count\": \"8\",\"dataType\": \"bfp16\",\"groupName\": \"dp0\",\"opName\": \"HcclAllreduce\",\"streamId\": \"55\"}`, "communication") +
		line(32, 0, t0+5, 1, 7, 8, "", "") + line(16, 1, t0+1000, 1, 3, 55, "", "") + line(32, 1, t0+1090, 1, 3, 55, "", "") +
		line(16, 0, t0+2000, 2, 7, 71, "step 4", "default") + line(32, 0, t0+2300, 2, 7, 71, "", "") +
		line(16, 1, t0+2000, 2, 3, 0, "", "") + line(32, 1, t0+2300, 2, 3, 0, "", "") +
		line(2, 0, t0+2010, 3, 7, 71, "dataloader", "default") + line(4, 0, t0+2030, 3, 7, 71, "", "")
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(text), "\n")); d != "" {
		t.Fatalf("(-want +written):\n%s", d)
	}

	var pairer Pairer
	var p Parser
	devices := map[record.Kind]bool{}
	for l := range bytes.Lines(text) {
		if err := p.Parse(l); err != nil {
			t.Fatal(err)
		}

		if r := pairer.Add(&p.Marker, Place{}).Range; r != nil {
			number, ok := r.Device()
			devices[r.Record.Kind] = ok && number == 3
			if (r.Record.Side == record.Device) != ok {
				t.Errorf("%+v: side %s, device %v", r.Record, r.Record.Side, ok)
			}
		}
	}

	if d := cmp.Diff(map[record.Kind]bool{record.Communication: true, record.Step: false, record.DataLoader: false}, devices); d != "" {
		t.Errorf("ran on a device (-want +got):\n%s", d)
	}
}

// TestEncoder_NameLimit: a name of 254 bytes is written, one of 255 is not, and
// the escapes of a communication's quotes count.
func TestEncoder_NameLimit(t *testing.T) {
	other := func(n int) record.Record {
		r := record.New(record.Other)
		r.Name = strings.Repeat("n", n)
		return r
	}
	comm := func(group int) record.Record {
		r := record.New(record.Communication)
		r.Op, r.Group, r.Count = "allreduce", strings.Repeat("g", group), 8
		return r
	}
	length := func(r record.Record) int { return nameLength(nameOf(&r)) }
	room := nameLimit - 1 - length(comm(0))
	for _, c := range []struct {
		r       record.Record
		refused bool
	}{{other(nameLimit - 1), false}, {other(nameLimit), true}, {comm(room), false}, {comm(room + 1), true}} {
		e := Encoder{Process: 7, LastID: 4}
		text := e.Append(nil, &c.r)
		if refused := len(text) == 0; refused != c.refused || (e.Refused == 1) != c.refused || (e.LastID == 4) != c.refused {
			t.Errorf("%s name of %d: refused %v, counted %d, last Id %d", c.r.Word(), length(c.r), refused, e.Refused, e.LastID)
		}
	}
}
