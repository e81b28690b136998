package switchboard

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorders stands for the job's recorders: one job, "j1", that starts with all on.
type recorders struct {
	mu    sync.Mutex
	state trace.State
	fail  error
}

func (r *recorders) apply(job string, s trace.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job != "j1" {
		return ErrNoJob
	}
	if r.fail != nil {
		return r.fail
	}
	r.state = s
	return nil
}

func (r *recorders) read(job string) (trace.State, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, job == "j1"
}

// serve starts a board on loopback and returns a client of it.
func serve(t *testing.T) (*recorders, tracepb.TrainingDataTraceClient) {
	t.Helper()
	r := &recorders{state: trace.On}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	New(Options{Apply: r.apply, State: r.read}).Register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
	})
	return r, tracepb.NewTrainingDataTraceClient(conn)
}

func words(comm, light string) *tracepb.ProfilingSwitch {
	return &tracepb.ProfilingSwitch{CommunicationOperator: comm, Step: light, SaveCheckpoint: light, FP: light, DataLoader: light}
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestModifyCodes(t *testing.T) {
	r, c := serve(t)
	mixed := words("off", "on")
	mixed.FP = "off"
	tests := []struct {
		name, job string
		words     *tracepb.ProfilingSwitch
		fail      error
		code      int32
		message   string
	}{
		{"all off", "ns/j1", words("off", "off"), nil, OK, "off"},
		{"light on", "ns/j1", words("off", "on"), nil, OK, "Step,FP"},
		{"no namespace", "j1", words("on", "on"), nil, BadParameter, "<namespace>/<job>"},
		{"no words", "ns/j1", nil, nil, BadParameter, "all five words"},
		{"typo", "ns/j1", words("onn", "on"), nil, BadParameter, `did you mean "on"`},
		{"four apart", "ns/j1", mixed, nil, BadParameter, "switched together"},
		{"floor", "ns/j1", words("on", "off"), nil, BadParameter, "can't be off while"},
		{"unknown job", "ns/j2", words("on", "on"), nil, NotFound, "no such job"},
		{"recorders fail", "ns/j1", words("on", "on"), errors.New("tmpfs is gone"), Fault, "tmpfs is gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := r.read("j1")
			r.mu.Lock()
			r.fail = tt.fail
			r.mu.Unlock()
			got, err := c.ModifyTrainingDataTraceSwitch(timeout(t), &tracepb.DataTypeReq{JobNsName: tt.job, ProfilingSwitch: tt.words})
			if err != nil {
				t.Fatal(err)
			}
			if got.Code != tt.code || !strings.Contains(got.Message, tt.message) {
				t.Fatalf("answer %d %q, want %d with %q", got.Code, got.Message, tt.code, tt.message)
			}
			if after, _ := r.read("j1"); tt.code != OK && after != before {
				t.Fatalf("a refused switch changed the state from %v to %v", before, after)
			}
		})
	}
}

func TestGetCodes(t *testing.T) {
	_, c := serve(t)
	for job, code := range map[string]int32{"ns/j1": OK, "ns/j2": NotFound, "j1": BadParameter} {
		got, err := c.GetTrainingDataTraceSwitch(timeout(t), &tracepb.DataStatusReq{JobNsName: job})
		if err != nil || got.Code != code {
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
	r := &recorders{state: trace.State{Light: true}}
	b := New(Options{Apply: r.apply, State: r.read})
	check := func(where string, want trace.State, by string) {
		t.Helper()
		told, _ := r.read("j1")
		if s, who, ok := b.here("j1"); s != want || who != by || !ok || told != want {
			t.Fatalf("%s: %v by %q, recorders %v; want %v by %q", where, s, who, told, want, by)
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
	_, _, changed := b.last("j1")
	modify(program, "on")
	check("the program on", trace.On, "watch")
	if s, ok, _ := b.last("j1"); s != (trace.State{Light: true}) || !ok {
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
	r.state = trace.On // by file
	b.Told()
	check("by file", trace.On, "")
}
