package marker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// golden are lines of every form that TaskD writes, byte for byte: what encoding/json makes of
// the types in component/taskd/taskd/go/framework_backend/worker/monitor/profiling/types.go
// of Ascend/mind-cluster (read at afe7bca1).
var golden = []struct {
	name, line string
	want       Marker
}{
	{
		"host start of a range with a stream",
		`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1753000000000000001,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"step 120","Domain":"default"}`,
		Marker{Kind: 1, Flag: 16, Timestamp: 1753000000000000001, ID: 41, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte("step 120"), Domain: []byte("default")},
	},
	{
		"host end of a range with a stream",
		`{"Kind":1,"Flag":32,"SourceKind":0,"Timestamp":1753000000950000001,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 32, Timestamp: 1753000000950000001, ID: 41, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121},
	},
	{
		"device start",
		`{"Kind":1,"Flag":16,"SourceKind":1,"Timestamp":1753000000000100002,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":0,"ThreadId":2},"Ds":{"DeviceId":0,"StreamId":2}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 16, Source: 1, Timestamp: 1753000000000100002, ID: 41, Thread: 2, Stream: 2},
	},
	{
		"device end",
		`{"Kind":1,"Flag":32,"SourceKind":1,"Timestamp":1753000000961000002,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":0,"ThreadId":2},"Ds":{"DeviceId":0,"StreamId":2}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 32, Source: 1, Timestamp: 1753000000961000002, ID: 41, Thread: 2, Stream: 2},
	},
	{
		"start of a range without a stream",
		`{"Kind":1,"Flag":2,"SourceKind":0,"Timestamp":1753000000000300001,"Id":42,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"dataloader","Domain":"default"}`,
		Marker{Kind: 1, Flag: 2, Timestamp: 1753000000000300001, ID: 42, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte("dataloader"), Domain: []byte("default")},
	},
	{
		"end of a range without a stream",
		`{"Kind":1,"Flag":4,"SourceKind":0,"Timestamp":1753000000004300001,"Id":42,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 4, Timestamp: 1753000000004300001, ID: 42, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121},
	},
	{
		"communication",
		`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1753000000010000001,"Id":43,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3388},"Ds":{"DeviceId":3121,"StreamId":3388}},"Name":"{\"streamId\": \"55\",\"count\": \"4194304\",\"dataType\": \"bfp16\",\"groupName\": \"10.0.0.7%eth0_60000_0_1753000000000000\",\"opName\": \"HcclAllreduce\"}","Domain":"communication"}`,
		Marker{
			Kind: 1, Flag: 16, Timestamp: 1753000000010000001, ID: 43, Process: 3121, Thread: 3388, Device: 3121, Stream: 3388,
			Name:   []byte(`{"streamId": "55","count": "4194304","dataType": "bfp16","groupName": "10.0.0.7%eth0_60000_0_1753000000000000","opName": "HcclAllreduce"}`),
			Domain: []byte("communication"),
		},
	},
	{
		"a moment, escaped",
		`{"Kind":1,"Flag":1,"SourceKind":0,"Timestamp":0,"Id":18446744073709551615,"MsptiObjectId":{"Pt":{"ProcessId":4294967295,"ThreadId":1},"Ds":{"DeviceId":4294967295,"StreamId":1}},"Name":"\u003ca\u003e \u0026\t\u0001 é\u2028","Domain":"my \"own\""}`,
		Marker{Kind: 1, Flag: 1, ID: 18446744073709551615, Process: 4294967295, Thread: 1, Device: 4294967295, Stream: 1, Name: []byte("<a> &\t\x01 é\u2028"), Domain: []byte(`my "own"`)},
	},
	{
		"NULL name",
		`{"Kind":1,"Flag":8,"SourceKind":0,"Timestamp":5,"Id":1,"MsptiObjectId":{"Pt":{"ProcessId":1,"ThreadId":1},"Ds":{"DeviceId":1,"StreamId":1}},"Name":"NULL","Domain":"(null)"}`,
		Marker{Kind: 1, Flag: 8, Timestamp: 5, ID: 1, Process: 1, Thread: 1, Device: 1, Stream: 1, Name: []byte("NULL"), Domain: []byte("(null)")},
	},
	{
		"forward",
		`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1753000000000000001,"Id":44,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"forward","Domain":"default"}`,
		Marker{Kind: 1, Flag: 16, Timestamp: 1753000000000000001, ID: 44, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte(`forward`), Domain: []byte("default")},
	},
	{
		"checkpoint without a stream",
		`{"Kind":1,"Flag":2,"SourceKind":0,"Timestamp":1753000000000000001,"Id":45,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"save_checkpoint","Domain":"default"}`,
		Marker{Kind: 1, Flag: 2, Timestamp: 1753000000000000001, ID: 45, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte(`save_checkpoint`), Domain: []byte("default")},
	},
	{
		"checkpoint of the old plugin, with a stream",
		`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1753000000000000001,"Id":46,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"save_checkpoint","Domain":"default"}`,
		Marker{Kind: 1, Flag: 16, Timestamp: 1753000000000000001, ID: 46, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte(`save_checkpoint`), Domain: []byte("default")},
	},
	{
		"send, names the other end",
		`{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1753000000000000001,"Id":47,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3388},"Ds":{"DeviceId":3121,"StreamId":3388}},"Name":"{\"count\": \"8\",\"dataType\": \"fp16\",\"groupName\": \"p\",\"opName\": \"HcclSend\",\"streamId\": \"55\",\"destRank\": \"3\"}","Domain":"communication"}`,
		Marker{Kind: 1, Flag: 16, Timestamp: 1753000000000000001, ID: 47, Process: 3121, Thread: 3388, Device: 3121, Stream: 3388, Name: []byte(`{"count": "8","dataType": "fp16","groupName": "p","opName": "HcclSend","streamId": "55","destRank": "3"}`), Domain: []byte("communication")},
	},
	{
		"a moment on host and device, its device line",
		`{"Kind":1,"Flag":8,"SourceKind":1,"Timestamp":1753000000000000001,"Id":48,"MsptiObjectId":{"Pt":{"ProcessId":0,"ThreadId":2},"Ds":{"DeviceId":0,"StreamId":2}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 8, Source: 1, Timestamp: 1753000000000000001, ID: 48, Thread: 2, Stream: 2},
	},
	{
		"time not collected",
		`{"Kind":1,"Flag":16,"SourceKind":1,"Timestamp":0,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":0,"ThreadId":2},"Ds":{"DeviceId":0,"StreamId":2}},"Name":"","Domain":""}`,
		Marker{Kind: 1, Flag: 16, Source: 1, ID: 41, Thread: 2, Stream: 2},
	},
	{
		"(null), as C prints a NULL pointer",
		`{"Kind":1,"Flag":2,"SourceKind":0,"Timestamp":1753000000000000001,"Id":49,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{"DeviceId":3121,"StreamId":3121}},"Name":"(null)","Domain":"(null)"}`,
		Marker{Kind: 1, Flag: 2, Timestamp: 1753000000000000001, ID: 49, Process: 3121, Thread: 3121, Device: 3121, Stream: 3121, Name: []byte(`(null)`), Domain: []byte("(null)")},
	},
}

func TestParse_Golden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			var p Parser
			if err := p.Parse([]byte(g.line + "\n")); err != nil {
				t.Fatalf("Parse: %v", err)
			}

			if d := cmp.Diff(g.want, p.Marker, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("Parse (-want +got):\n%s", d)
			}

			if got := string(Append(nil, &p.Marker)); got != g.line+"\n" {
				t.Fatalf("Append\n got %s want %s", got, g.line)
			}
		})
	}
}

