package mspti_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
)

// what is the answer to a name.
type what struct {
	Kind, Dtype, Peer, Count, Step int64
	Text, Group                    string
}

// classifier asks the C code, under the sanitizers, in a process of its own.
type classifier struct {
	in     io.WriteCloser
	out    io.Reader
	stderr bytes.Buffer
}

func newClassifier(t testing.TB) *classifier {
	t.Helper()
	cmd := exec.Command(filepath.Join(build(t), "classify"))
	c := &classifier{}
	cmd.Stderr = &c.stderr
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	if c.out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		c.in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("classify: %v\n%s", err, c.stderr.Bytes())
		}
	})
	return c
}

func (c *classifier) ask(t testing.TB, name, domain string, instant bool) (w what) {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(domain)))
	n := uint32(0)
	if instant {
		n = 1
	}

	b = append(append(binary.LittleEndian.AppendUint32(b, n), name...), domain...)
	_, err := c.in.Write(b)
	head := make([]byte, 40)
	text := func() string {
		var size [4]byte
		if _, e := io.ReadFull(c.out, size[:]); e != nil {
			err = e
			return ""
		}

		s := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, e := io.ReadFull(c.out, s); e != nil {
			err = e
		}

		return string(s)
	}
	if err == nil {
		_, err = io.ReadFull(c.out, head)
	}

	if err == nil {
		for i, p := range []*int64{&w.Kind, &w.Dtype, &w.Peer, &w.Count, &w.Step} {
			*p = int64(binary.LittleEndian.Uint64(head[8*i:]))
		}

		w.Text, w.Group = text(), text()
	}

	if err != nil {
		t.Fatalf("classify %q in %q: %v\n%s", name, domain, err, c.stderr.Bytes())
	}

	return w
}

// lines is what a reader of TaskD's lines makes of the same marker: a name goes into
// a line as it is, so that reading it takes one level of escapes away. false: the line
// would be none, or the two may differ.
func lines(name, domain string, instant bool) (what, bool) {
	comm := domain == marker.CommunicationDomain
	read := name
	if strings.Contains(name, `\`) {
		if !comm || !strings.HasPrefix(strings.ReplaceAll(name, " ", ""), `{\`) || json.Unmarshal([]byte(`"`+name+`"`), &read) != nil {
			return what{}, false
		}
	}

	if !utf8.ValidString(name) || !utf8.ValidString(domain) || strings.ContainsAny(name+domain+read, "\x00\ufffd") || len(name) > 1000 || len(domain) > 1000 {
		return what{}, false
	}

	var p marker.Pairer
	m := marker.Marker{Kind: marker.KindMarker, Flag: marker.Start, ID: 1, Timestamp: 10, Process: 1, Thread: 1, Name: []byte(read), Domain: []byte(domain)}
	if instant {
		m.Flag = marker.Instant
	}

	res := p.Add(&m, marker.Place{Segment: 1, Offset: 1})
	if !instant {
		end := marker.Marker{Kind: marker.KindMarker, Flag: marker.End, ID: 1, Timestamp: 20, Process: 1, Thread: 1}
		res = p.Add(&end, marker.Place{Segment: 1, Offset: 2})
	}

	if res.Range == nil {
		return what{}, false
	}

	r := &res.Range.Record
	w := what{Kind: int64(r.Kind), Dtype: int64(record.DtypeCode(r.Dtype)), Peer: int64(r.Peer), Count: r.Count, Step: r.Step, Group: r.Group, Text: r.Name}
	if r.Kind == record.Communication {
		w.Text = r.OpRaw
		if w.Text == "" {
			w.Text = r.Op
		}
	}

	return w, true
}

var names = []struct{ name, domain string }{
	{"step 120", "default"}, {"Train_Step 7 of 9", "default"}, {"STEP\t3", "default"}, {"step x", "default"}, {"step", "default"}, {"a 5 step", "default"},
	{"step 99999999999999999999", "default"}, {"step 9223372036854775807", "default"}, {"step -1", "default"},
	{"forward", "default"}, {"FORWARD", "default"}, {"dataloader", "default"}, {"save_checkpoint", "default"}, {"forward ", "default"},
	{"", "default"}, {"NULL", "default"}, {"(null)", ""}, {"evaluate", "mine"}, {"forward", "mine"}, {strings.Repeat("x", 254), "default"}, {strings.Repeat("y", 990), "d"},
	{`{\"streamId\": \"55\",\"count\": \"4194304\",\"dataType\": \"bfp16\",\"groupName\": \"10.0.0.7%eth0_60000_0\",\"opName\": \"HcclAllreduce\"}`, "communication"},
	{`{"opName":"HcclSend","destRank":"3","srcRank":"1","count":"7","dataType":"fp32","groupName":"pp"}`, "communication"},
	{`{"opName":"HcclRecv","destRank":"3","srcRank":"1","count":"7","dataType":"FP32","groupName":"pp"}`, "communication"},
	{`{"opName":"HcclBatchSendRecv","destRank":"3","srcRank":"1"}`, "communication"},
	{`{"count": 12, "opName": null, "extra": {"a":[1,true,{"b":"}"}]}, "groupName":"g\u00e9\ud83d\ude00"}`, "communication"},
	{`{"count":"12","count":"13"}`, "communication"}, {`{}`, "communication"}, {`{"a":1}x`, "communication"}, {`{"a":01}`, "communication"},
	{`{"opName":"a\nb"}`, "communication"}, {`{"opName":"unclosed`, "communication"}, {`{\"opName\":\"unclosed`, "communication"}, {`HcclBroadcast`, "communication"},
	{`{"opName":"x","dataType":"na","count":"-5"}`, "communication"}, {"", "communication"}, {"NULL", "communication"}, {`[1]`, "communication"},
	{` { "opName" : "HcclReduce" } `, "communication"}, {`{"opName":"x",}`, "communication"}, {`{"opName":1e5,"count":1.0}`, "communication"},
	{`{\"opName\": \"He said \\\"x\\\"\"}`, "communication"}, {strings.Repeat(`[`, 100), "communication"}, {`{"a":` + strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70) + `}`, "communication"},
}

// FuzzName holds the C code to the rules of the reader of TaskD's lines, and to its
// memory.
func FuzzName(f *testing.F) {
	for _, n := range names {
		f.Add(n.name, n.domain, false)
		f.Add(n.name, n.domain, true)
	}

	c := newClassifier(f)
	f.Fuzz(func(t *testing.T, name, domain string, instant bool) {
		if len(name) > 1<<16 || len(domain) > 1<<16 {
			return
		}

		got := c.ask(t, name, domain, instant)
		want, ok := lines(name, domain, instant)
		if !ok {
			return
		}

		if strings.Contains(name, "destRank") && strings.Contains(name, "srcRank") && record.BaseOp(got.Text) != "recv" {
			got.Peer, want.Peer = 0, 0 // which words are a receive: here by heart, there by rule
		}

		if strings.Count(name, "[")+strings.Count(name, "{") > 60 {
			return // the C code reads no deeper
		}

		if got != want {
			t.Fatalf("%q in %q (instant %v)\n got %+v\nwant %+v", name, domain, instant, got, want)
		}
	})
}
