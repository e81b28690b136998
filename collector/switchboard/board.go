// Package switchboard serves the switch of jobs over gRPC: the service
// TrainingDataTrace, as ClusterD's clients call it, and the state behind it.
//
// Invariant: a state that was acknowledged with 200 has been handed to the
// recorders; a refused one changed nothing. A new subscriber gets the last value
// at once, then every change in order, so a client that was away misses nothing.
//
// Caveats: who breaks a rule is answered in-band (300), so that he sees the rule. A job
// that is not known (yet), and a fault, are gRPC errors, NotFound and Internal: TaskD's
// manager and ClusterD's clients try again after those, and after nothing else.
// Any number of clients may subscribe to a job; TaskD's own server knows one.
package switchboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// Codes of an answer, as TaskD has them.
const (
	OK           = 200
	badParameter = 300
)

// ErrNoJob is returned by Options.Apply when it knows no such job.
var ErrNoJob = errors.New("no such job here (yet): its first recorder makes it known")

// Options say what the board switches.
type Options struct {
	// Apply hands a job's state to its recorders. It must not keep the caller
	// waiting for them.
	Apply func(job string, s trace.State) error
	// State tells what a job's recorders are told now, by whomever; false when there
	// is no such job.
	State func(job string) (trace.State, bool)
	// Recorders lists the recorders of a job on this node; nil knows none.
	Recorders func(job string) []trace.Recorder
	// Name turns what a caller calls a job, without its namespace, into what Apply
	// and State call it: a job may be known by its uid too. nil takes it as it is.
	Name func(job string) string
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
		o.Name = func(job string) string { return job }
	}

	return &Board{o: o, jobs: map[string]*job{}}
}

// Register adds the services to a server: TaskD's, and ours for acknowledgements.
func (b *Board) Register(s grpc.ServiceRegistrar) {
	tracepb.RegisterTrainingDataTraceServer(s, b)
	s.RegisterService(&followersDesc, b)
}

// set switches a job for the Caller by.
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
	j.wake()
	return nil
}

// wake lets those go on who wait for the next value.
func (j *job) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// Told says that the recorders of a job, of every job when that is "", were told
// otherwise than through the board: it is again as Options.State says.
func (b *Board) Told(job string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, j := range b.jobs {
		if job != "" && name != job {
			continue
		}

		j.set, j.by = false, ""
		j.wake()
	}
}

// here returns what a job's recorders are told here, and by which Caller, "" when
// somebody else spoke last.
func (b *Board) here(name string) (s trace.State, by string, ok bool) {
	if s, ok = b.o.State(name); !ok {
		return s, "", false
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[name]; j != nil && j.by != "" && j.local == s {
		by = j.by
	}

	return s, by, true
}

func (b *Board) jobLocked(name string) *job {
	j := b.jobs[name]
	if j == nil {
		j = &job{changed: make(chan struct{})}
		b.jobs[name] = j
	}

	return j
}

// last returns the job's state, and what is closed at the next change; false: there is
// no such job.
func (b *Board) last(name string) (trace.State, <-chan struct{}, bool) {
	s, ok := b.o.State(name)
	if !ok { // it is not remembered: callers may ask for anything
		return s, nil, false
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobLocked(name)
	if j.set {
		s = j.state
	}

	return s, j.changed, true
}

// job returns the name that the recorders know for what a caller names.
func (b *Board) job(name string) string { return b.o.Name(name[strings.IndexByte(name, '/')+1:]) }

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
		return answer(badParameter, "%v", err)
	}

	if r.GetProfilingSwitch() == nil {
		return answer(badParameter, "profilingSwitch is missing: give all five words")
	}

	state, err := wordsOf(r.GetProfilingSwitch()).State()
	if err != nil {
		return answer(badParameter, "%v", err)
	}

	by := ""
	if v := metadata.ValueFromIncomingContext(ctx, Caller); len(v) > 0 {
		by = v[0]
	}

	switch err := b.set(b.job(r.GetJobNsName()), state, by); {
	case errors.Is(err, ErrNoJob):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}

	return answer(OK, "%s: %s", r.GetJobNsName(), state)
}

// GetTrainingDataTraceSwitch tells a job's switch.
func (b *Board) GetTrainingDataTraceSwitch(ctx context.Context, r *tracepb.DataStatusReq) (*tracepb.DataStatusRes, error) {
	if err := checkName(r.GetJobNsName()); err != nil {
		return &tracepb.DataStatusRes{Code: badParameter, Message: err.Error()}, nil
	}

	state, by, ok := b.here(b.job(r.GetJobNsName()))
	if !ok {
		return nil, noJob(r.GetJobNsName())
	}

	if by != "" {
		if err := grpc.SetHeader(ctx, metadata.Pairs(Caller, by)); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
	}

	return answerOf(state), nil
}

// SubscribeDataTraceSwitch sends a job's switch now and whenever it changes, until
// the client goes. A job is its uid, its name, or <namespace>/<name>.
func (b *Board) SubscribeDataTraceSwitch(r *tracepb.ProfilingClientInfo, out grpc.ServerStreamingServer[tracepb.DataStatusRes]) error {
	name := b.job(r.GetJobId())
	var sent trace.State
	for first := true; ; {
		state, changed, ok := b.last(name)
		if !ok {
			return noJob(r.GetJobId())
		}

		if first || state != sent {
			if err := out.Send(answerOf(state)); err != nil {
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

func noJob(name string) error { return status.Errorf(codes.NotFound, "job %q: %v", name, ErrNoJob) }

func answerOf(s trace.State) *tracepb.DataStatusRes {
	return &tracepb.DataStatusRes{Code: OK, Message: s.String(), ProfilingSwitch: Switch(s.Words())}
}

// Switch returns TaskD's five words as its gRPC service has them.
func Switch(w trace.Words) *tracepb.ProfilingSwitch {
	return &tracepb.ProfilingSwitch{
		CommunicationOperator: w.CommunicationOperator, Step: w.Step, SaveCheckpoint: w.SaveCheckpoint, FP: w.FP, DataLoader: w.DataLoader,
	}
}

func wordsOf(p *tracepb.ProfilingSwitch) trace.Words {
	return trace.Words{
		CommunicationOperator: p.GetCommunicationOperator(), Step: p.GetStep(), SaveCheckpoint: p.GetSaveCheckpoint(),
		FP: p.GetFP(), DataLoader: p.GetDataLoader(),
	}
}
