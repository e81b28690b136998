// Package taskd_test tries the Python package taskd against a manager on grpc-go: the
// client is written by hand, so the other side must not be.
package taskd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/taskpb"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

const interpreter = "/usr/bin/python3"

// patience bounds one wait, on a machine as busy as can be.
const patience = 3 * time.Minute

// manager is a TaskD manager and the pod's proxy in one.
type manager struct {
	taskpb.UnimplementedTaskNetServer
	server  *grpc.Server
	address string
	refuse  int // REGISTER messages to refuse first

	events chan string
	send   chan *taskpb.Message
}

// newManager serves at an address, "" for a free one.
func newManager(t *testing.T, address string) *manager {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}

	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}

	m := &manager{server: grpc.NewServer(), address: l.Addr().String(), events: make(chan string, 256), send: make(chan *taskpb.Message)}
	taskpb.RegisterTaskNetServer(m.server, m)
	done := make(chan error, 1)
	go func() { done <- m.server.Serve(l) }()
	t.Cleanup(func() {
		m.server.Stop()
		<-done
	})
	return m
}

func (m *manager) note(format string, args ...any) { m.events <- fmt.Sprintf(format, args...) }

func place(p *taskpb.Position) string {
	return p.GetRole() + "/" + p.GetServerRank() + "/" + p.GetProcessRank()
}

func (m *manager) Register(_ context.Context, r *taskpb.RegisterReq) (*taskpb.Ack, error) {
	m.note("join %s", place(r.GetPos()))
	return &taskpb.Ack{Uuid: r.Uuid}, nil
}

func (m *manager) PathDiscovery(_ context.Context, r *taskpb.PathDiscoveryReq) (*taskpb.Ack, error) {
	m.note("path %s %s %d", place(r.GetProxyPos()), place(r.GetPath()[0]), len(r.GetPath()))
	return &taskpb.Ack{Uuid: r.Uuid}, nil
}

func (m *manager) TransferMessage(_ context.Context, msg *taskpb.Message) (*taskpb.Ack, error) {
	var body struct {
		Type string `json:"msg_type"`
		Code int    `json:"code"`
	}
	if err := json.Unmarshal([]byte(msg.Body), &body); err != nil {
		return nil, err
	}

	h := msg.GetHeader()
	if body.Code == 101 && m.refuse > 0 {
		m.refuse--
		m.note("refused")
		if m.refuse%2 == 0 {
			return nil, errors.New("not now")
		}

		return &taskpb.Ack{Uuid: h.Uuid, Code: 5001}, nil
	}

	m.note("%s %d %s>%s %s %v", body.Type, body.Code, place(h.Src), place(h.Dst), h.Mtype, h.Sync)
	return &taskpb.Ack{Uuid: h.Uuid}, nil
}

