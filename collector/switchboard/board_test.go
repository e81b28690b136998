package switchboard

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin makes the ring folder of a recorder of a job, which is told s at start.
func begin(t *testing.T, run, job string, s trace.State) *ring.Process {
	t.Helper()
	id, err := ring.Self()
	if err != nil {
		t.Fatal(err)
	}

	names, err := ring.Names(run)
	if err != nil {
		t.Fatal(err)
	}

	id.Incarnation += record.ID(len(names)) // a process has one folder, but for tests
	texts := ring.NewStrings()
	text := texts.Intern(`{"job":"` + job + `","rank":0}`)
	p, err := ring.Create(run, id, texts, s.Bits())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Close)
	p.SetIdentity(text)
	return p
}

// told returns what a recorder is told.
func told(t *testing.T, p *ring.Process) trace.State {
	t.Helper()
	word, err := p.Wanted()
	if err != nil {
		t.Fatal(err)
	}

	return trace.FromBits(word)
}

// serve starts a board on loopback, with a recorder of the job "j1", all on, and returns
// a client of it.
func serve(t *testing.T) (*ring.Process, tracepb.TrainingDataTraceClient) {
	t.Helper()
	run := ringtest.Shared(t)
	p := begin(t, run, "j1", trace.On)
	return p, client(t, New(Options{RunDir: run}))
}

// client serves a board and returns a client of it.
func client(t *testing.T, b *Board) tracepb.TrainingDataTraceClient {
	t.Helper()
	return tracepb.NewTrainingDataTraceClient(connect(t, b))
}

// connect serves a board on loopback and returns a connection to it.
func connect(t *testing.T, b *Board, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := grpc.NewServer()
	b.Register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
	})
	return conn
}

func words(comm, light string) *tracepb.ProfilingSwitch {
	return &tracepb.ProfilingSwitch{CommunicationOperator: comm, Step: light, SaveCheckpoint: light, FP: light, DataLoader: light}
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestModifyCodes(t *testing.T) {
	p, c := serve(t)
	file := filepath.Join(t.TempDir(), "no-directory")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	broken := client(t, New(Options{RunDir: file, Seen: func() []string { return []string{"j1"} }}))
	mixed := words("off", "on")
	mixed.FP = "off"
	tests := []struct {
		name, job string
		words     *tracepb.ProfilingSwitch
		client    tracepb.TrainingDataTraceClient
		code      int32 // 0: a gRPC error
		message   string
	}{
		{"all off", "ns/j1", words("off", "off"), c, OK, "off"},
		{"light on", "ns/j1", words("off", "on"), c, OK, "Step,FP"},
		{"no namespace", "j1", words("on", "on"), c, badParameter, "<namespace>/<job>"},
		{"no words", "ns/j1", nil, c, badParameter, "all five words"},
		{"typo", "ns/j1", words("onn", "on"), c, badParameter, `did you mean "on"`},
		{"four apart", "ns/j1", mixed, c, badParameter, "switched together"},
		{"floor", "ns/j1", words("on", "off"), c, badParameter, "can't be off while"},
		{"unknown job", "ns/j2", words("on", "on"), c, 0, "code = NotFound desc = switch job j2: no such job"},
		{"recorders fail", "ns/j1", words("on", "on"), broken, 0, "code = Internal desc = switch job j1: switch to on: list run directory: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := told(t, p)
			got, err := tt.client.ModifyTrainingDataTraceSwitch(timeout(t), &tracepb.DataTypeReq{JobNsName: tt.job, ProfilingSwitch: tt.words})
			message := got.GetMessage()
			if err != nil {
				message = err.Error()
			}

			if (err == nil) != (tt.code != 0) || got.GetCode() != tt.code || !strings.Contains(message, tt.message) {
				t.Fatalf("answer %d %q, %v, want %d with %q", got.GetCode(), got.GetMessage(), err, tt.code, tt.message)
			}

			if after := told(t, p); tt.code != OK && after != before {
				t.Fatalf("a refused switch changed the state from %v to %v", before, after)
			}
		})
	}
}

func TestGetCodes(t *testing.T) {
	_, c := serve(t)
	for job, code := range map[string]int32{"ns/j1": OK, "ns/j2": 0, "j1": badParameter} {
		got, err := c.GetTrainingDataTraceSwitch(timeout(t), &tracepb.DataStatusReq{JobNsName: job})
		if got.GetCode() != code || code == 0 && status.Code(err) != codes.NotFound || code != 0 && err != nil {
			t.Errorf("Get(%s) = %v, %v, want code %d", job, got, err, code)
		}

		if code == OK && got.ProfilingSwitch.GetStep() != "on" {
			t.Errorf("Get(%s) = %v, want all on", job, got)
		}
	}
}

// TestSubscribeReplays: a subscriber gets the last value first, then each change,
// also one that comes back after it was away.
func TestSubscribeReplays(t *testing.T) {
	_, c := serve(t)
	modify := func(comm, light string) {
		t.Helper()
		got, err := c.ModifyTrainingDataTraceSwitch(timeout(t), &tracepb.DataTypeReq{JobNsName: "ns/j1", ProfilingSwitch: words(comm, light)})
		if err != nil || got.Code != OK {
			t.Fatalf("Modify = %v, %v", got, err)
		}
	}
	next := func(s grpc.ServerStreamingClient[tracepb.DataStatusRes], comm, light string) {
		t.Helper()
		got, err := s.Recv()
		if err != nil || got.ProfilingSwitch.GetCommunicationOperator() != comm || got.ProfilingSwitch.GetStep() != light {
			t.Fatalf("received %v, %v, want communication %s, light %s", got, err, comm, light)
		}
	}
	ctx, leave := context.WithCancel(timeout(t))
	first, err := c.SubscribeDataTraceSwitch(ctx, &tracepb.ProfilingClientInfo{JobId: "j1", Role: "agent"})
	if err != nil {
		t.Fatal(err)
	}

	second, err := c.SubscribeDataTraceSwitch(timeout(t), &tracepb.ProfilingClientInfo{JobId: "ns/j1", Role: "agent"})
	if err != nil {
		t.Fatal(err)
	}

	next(first, "on", "on")
	next(second, "on", "on")
	modify("off", "on")
	next(first, "off", "on")
	next(second, "off", "on")
	leave()
	modify("off", "off")
	next(second, "off", "off")
	again, err := c.SubscribeDataTraceSwitch(timeout(t), &tracepb.ProfilingClientInfo{JobId: "j1"})
	if err != nil {
		t.Fatal(err)
	}

	next(again, "off", "off")
}