func TestParse_AnyKeyOrder(t *testing.T) {
	line := ` { "Domain":"default", "Id":9,"New":[1],"MsptiObjectId":{"Ds":{"StreamId":2,"DeviceId":1},"Pt":{"ThreadId":2,"ProcessId":1}},"Timestamp":7,
	"Name":"step 3","SourceKind":0,"Flag":2,"Kind":1}`
	var p Parser
	if err := p.Parse([]byte(line)); err != nil {
		t.Fatal(err)
	}

	m := p.Marker
	if m.ID != 9 || m.Timestamp != 7 || m.Flag != 2 || string(m.Name) != "step 3" || m.Process != 1 || m.Stream != 2 {
		t.Fatalf("got %+v", m)
	}
}

func TestParse_Rejects(t *testing.T) {
	for _, line := range []string{
		"", "x", "[]", "null", `{"Kind":1}`, `{"Kind":"1"}`, `{"Kind":-1}`, `{"kind":1}`,
		strings.Replace(golden[1].line, `"Id":41`, `"Id":-41`, 1),
		strings.Replace(golden[1].line, `"Id":41`, `"Id":041`, 1),
		strings.Replace(golden[1].line, `"Id":41`, `"Id":18446744073709551616`, 1),
		strings.Replace(golden[1].line, `"ProcessId":3121`, `"ProcessId":4294967296`, 1),
		strings.Replace(golden[1].line, `"Name":""`, "\"Name\":\"a\tb\"", 1),
		golden[1].line[:len(golden[1].line)-1], golden[1].line + "}",
	} {
		var p Parser
		if err := p.Parse([]byte(line)); err == nil {
			t.Errorf("Parse(%.80s) accepted it as %+v", line, p.Marker)
		}
	}
}