func (m *manager) InitServerDownStream(s taskpb.TaskNet_InitServerDownStreamServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	m.note("stream %v%v%v", md.Get("role"), md.Get("serverRank"), md.Get("processRank"))
	go func() {
		for {
			a, err := s.Recv()
			if err != nil {
				return
			}

			m.note("ack %s %d %s", a.Uuid, a.Code, place(a.Src))
		}
	}()
	for {
		select {
		case msg := <-m.send:
			if err := s.Send(msg); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// command sends an ACTION with a code.
func (m *manager) command(t *testing.T, code int) {
	t.Helper()
	msg := &taskpb.Message{
		Header: &taskpb.MessageHeader{Uuid: fmt.Sprint("c", code), Mtype: "default", Sync: true, CreateTime: time.Now().UnixMilli(),
			Src: &taskpb.Position{Role: "Mgr", ServerRank: "0", ProcessRank: "-1"}, Dst: &taskpb.Position{Role: "Worker", ServerRank: "2", ProcessRank: "5"}},
		Body: fmt.Sprintf(`{"msg_type":"ACTION","code":%d,"message":"","extension":{}}`, code),
	}
	select {
	case m.send <- msg:
	case <-time.After(patience):
		t.Fatal("nobody takes messages")
	}
}

// expect waits for the next event.
func (m *manager) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-m.events:
		if got != want {
			t.Fatalf("event %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no event, want %q", want)
	}
}

// joined expects what a worker does to join.
func (m *manager) joined(t *testing.T) {
	t.Helper()
	m.expect(t, "join Worker/2/5")
	m.expect(t, "path Worker/2/5 Worker/2/5 1")
}

const (
	registered = "REGISTER 101 Worker/2/5>Mgr/0/-1 default true"
	stream     = "stream [Worker][2][5]"
)

// events2 expects two events in any order: one on the stream, one in a call.
func (m *manager) expectBoth(t *testing.T, a, b string) {
	t.Helper()
	var got []string
	for range 2 {
		select {
		case e := <-m.events:
			got = append(got, e)
		case <-time.After(patience):
			t.Fatalf("got %q, want %q and %q", got, a, b)
		}
	}

	slices.Sort(got)
	want := []string{a, b}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// script is a training script adapted for TaskD, that ends when its stdin does.
const script = `
import sys
from taskd.api.taskd_worker_api import init_taskd_worker, start_taskd_worker, destroy_taskd_worker
assert init_taskd_worker(5, 5000, framework="pt") and start_taskd_worker()
import laggard
for line in sys.stdin:
    with laggard.step(int(line)):
        with laggard.span("FP"): pass
        with laggard.communication("HcclAllreduce", "dp"): pass
    print("stepped", flush=True)
assert destroy_taskd_worker()
`

// worker starts the script.
type worker struct {
	cmd    *exec.Cmd
	in     interface{ Write([]byte) (int, error) }
	close  func() error
	stderr bytes.Buffer
	run    string
}

func start(t *testing.T, env ...string) *worker {
	t.Helper()
	w := &worker{run: ringtest.Shared(t)}
	path, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}

	w.cmd = exec.Command(interpreter, "-B", "-c", script)
	w.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "LAGGARD_") }),
		append([]string{"PYTHONPATH=" + path, "LAGGARD_RUN=" + w.run, "RANK=5", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "WORLD_SIZE=6", "MINDX_TASK_ID=job-1",
			"LAGGARD_SWITCH_FILE=" + filepath.Join(t.TempDir(), "none")}, env...)...)
	w.cmd.Stderr = &w.stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	w.in, w.close = in, in.Close
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { w.cmd.Process.Kill() })
	return w
}

func (w *worker) end(t *testing.T) {
	t.Helper()
	w.close()
	if err := w.cmd.Wait(); err != nil {
		t.Fatalf("script: %v\n%s", err, w.stderr.String())
	}
}

// wanted returns the switch of the only recorder.
func (w *worker) wanted(t *testing.T) trace.State {
	t.Helper()
	all, err := trace.Recorders(w.run)
	if err != nil || len(all) != 1 {
		t.Fatalf("Recorders()=%+v, %v\n%s", all, err, w.stderr.String())
	}

	if all[0].Job != "job-1" || all[0].Rank != 5 {
		t.Fatalf("recorder %+v", all[0])
	}

	return all[0].Wanted
}

