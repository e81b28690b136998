package depth

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"gopkg.in/yaml.v3"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// OfPods is the word of Agents.Where that asks the cluster for the pods of a node.
const OfPods = "kubernetes"

// Agents is the Switch that calls the agents' switches over gRPC. An agent that does not
// answer within two seconds is an error for its node.
type Agents struct {
	// Where says where a node's agents listen: an address with {node} in it,
	// unix:PATH, a file of lines node: address, or OfPods.
	Where    string
	Endpoint *endpoint.Options
	API      health.API // for OfPods
}

// Check reads the list where Where is a file.
func (s *Agents) Check() error {
	if s.Where == OfPods || s.pattern() {
		return nil
	}

	_, err := s.listed()
	return err
}

// addresses returns where the switches of a node's agents listen.
func (s *Agents) addresses(ctx context.Context, node string) ([]string, error) {
	switch {
	case s.Where == OfPods:
		return s.pods(ctx, node)
	case s.pattern():
		return []string{strings.ReplaceAll(s.Where, "{node}", node)}, nil
	}

	list, err := s.listed()
	if err != nil {
		return nil, err
	}

	if list[node] == "" {
		return nil, fmt.Errorf("find the agent of node %s: %s does not name it", node, s.Where)
	}

	return []string{list[node]}, nil
}

// agentPort is the port of --listen.
const agentPort = "9611"

// pods asks the cluster for the addresses of the pods on a node that have an agent.
func (s *Agents) pods(ctx context.Context, node string) ([]string, error) {
	q := url.Values{"labelSelector": {"laggard/metrics=true"}, "fieldSelector": {"spec.nodeName=" + node + ",status.phase=Running"}}
	var list struct {
		Items []struct{ Status struct{ PodIP string } }
	}
	if err := s.API.Get(ctx, "/api/v1/pods?"+q.Encode(), &list); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}

	var at []string
	for _, p := range list.Items {
		if ip := p.Status.PodIP; ip != "" {
			at = append(at, net.JoinHostPort(ip, agentPort))
		}
	}

	return at, nil
}

// watchCaller names this program to the agents.
const watchCaller = "laggard-watch"

// switchTimeout bounds one call: suspicion must become depth within seconds, and
// a dead agent must not hold up the others for long.
const switchTimeout = 2 * time.Second

// Get implements Switch.
func (s *Agents) Get(ctx context.Context, job, node string) (all []Setting, err error) {
	err = s.each(ctx, job, node, func(_ context.Context, _ tracepb.TrainingDataTraceClient, _ string, set Setting) error {
		all = append(all, set)
		return nil
	})
	return all, err
}

// Set implements Switch.
func (s *Agents) Set(ctx context.Context, job, node string, communication bool) error {
	return s.each(ctx, job, node, func(ctx context.Context, c tracepb.TrainingDataTraceClient, name string, now Setting) error {
		// What is as wanted is left, and so is what a person has switched on: only ours is switched off.
		if now.Communication == communication || !communication && !now.Ours {
			return nil
		}

		// All five words go together: the light ones stay on.
		words := trace.State{Light: true, Communication: communication}.Words()
		r, err := c.ModifyTrainingDataTraceSwitch(ctx, &tracepb.DataTypeReq{JobNsName: name, ProfilingSwitch: switchboard.Switch(words)})
		if err == nil && r.GetCode() != switchboard.OK {
			err = fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
		}

		return err
	})
}

// each calls f for every agent of the node that knows the job, with what it is told
// now; an error where there is none.
func (s *Agents) each(ctx context.Context, job, node string, f func(context.Context, tracepb.TrainingDataTraceClient, string, Setting) error) error {
	at, err := s.addresses(ctx, node)
	if err != nil {
		return err
	}

	known := 0
	for _, address := range at {
		err := s.call(ctx, address, func(ctx context.Context, c tracepb.TrainingDataTraceClient) error {
			name := "default/" + job // an agent looks at the job alone
			set, ok, err := setting(ctx, c, name)
			if err != nil || !ok {
				return err
			}

			known++
			return f(ctx, c, name, set)
		})
		if err != nil {
			return fmt.Errorf("call agent %s: %w", address, err)
		}
	}

	if known == 0 {
		return fmt.Errorf("find the agent of job %s on node %s: none of %v has recorders of it", job, node, at)
	}

	return nil
}

// setting asks what the job is told; false where the agent doesn't know it.
func setting(ctx context.Context, c tracepb.TrainingDataTraceClient, name string) (set Setting, ok bool, err error) {
	var header metadata.MD
	r, err := c.GetTrainingDataTraceSwitch(ctx, &tracepb.DataStatusReq{JobNsName: name}, grpc.Header(&header))
	switch {
	case status.Code(err) == codes.NotFound:
		return set, false, nil
	case err != nil:
		return set, false, err
	case r.GetCode() != switchboard.OK:
		return set, false, fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
	}

	p := r.GetProfilingSwitch()
	return Setting{Light: p.GetStep() == "on", Communication: p.GetCommunicationOperator() == "on",
		Ours: slices.Equal(header.Get(switchboard.Caller), []string{watchCaller})}, true, nil
}

// call dials an agent, has f ask it, and hangs up: all within switchTimeout.
func (s *Agents) call(ctx context.Context, address string, f func(context.Context, tracepb.TrainingDataTraceClient) error) error {
	at, err := s.Endpoint.Parse(address)
	if err != nil {
		return err
	}

	conn, err := s.Endpoint.Dial(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, switchboard.Caller, watchCaller), switchTimeout)
	defer cancel()
	return f(ctx, tracepb.NewTrainingDataTraceClient(conn))
}

// pattern reports whether --agents is an address itself.
func (s *Agents) pattern() bool {
	return strings.Contains(s.Where, "{node}") || strings.HasPrefix(s.Where, "unix:")
}

// listed reads the file of addresses: it may change while we run.
func (s *Agents) listed() (map[string]string, error) {
	b, err := os.ReadFile(s.Where)
	if err != nil {
		return nil, fmt.Errorf("read --agents: %w; it is an address with {node} in it, a file, or the word kubernetes", err)
	}

	var list map[string]string
	if err := yaml.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read --agents %s: %w; want lines of node: host:port", s.Where, err)
	}

	return list, nil
}