// agree holds the quick path to the strict one, and both to encoding/json.
func agree(t testing.TB, line []byte) {
	var quick, strict Parser
	ok := quick.quick(line)
	err := strict.strict(line)
	if ok && err != nil {
		t.Fatalf("quick accepts %q, strict says %v", line, err)
	}

	if ok {
		if d := cmp.Diff(strict.Marker, quick.Marker, cmp.Comparer(bytes.Equal)); d != "" {
			t.Fatalf("%q: quick and strict differ (-strict +quick):\n%s", line, d)
		}
	}

	if err == nil && !json.Valid(line) {
		t.Fatalf("accepted %q, which is no JSON", line)
	}

	if err == nil && strict.Marker.Kind == KindMarker {
		var again Parser
		out := Append(nil, &strict.Marker)
		if err := again.Parse(out); err != nil {
			t.Fatalf("%q written as %q: %v", line, out, err)
		}

		if d := cmp.Diff(strict.Marker, again.Marker, cmp.Comparer(bytes.Equal)); d != "" {
			t.Fatalf("%q written as %q reads differently (-first +second):\n%s", line, out, d)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.line))
	}

	f.Fuzz(func(t *testing.T, line []byte) { agree(t, line) })
}

func TestParse_QuickAgreesWithStrict(t *testing.T) {
	text := rapid.StringMatching(`[ -~\t"\\<>&é\x{2028}\x{0}]{0,20}`)
	rapid.Check(t, func(t *rapid.T) {
		m := Marker{
			Kind: 1, Flag: rapid.SampledFrom([]uint32{1, 2, 4, 8, 16, 32, 99}).Draw(t, "flag"), Source: rapid.Uint32Range(0, 2).Draw(t, "side"),
			Timestamp: rapid.Uint64().Draw(t, "ts"), ID: rapid.Uint64().Draw(t, "id"), Process: rapid.Uint32().Draw(t, "pid"),
			Name: []byte(text.Draw(t, "name")), Domain: []byte(text.Draw(t, "domain")),
		}
		line := Append(nil, &m)
		var p Parser
		if err := p.Parse(line); err != nil {
			t.Fatalf("Parse(%q): %v", line, err)
		}

		if d := cmp.Diff(m, p.Marker, cmp.Comparer(bytes.Equal)); d != "" {
			t.Fatalf("%q (-written +read):\n%s", line, d)
		}

		name, err := json.Marshal(string(m.Name))
		if err != nil || !bytes.Contains(line, append([]byte(`"Name":`), name...)) {
			t.Fatalf("%q does not hold the name as encoding/json writes it: %s", line, name)
		}

		if n := len(line) - 1; n > 2 { // damage it
			line[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}

		var quick, strict Parser
		if quick.quick(line[:len(line)-1]) && strict.strict(line[:len(line)-1]) != nil {
			t.Fatalf("quick accepts %q, strict does not", line)
		}
	})
}

func TestParse_AllocatesNothing(t *testing.T) {
	var p Parser
	for _, i := range []int{0, 1, 2, 6} {
		line := []byte(golden[i].line)
		if n := testing.AllocsPerRun(100, func() {
			if p.Parse(line) != nil {
				t.Fatal("rejected")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", golden[i].name, n)
		}
	}
}

func TestClassify(t *testing.T) {
	step := func(n int64) record.Record { r := record.New(record.Step); r.Step = n; return r }
	other := func(name, group string) record.Record {
		r := record.New(record.Other)
		r.Name, r.Group = name, group
		return r
	}
	comm := func(op, raw, group string, peer int32, count int64, dtype string, size int64) record.Record {
		r := record.New(record.Communication)
		r.Op, r.OpRaw, r.Group, r.Peer, r.Count, r.Dtype, r.Bytes = op, raw, group, peer, count, dtype, size
		return r
	}
	for _, c := range []struct {
		name, domain string
		want         record.Record
	}{
		{"step 120", "default", step(120)},
		{"Train_STEP  7 of 9", "default", step(7)},
		{"step 120", "", step(120)},
		{"step", "default", other("step", "")},
		{"step x", "default", other("step x", "")},
		{"step -1", "default", other("step -1", "")},
		{"step 99999999999999999999", "default", other("step 99999999999999999999", "")},
		{"warm 3", "default", other("warm 3", "")},
		{"forward", "default", record.New(record.FP)},
		{"dataloader", "default", record.New(record.DataLoader)},
		{"save_checkpoint", "default", record.New(record.SaveCheckpoint)},
		{"backward", "default", other("backward", "")},
		{"NULL", "default", other("unnamed", "")},
		{"(null)", "(null)", other("unnamed", "")},
		{"", "", other("unnamed", "")},
		{"evaluate", "mine", other("evaluate", "mine")},
		{`{"streamId": "55","count": "4194304","dataType": "bfp16","groupName": "g","opName": "HcclAllreduce"}`, "communication", comm("allreduce", "HcclAllreduce", "g", -1, 4194304, "bf16", 8388608)},
		{`{"opName":"hcclsend","destRank":"3","srcRank":"1","count":"8","dataType":"na","groupName":"p"}`, "communication", comm("send", "hcclsend", "p", 3, 8, "", 0)},
		{`{"opName":"HcclRecv","destRank":"3","srcRank":"1","count":"8","dataType":"fp32","groupName":"p"}`, "communication", comm("recv", "HcclRecv", "p", 1, 8, "fp32", 32)},
		{`{"opName":"HcclAlltoAllV","count":12,"dataType":"int8","groupName":"\u0070q","peers":["a"]}`, "communication", comm("alltoall", "HcclAlltoAllV", "pq", -1, 12, "int8", 12)},
		{`{"opName":"HcclReduceScatter","count":"9223372036854775807","dataType":"fp64","groupName":""}`, "communication", comm("reducescatter", "HcclReduceScatter", "", -1, 9223372036854775807, "fp64", 0)},
		{"HcclBarrier", "communication", comm("barrier", "HcclBarrier", "", -1, 0, "", 0)},
		{"", "communication", comm("", "", "", -1, 0, "", 0)},
	} {
		var p Pairer
		if d := cmp.Diff(c.want, p.classify([]byte(c.name), []byte(c.domain))); d != "" {
			t.Errorf("classify(%q, %q) (-want +got):\n%s", c.name, c.domain, d)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(`{"opName":"HcclSend","count":"1"}`, "communication")
	f.Add("step 12", "default")
	f.Fuzz(func(t *testing.T, name, domain string) {
		var p Pairer
		r := p.classify([]byte(name), []byte(domain))
		if r.Kind == record.Other && r.Name == "" || r.Kind == record.Step && r.Step < 0 {
			t.Fatalf("classify(%q, %q) = %+v", name, domain, r)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, i := range []int{0, 1, 6} {
		line := []byte(golden[i].line)
		b.Run(strings.ReplaceAll(golden[i].name, " ", "-"), func(b *testing.B) {
			var p Parser
			b.SetBytes(int64(len(line)) + 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleAppend() {
	m := Marker{Kind: KindMarker, Flag: Start, Timestamp: 5, ID: 1, Process: 7, Thread: 7, Device: 7, Stream: 7, Name: []byte("a<b"), Domain: []byte(DefaultDomain)}
	fmt.Print(string(Append(nil, &m)))
	// Output: {"Kind":1,"Flag":2,"SourceKind":0,"Timestamp":5,"Id":1,"MsptiObjectId":{"Pt":{"ProcessId":7,"ThreadId":7},"Ds":{"DeviceId":7,"StreamId":7}},"Name":"a\u003cb","Domain":"default"}
}