// TestWorkerObeysTheManager registers, obeys each code and reports what it did.
func TestWorkerObeysTheManager(t *testing.T) {
	m := newManager(t, "")
	w := start(t, "LAGGARD_TASKD_PROXY="+m.address)
	m.joined(t)
	m.expectBoth(t, stream, registered)
	if got := w.wanted(t); got != (trace.State{}) {
		t.Errorf("before a command: %v", got)
	}

	for _, c := range []struct {
		code   int
		status string
		want   trace.State
	}{
		{711, "1411", trace.On}, {710, "1410", trace.State{Light: true}}, {700, "1400", trace.State{}},
		{701, "1401", trace.State{Communication: true}}, {711, "1411", trace.On},
	} {
		m.command(t, c.code)
		m.expectBoth(t, fmt.Sprintf("ack c%d 0 Worker/2/5", c.code), "STATUS "+c.status+" Worker/2/5>Mgr/0/-1 default true")
		if got := w.wanted(t); got != c.want {
			t.Errorf("after %d: %v, want %v", c.code, got, c.want)
		}
	}

	m.command(t, 999) // not ours: acknowledged and ignored
	m.expect(t, "ack c999 0 Worker/2/5")
	if got := w.wanted(t); got != trace.On {
		t.Errorf("after 999: %v", got)
	}

	fmt.Fprintln(w.in, 7)
	w.end(t)
	if n := strings.Count(w.stderr.String(), "\n"); n != 3 || !strings.Contains(w.stderr.String(), "registered with TaskD's manager") {
		t.Errorf("said %q", w.stderr.String())
	}

	names, err := ring.Names(w.run)
	if err != nil || len(names) != 1 {
		t.Errorf("Names()=%v, %v", names, err)
	}
}

// TestManagerBesideAgent: who spoke last wins, the manager or the agent, and the manager is
// told what is recorded whoever spoke. An agent doesn't say its word again: not with the
// next pass, and not when it is restarted.
func TestManagerBesideAgent(t *testing.T) {
	m := newManager(t, "")
	w := start(t, "LAGGARD_TASKD_PROXY="+m.address)
	m.joined(t)
	m.expectBoth(t, stream, registered)
	status := func(code int) string { return fmt.Sprintf("STATUS %d Worker/2/5>Mgr/0/-1 default true", code) }
	var memory ringtest.Memory
	agent := func() (*switchboard.Board, *drain.Drain) {
		t.Helper()
		s := switchboard.New(switchboard.Options{RunDir: w.run})
		d, err := drain.New(drain.Options{RunDir: w.run, Wanted: s.Wanted, Open: func(record.Meta) (drain.Writer, error) { return &memory, nil }})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { d.Close() })
		if err := s.Follow("", trace.On); err != nil { // a switch file that says on
			t.Fatal(err)
		}

		return s, d
	}
	pass := func(d *drain.Drain, want trace.State) {
		t.Helper()
		for range 3 {
			if _, err := d.Pass(); err != nil {
				t.Fatal(err)
			}
		}

		if got := w.wanted(t); got != want {
			t.Fatalf("the process is told %v, want %v", got, want)
		}
	}
	_, drains := agent()
	pass(drains, trace.On)
	m.command(t, 700)
	m.expectBoth(t, "ack c700 0 Worker/2/5", status(1400))
	pass(drains, trace.State{})
	drains.Close()
	speaks, drains := agent()
	pass(drains, trace.State{})
	light := &tracepb.ProfilingSwitch{CommunicationOperator: "off", Step: "on", SaveCheckpoint: "on", FP: "on", DataLoader: "on"}
	if r, err := speaks.ModifyTrainingDataTraceSwitch(t.Context(), &tracepb.DataTypeReq{JobNsName: "ns/job-1", ProfilingSwitch: light}); err != nil || r.GetCode() != switchboard.OK {
		t.Fatal(r, err)
	}

	m.expect(t, status(1410)) // nobody commanded it
	m.command(t, 711)
	m.expectBoth(t, "ack c711 0 Worker/2/5", status(1411))
	pass(drains, trace.On)
	drains.Close()
	w.end(t)
}

// TestWorkerAfterTheManagerReturns registers anew and reports its status again.
func TestWorkerAfterTheManagerReturns(t *testing.T) {
	m := newManager(t, "")
	w := start(t, "LAGGARD_TASKD_PROXY="+m.address)
	m.joined(t)
	m.expectBoth(t, stream, registered)
	m.command(t, 710)
	m.expectBoth(t, "ack c710 0 Worker/2/5", "STATUS 1410 Worker/2/5>Mgr/0/-1 default true")
	m.server.Stop()
	again := newManager(t, m.address)
	again.joined(t)
	again.expectBoth(t, stream, registered)
	again.expect(t, "STATUS 1410 Worker/2/5>Mgr/0/-1 default true")
	if got := w.wanted(t); got != (trace.State{Light: true}) {
		t.Errorf("after the manager came back: %v", got)
	}

	again.command(t, 700)
	again.expectBoth(t, "ack c700 0 Worker/2/5", "STATUS 1400 Worker/2/5>Mgr/0/-1 default true")
	w.end(t)
}

