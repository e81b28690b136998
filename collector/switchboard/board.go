// Package switchboard serves the switch of jobs over gRPC: the service
// TrainingDataTrace, as ClusterD's clients call it, and the state behind it.
//
// Invariant: a state that was acknowledged with 200 has been handed to the
// recorders; a refused one changed nothing. A new subscriber gets the last value
// at once, then every change in order, so a client that was away misses nothing.
//
// Caveats: answers are in-band (200 ok, 300 bad parameter, 404 no such job, 500
// server fault) and never a gRPC error, so that a client sees the rule it broke.
// Any number of clients may subscribe to a job; TaskD's own server knows one.
package switchboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// Codes of an answer, as TaskD has them.
const (
	OK           = 200
	BadParameter = 300
	NotFound     = 404
	Fault        = 500
)

// ErrNoJob is returned by Options.Apply when it knows no such job: the caller is
// told 404.
var ErrNoJob = errors.New("no such job here")

// Options say what the board switches.
type Options struct {
	// Apply hands a job's state to its recorders. It must not keep the caller
	// waiting for them.
	Apply func(job string, s trace.State) error
	// State tells the state of a job that nobody has switched yet; false when
	// there is no such job.
	State func(job string) (trace.State, bool)
	// Recorders lists the recorders of a job on this node; nil knows none.
	Recorders func(job string) []trace.Recorder
	// Name turns a namespaced name into the job that Apply and State know; nil
	// takes what follows the slash.
	Name func(jobNsName string) string
}

// Board holds the switch of every job.
type Board struct {
	tracepb.UnimplementedTrainingDataTraceServer
	o Options

	mu   sync.Mutex
	jobs map[string]*job // guarded by mu
}

// Caller is the key of gRPC metadata by which a program says who it is: what it
// switches holds here alone, is not passed on to subscribers, and Get names it in
// its answer's header until somebody else speaks.
const Caller = "laggard-caller"

// job is one job's last value and who waits for the next.
type job struct {
	state   trace.State
	set     bool
	changed chan struct{} // closed when state changes

	followers map[string]followers // by node: what other agents told

	by    string // the Caller that spoke last, "" a person or another server
	local trace.State
}

// New returns a board on which nothing was switched yet.
func New(o Options) *Board {
	if o.Name == nil {
		o.Name = func(name string) string { return name[strings.IndexByte(name, '/')+1:] }
	}
	return &Board{o: o, jobs: map[string]*job{}}
}

// Register adds the services to a server: TaskD's, and ours for acknowledgements.
func (b *Board) Register(s grpc.ServiceRegistrar) {
	tracepb.RegisterTrainingDataTraceServer(s, b)
	s.RegisterService(&followersDesc, b)
}

// Set switches a job, as Modify does.
func (b *Board) Set(name string, s trace.State) error { return b.set(name, s, "") }

func (b *Board) set(name string, s trace.State, by string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if by != "" && !b.jobLocked(name).set {
		// What subscribers are told must not follow what is switched here alone.
		if old, ok := b.o.State(name); ok {
			j := b.jobLocked(name)
			j.state, j.set = old, true
		}
	}
	if err := b.o.Apply(name, s); err != nil {
		return fmt.Errorf("switch job %s: %w", name, err)
	}
	j := b.jobLocked(name)
	if j.by = by; by != "" {
		j.local = s
		return nil
	}
	if j.set && j.state == s {
		return nil
	}
	j.state, j.set = s, true
	close(j.changed)
	j.changed = make(chan struct{})
	return nil
}

// Told says that the recorders were told otherwise than through the board: every
// job is again as Options.State says.
func (b *Board) Told() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		j.set, j.by = false, ""
		close(j.changed)
		j.changed = make(chan struct{})
	}
}

