package switchboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/laggard-dev/laggard/collector/trace"
)

// The service laggard.Followers stands beside TaskD's, which has no way back: by
// Tell an agent says which recorders follow the switch on its node, by List a
// person asks for all of a job. Both carry JSON.
const (
	followersService = "laggard.Followers"
	tellMethod       = "/" + followersService + "/Tell"
	listMethod       = "/" + followersService + "/List"

	// tellEvery is how often an agent looks at its recorders; it tells what has
	// changed at once and the rest every tellAgain, for the server may have been
	// started again and know nothing.
	tellEvery = time.Second
	tellAgain = 10 * time.Second
	// forgetAfter is when a node that tells nothing any more is left out.
	forgetAfter = 3 * tellAgain
	// maxNodes bounds what callers can make a server remember of a job.
	maxNodes = 1 << 14
	// listLimit bounds the answer of List, bytes: 100,000 recorders.
	listLimit = 64 << 20
)

// followers are the recorders of one node that follow a job's switch: Tell's message.
type followers struct {
	Job       string           `json:"job"`
	Node      string           `json:"node"`
	Recorders []trace.Recorder `json:"recorders"`
	told      time.Time
}

// tell takes what an agent says, in the place of what it said before. Nodes that have been
// silent make room for a new one.
func (b *Board) tell(f followers) error {
	if _, _, ok := b.here(f.Job); !ok {
		return noJob(f.Job)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobLocked(f.Job)
	if j.followers == nil {
		j.followers = map[string]followers{}
	}

	if _, known := j.followers[f.Node]; !known && len(j.followers) >= maxNodes {
		maps.DeleteFunc(j.followers, func(_ string, old followers) bool { return time.Since(old.told) > forgetAfter })
	}

	if _, known := j.followers[f.Node]; !known && len(j.followers) >= maxNodes {
		return fmt.Errorf("job %s: more than %d nodes", f.Job, maxNodes)
	}

	f.told = time.Now()
	j.followers[f.Node] = f
	return nil
}

// list returns the recorders of a job: those here, and those that other agents told
// of.
func (b *Board) list(job string) []trace.Recorder {
	out := []trace.Recorder{}
	add := func(node string, recorders []trace.Recorder) {
		for _, r := range recorders {
			r.Node = node
			out = append(out, r)
		}
	}
	add(b.o.Node, b.recorders(job))
	b.mu.Lock()
	if j := b.jobs[job]; j != nil {
		for node, f := range j.followers {
			if time.Since(f.told) <= forgetAfter {
				add(node, f.Recorders)
			}
		}
	}

	b.mu.Unlock()
	slices.SortFunc(out, func(a, b trace.Recorder) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID)) })
	return out
}

// followersDesc describes the service to gRPC.
var followersDesc = grpc.ServiceDesc{
	ServiceName: followersService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Tell", Handler: handler(func(b *Board, in []byte) ([]byte, error) {
			var f followers
			if err := json.Unmarshal(in, &f); err != nil {
				return nil, fmt.Errorf("tell followers: %w", err)
			}

			f.Job = b.ofCaller(f.Job)
			return nil, b.tell(f)
		})},
		{MethodName: "List", Handler: handler(func(b *Board, in []byte) ([]byte, error) {
			return json.Marshal(b.list(b.ofCaller(string(in))))
		})},
	},
}

// handler makes a gRPC handler of a function from bytes to bytes. The messages are
// google.protobuf.BytesValue, so that the service needs no generated code.
func handler(f func(*Board, []byte) ([]byte, error)) grpc.MethodHandler {
	return func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.BytesValue{}
		if err := decode(in); err != nil {
			return nil, err
		}

		out, err := f(srv.(*Board), in.GetValue())
		if err != nil {
			return nil, err
		}

		return wrapperspb.Bytes(out), nil
	}
}

// Followers asks a server for the recorders of a job and what each of them follows.
func Followers(ctx context.Context, conn grpc.ClientConnInterface, job string) ([]trace.Recorder, error) {
	out := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, listMethod, wrapperspb.Bytes([]byte(job)), out, grpc.MaxCallRecvMsgSize(listLimit)); err != nil {
		return nil, err
	}

	var recorders []trace.Recorder
	if err := json.Unmarshal(out.GetValue(), &recorders); err != nil {
		return nil, fmt.Errorf("list followers of %s: %w", job, err)
	}

	return recorders, nil
}

// report tells the server of this node's recorders until ctx ends. A server that is
// away, or too old to know the service, is told again later.
func (s *Subscriber) report(ctx context.Context, conn grpc.ClientConnInterface) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var said string
	var at time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		text, err := json.Marshal(followers{Job: s.Job, Node: s.Board.o.Node, Recorders: s.Board.recorders(s.Board.ofCaller(s.Job))})
		if err != nil || string(text) == said && time.Since(at) < tellAgain {
			continue
		}

		if conn.Invoke(ctx, tellMethod, wrapperspb.Bytes(text), &wrapperspb.BytesValue{}) == nil {
			said, at = string(text), time.Now()
		}
	}
}