// TestWorkerTriesAgain is refused twice, once by an error and once by a code, and the
// switch file commands meanwhile.
func TestWorkerTriesAgain(t *testing.T) {
	m := newManager(t, "")
	m.refuse = 2
	file := filepath.Join(t.TempDir(), "profilingSwitch")
	if err := os.WriteFile(file, []byte(`{"CommunicationOperator":"off","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`), 0o644); err != nil {
		t.Fatal(err)
	}

	w := start(t, "LAGGARD_TASKD_PROXY="+m.address, "LAGGARD_SWITCH_FILE="+file)
	m.joined(t)
	m.expectBoth(t, stream, "refused")
	if got := w.wanted(t); got != (trace.State{Light: true}) {
		t.Errorf("by the file: %v", got)
	}

	m.expect(t, "refused")
	m.expect(t, registered)
	m.command(t, 700)
	m.expectBoth(t, "ack c700 0 Worker/2/5", "STATUS 1400 Worker/2/5>Mgr/0/-1 default true")
	w.end(t)
}

// TestSwitchFile holds the worker's reading of a switch file to the agent's.
func TestSwitchFile(t *testing.T) {
	const off = `"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"`
	texts := []string{
		``, `{}`, `{` + off + `}`, `{` + off + `,"Step":"on"}`, `{` + off + `,"Stpe":"on"}`, `{"CommunicationOperator":"off"}`,
		`{"Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`, `{"CommunicationOperator":"ON"}`, `{"Step":""}`, `{"Step":1}`, `{"FP":null}`,
		`{"FP":["on"]}`, `{"FP":{"a":"on"}}`, `null`, `[]`, `"on"`, `on`, `{` + off, `{` + off + `}x`, `{` + off + "}\n", "\t{" + off + " } ", `{"Step":"on",}`,
		`{"Step":"\u006fn","FP":"off"}`, `{"Step":"on","x":NaN}`, `{"Step":"on","x":1e999}`, "{\"Step\":\"o\x01n\"}", "{\"St\xffep\":\"on\"}", `{"Step":"off","Step":"on",` + off + `}`,
		`{'Step':'on'}`, "\ufeff{}", `{"step":"off"}`, `{"Communication":"off"}`, `{"Step":"on "}`, `{"Step":true}`, `{"x":-Infinity}`, `{"x":01}`,
	}
	for i := range 60 { // half-written files
		full := `{` + off + `}`
		texts = append(texts, full[:i*len(full)/60])
	}

	path, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(interpreter, "-B", "-c", `
import json, sys
from taskd.laggard_worker import switchfile
out = []
for text in json.load(sys.stdin):
    try:
        bits, complaint = switchfile.parse(bytes(text))
        out.append(bits + (4 if complaint else 0))
    except switchfile.Wrong:
        out.append(-1)
json.dump(out, sys.stdout)
`)
	var raw [][]int // as numbers: not every text is UTF-8
	for _, s := range texts {
		b := make([]int, len(s))
		for i := range len(s) {
			b[i] = int(s[i])
		}

		raw = append(raw, b)
	}

	in, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}

	cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var got []int
	if err := json.Unmarshal(out, &got); err != nil || len(got) != len(texts) {
		t.Fatalf("%v: %s", err, out)
	}

	for i, s := range texts {
		want := -1
		if state, problems, err := trace.ParseFile([]byte(s)); err == nil {
			want = int(state.Bits())
			if problems != nil {
				want += 4
			}
		}

		if got[i] != want {
			t.Errorf("%q: %d, the agent reads %d", s, got[i], want)
		}
	}
}