// here returns what a job's recorders were told here, and by which Caller.
func (b *Board) here(name string) (s trace.State, by string, ok bool) {
	s, ok, _ = b.last(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobLocked(name); j.by != "" {
		return j.local, j.by, true
	}
	return s, "", ok
}

func (b *Board) jobLocked(name string) *job {
	j := b.jobs[name]
	if j == nil {
		j = &job{changed: make(chan struct{})}
		b.jobs[name] = j
	}
	return j
}

// last returns the job's state, whether there is one, and what is closed at the
// next change.
func (b *Board) last(name string) (trace.State, bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobLocked(name)
	if j.set {
		return j.state, true, j.changed
	}
	s, ok := b.o.State(name)
	return s, ok, j.changed
}

// checkName takes a namespaced name apart.
func checkName(name string) error {
	namespace, job, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || job == "" || strings.Contains(job, "/") {
		return fmt.Errorf("jobNsName %q: want <namespace>/<job>", name)
	}
	return nil
}

// ModifyTrainingDataTraceSwitch switches a job.
func (b *Board) ModifyTrainingDataTraceSwitch(ctx context.Context, r *tracepb.DataTypeReq) (*tracepb.DataTypeRes, error) {
	answer := func(code int32, format string, args ...any) (*tracepb.DataTypeRes, error) {
		return &tracepb.DataTypeRes{Code: code, Message: fmt.Sprintf(format, args...)}, nil
	}
	if err := checkName(r.GetJobNsName()); err != nil {
		return answer(BadParameter, "%v", err)
	}
	if r.GetProfilingSwitch() == nil {
		return answer(BadParameter, "profilingSwitch is missing: give all five words")
	}
	state, err := wordsOf(r.GetProfilingSwitch()).State()
	if err != nil {
		return answer(BadParameter, "%v", err)
	}
	by := ""
	if v := metadata.ValueFromIncomingContext(ctx, Caller); len(v) > 0 {
		by = v[0]
	}
	switch err := b.set(b.o.Name(r.GetJobNsName()), state, by); {
	case errors.Is(err, ErrNoJob):
		return answer(NotFound, "%v", err)
	case err != nil:
		return answer(Fault, "%v", err)
	}
	return answer(OK, "%s: %s", r.GetJobNsName(), state)
}

// GetTrainingDataTraceSwitch tells a job's switch.
func (b *Board) GetTrainingDataTraceSwitch(ctx context.Context, r *tracepb.DataStatusReq) (*tracepb.DataStatusRes, error) {
	if err := checkName(r.GetJobNsName()); err != nil {
		return &tracepb.DataStatusRes{Code: BadParameter, Message: err.Error()}, nil
	}
	state, by, ok := b.here(b.o.Name(r.GetJobNsName()))
	if !ok {
		return &tracepb.DataStatusRes{Code: NotFound, Message: fmt.Sprintf("job %s: %v", r.GetJobNsName(), ErrNoJob)}, nil
	}
	if by != "" {
		if err := grpc.SetHeader(ctx, metadata.Pairs(Caller, by)); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
	}
	return status(state), nil
}

// SubscribeDataTraceSwitch sends a job's switch now and whenever it changes, until
// the client goes.
func (b *Board) SubscribeDataTraceSwitch(r *tracepb.ProfilingClientInfo, out grpc.ServerStreamingServer[tracepb.DataStatusRes]) error {
	if r.GetJobId() == "" {
		return out.Send(&tracepb.DataStatusRes{Code: BadParameter, Message: "jobId is empty"})
	}
	name := r.GetJobId()
	if checkName(name) == nil {
		name = b.o.Name(name)
	}
	var sent trace.State
	for first := true; ; {
		state, ok, changed := b.last(name)
		if ok && (first || state != sent) {
			if err := out.Send(status(state)); err != nil {
				return err
			}
			first, sent = false, state
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		}
	}
}

func status(s trace.State) *tracepb.DataStatusRes {
	w := s.Words()
	return &tracepb.DataStatusRes{Code: OK, Message: s.String(), ProfilingSwitch: &tracepb.ProfilingSwitch{
		CommunicationOperator: w.CommunicationOperator, Step: w.Step, SaveCheckpoint: w.SaveCheckpoint, FP: w.FP, DataLoader: w.DataLoader,
	}}
}

func wordsOf(p *tracepb.ProfilingSwitch) trace.Words {
	return trace.Words{
		CommunicationOperator: p.GetCommunicationOperator(), Step: p.GetStep(), SaveCheckpoint: p.GetSaveCheckpoint(),
		FP: p.GetFP(), DataLoader: p.GetDataLoader(),
	}
}
