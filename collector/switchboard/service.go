package switchboard

import (
	"context"
	"fmt"
	"strings"

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

// Caller is the key of gRPC metadata by which a program says who it is: what it
// switches holds here alone, is not passed on to subscribers, and Get names it in
// its answer's header until somebody else speaks.
const Caller = "laggard-caller"

// Register adds the services to a server: TaskD's, and ours for acknowledgements.
func (b *Board) Register(s grpc.ServiceRegistrar) {
	tracepb.RegisterTrainingDataTraceServer(s, b)
	s.RegisterService(&followersDesc, b)
}

// checkName takes a namespaced name apart.
func checkName(name string) error {
	namespace, job, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || job == "" || strings.Contains(job, "/") {
		return fmt.Errorf("jobNsName %q: want <namespace>/<job>", name)
	}

	return nil
}

// ModifyTrainingDataTraceSwitch switches a job. When it returns, the recorders that are here
// have been told; each acts on it from its next look at the word on.
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

	if err := b.set(b.ofCaller(r.GetJobNsName()), state, by); err != nil {
		return nil, err
	}

	return answer(OK, "%s: %s", r.GetJobNsName(), state)
}

// GetTrainingDataTraceSwitch tells a job's switch: what the recorders here are told, which is
// not what subscribers were told when a Caller spoke last.
func (b *Board) GetTrainingDataTraceSwitch(ctx context.Context, r *tracepb.DataStatusReq) (*tracepb.DataStatusRes, error) {
	if err := checkName(r.GetJobNsName()); err != nil {
		return &tracepb.DataStatusRes{Code: badParameter, Message: err.Error()}, nil
	}

	state, by, ok := b.here(b.ofCaller(r.GetJobNsName()))
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
	name := b.ofCaller(r.GetJobId())
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

// noJob is the gRPC error for a job that is not known: callers try again after it.
func noJob(name string) error { return status.Errorf(codes.NotFound, "job %q: %v", name, errNoJob) }

// answerOf is the answer to who asks for a switch, and what subscribers are sent.
func answerOf(s trace.State) *tracepb.DataStatusRes {
	return &tracepb.DataStatusRes{Code: OK, Message: s.String(), ProfilingSwitch: Switch(s.Words())}
}

// Switch returns TaskD's five words as its gRPC service has them.
func Switch(w trace.Words) *tracepb.ProfilingSwitch {
	return &tracepb.ProfilingSwitch{
		CommunicationOperator: w.CommunicationOperator, Step: w.Step, SaveCheckpoint: w.SaveCheckpoint, FP: w.FP, DataLoader: w.DataLoader,
	}
}

// wordsOf takes the five words out of a message; a missing one is "", which Words.State
// refuses.
func wordsOf(p *tracepb.ProfilingSwitch) trace.Words {
	return trace.Words{
		CommunicationOperator: p.GetCommunicationOperator(), Step: p.GetStep(), SaveCheckpoint: p.GetSaveCheckpoint(),
		FP: p.GetFP(), DataLoader: p.GetDataLoader(),
	}
}