// TestCaller: what a program that names itself switches holds here alone, and is
// its own until somebody else speaks, by call or otherwise.
func TestCaller(t *testing.T) {
	run := ringtest.Shared(t)
	p := begin(t, run, "j1", trace.State{Light: true})
	b := New(Options{RunDir: run})
	check := func(where string, want trace.State, by string) {
		t.Helper()
		if s, who, ok := b.here("j1"); s != want || who != by || !ok || told(t, p) != want {
			t.Fatalf("%s: %v by %q, recorders %v; want %v by %q", where, s, who, told(t, p), want, by)
		}
	}
	program := metadata.NewIncomingContext(context.Background(), metadata.Pairs(Caller, "watch"))
	modify := func(ctx context.Context, comm string) {
		t.Helper()
		got, err := b.ModifyTrainingDataTraceSwitch(ctx, &tracepb.DataTypeReq{JobNsName: "ns/j1", ProfilingSwitch: words(comm, "on")})
		if err != nil || got.Code != OK {
			t.Fatalf("Modify = %v, %v", got, err)
		}
	}
	check("nobody spoke", trace.State{Light: true}, "")
	_, changed, _ := b.last("j1")
	modify(program, "on")
	check("the program on", trace.On, "watch")
	if s, _, ok := b.last("j1"); s != (trace.State{Light: true}) || !ok {
		t.Fatalf("subscribers are told %v, %v: what is switched here alone", s, ok)
	}

	select {
	case <-changed:
		t.Fatal("subscribers are woken by what is switched here alone")
	default:
	}

	modify(context.Background(), "on")
	check("a person says the same", trace.On, "")
	modify(program, "off")
	check("the program off", trace.State{Light: true}, "watch")
	if err := b.Follow("j1", trace.On); err != nil {
		t.Fatal(err)
	}

	check("another agent on", trace.On, "")
}

// TestUpstreamClients: what TaskD's manager and FaultDiag-online's client send is taken as
// they send it. Both try again after a gRPC error alone: a job that is not there yet.
func TestUpstreamClients(t *testing.T) {
	const uid = "6f3a0c1e-5d0b-4b8e-9a55-0123456789ab"
	run := ringtest.Shared(t)
	b := New(Options{RunDir: run})
	c := client(t, b)
	subscribe := func(id string) (grpc.ServerStreamingClient[tracepb.DataStatusRes], *tracepb.DataStatusRes, error) {
		s, err := c.SubscribeDataTraceSwitch(timeout(t), &tracepb.ProfilingClientInfo{JobId: id, Role: "Mgr"})
		if err != nil {
			t.Fatal(err)
		}

		got, err := s.Recv()
		return s, got, err
	}
	for _, id := range []string{uid, "j1", "ns/j1", ""} {
		if _, got, err := subscribe(id); status.Code(err) != codes.NotFound {
			t.Errorf("job %q, not there yet: %v, %v", id, got, err)
		}
	}

	if _, err := c.ModifyTrainingDataTraceSwitch(timeout(t), &tracepb.DataTypeReq{JobNsName: "ns/j1", ProfilingSwitch: words("on", "on")}); err == nil {
		t.Error("a switch of a job that is not there yet is no error")
	}

	if n := len(b.jobs); n != 0 {
		t.Errorf("%d jobs that are not there are remembered", n)
	}

	begin(t, run, uid, trace.State{})
	if _, got, err := subscribe(uid); err != nil || got.ProfilingSwitch.GetStep() != "off" {
		t.Fatalf("once it is there: %v, %v", got, err)
	}

	b = New(Options{RunDir: run, Job: "ns/j1"})
	if _, ok := b.Wanted(uid); ok { // the drain tells whose ring it is
		t.Error("before anybody spoke something is wanted")
	}

	c = client(t, b)
	manager, got, err := subscribe(uid)
	if err != nil || got.ProfilingSwitch.GetStep() != "off" {
		t.Fatalf("by uid: %v, %v", got, err)
	}

	for _, tt := range []struct {
		call        string
		comm, light string
	}{
		{"start all profiling", "on", "on"},
		{"stop heavy profiling", "off", "on"},
		{"start heavy profiling", "on", "on"},
		{"stop all profiling", "off", "off"},
	} {
		a, err := c.ModifyTrainingDataTraceSwitch(timeout(t), &tracepb.DataTypeReq{JobNsName: "ns/j1", ProfilingSwitch: words(tt.comm, tt.light)})
		if err != nil || a.Code != OK {
			t.Fatalf("%s: %v, %v", tt.call, a, err)
		}

		got, err := manager.Recv()
		if err != nil || got.ProfilingSwitch.GetStep() != tt.light || got.ProfilingSwitch.GetCommunicationOperator() != tt.comm {
			t.Fatalf("%s: the manager is told %v, %v", tt.call, got, err)
		}
	}
}
