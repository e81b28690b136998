package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"gopkg.in/yaml.v3"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// depthOptions are the flags of watch that record in depth where it looks.
type depthOptions struct {
	nodes   int
	agents  string
	longest time.Duration

	endpoint endpoint.Options
}

// podAgents is the word of --agents that asks the cluster for the pods of a node.
const podAgents = "kubernetes"

func (o *depthOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.nodes, "deepen", 0, "turn Communication on for suspect nodes and their peers, on so many nodes at most, and off again when decided; 0 switches nothing (needs --dry-run=false)")
	f.StringVar(&o.agents, "agents", "{node}:9611", "where agents' switches listen (their --listen): an address with {node} in it, unix:PATH (one agent here), a file of node: address lines (YAML or JSON), or kubernetes: port 9611 of the node's pods with the label laggard/metrics")
	f.DurationVar(&o.longest, "deepen-for", depth.DefaultLongest, "longest time that nodes are recorded in depth for one suspicion")
	o.endpoint.CallerFlags(f)
}

func (o *depthOptions) check() error {
	switch {
	case o.nodes < 0:
		return usage("--deepen %d: want a number of nodes, or 0 to switch nothing", o.nodes)
	case o.nodes == 0:
		return nil
	case o.longest <= 0:
		return usage("--deepen-for %v: must be more than 0", o.longest)
	case o.agents == "":
		return usage("--deepen needs --agents: where do the agents' switches listen?")
	}
	if err := o.endpoint.Check(); err != nil {
		return usage("%v", err)
	}
	if o.agents != podAgents && !o.pattern() {
		_, err := o.listed()
		return err
	}
	return nil
}

// pattern reports whether --agents is an address itself.
func (o *depthOptions) pattern() bool {
	return strings.Contains(o.agents, "{node}") || strings.HasPrefix(o.agents, "unix:")
}

// deepen adds adaptive depth.
func (w *observation) deepen(o *watch.Options) error {
	if w.o.depth.nodes == 0 {
		return nil
	}
	way := &agentSwitch{o: w.o.depth}
	if w.o.depth.agents == podAgents {
		ho, err := w.o.cluster.cluster()
		if err != nil {
			return err
		}
		way.api = health.API{Server: ho.Server, TokenFile: ho.TokenFile, Client: ho.Client}
	}
	do := depth.Options{Switch: way, Nodes: w.o.depth.nodes, Longest: w.o.depth.longest, DryRun: w.o.cluster.dryRun, Log: w.log}
	if w.o.state != "" {
		do.StateFile = filepath.Join(w.o.state, "depth.json")
	}
	d, err := depth.New(do)
	if err != nil {
		return err
	}
	w.depth = d
	w.beside = append(w.beside, d.Run)
	o.Observers = append(o.Observers, func(_ context.Context, v *verdict.Verdict, _ []watch.Change) { d.Observe(v, w.watcher.Suspects(v.Job)) })
	return nil
}

// listed reads the file of addresses: it may change while we run.
func (o *depthOptions) listed() (map[string]string, error) {
	b, err := os.ReadFile(o.agents)
	if err != nil {
		return nil, fmt.Errorf("read --agents: %w; it is an address with {node} in it, a file, or the word kubernetes", err)
	}
	var list map[string]string
	if err := yaml.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read --agents %s: %w; want lines of node: host:port", o.agents, err)
	}
	return list, nil
}

// agentSwitch is the way to the agents' switches over gRPC.
type agentSwitch struct {
	o   depthOptions
	api health.API // of podAgents
}

// addresses returns where the switches of a node's agents listen.
func (s *agentSwitch) addresses(ctx context.Context, node string) ([]string, error) {
	switch {
	case s.o.agents == podAgents:
		return s.pods(ctx, node)
	case s.o.pattern():
		return []string{strings.ReplaceAll(s.o.agents, "{node}", node)}, nil
	}
	list, err := s.o.listed()
	if err != nil {
		return nil, err
	}
	if list[node] == "" {
		return nil, fmt.Errorf("find the agent of node %s: %s does not name it", node, s.o.agents)
	}
	return []string{list[node]}, nil
}

// agentPort is the port of --listen.
const agentPort = "9611"

// pods asks the cluster for the addresses of the pods on a node that have an agent.
func (s *agentSwitch) pods(ctx context.Context, node string) ([]string, error) {
	q := url.Values{"labelSelector": {"laggard/metrics=true"}, "fieldSelector": {"spec.nodeName=" + node + ",status.phase=Running"}}
	body, err := s.api.Get(ctx, "/api/v1/pods?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	var list struct {
		Items []struct{ Status struct{ PodIP string } }
	}
	if err := json.Unmarshal(body, &list); err != nil {
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

// Get implements depth.Switch.
func (s *agentSwitch) Get(ctx context.Context, job, node string) (all []depth.Setting, err error) {
	err = s.each(ctx, job, node, func(_ client, _ string, set depth.Setting) error {
		all = append(all, set)
		return nil
	})
	return all, err
}

// Set implements depth.Switch.
func (s *agentSwitch) Set(ctx context.Context, job, node string, communication bool) error {
	return s.each(ctx, job, node, func(c client, name string, now depth.Setting) error {
		if now.Communication == communication || !communication && !now.Ours {
			return nil
		}
		words := trace.State{Light: true, Communication: communication}.Words()
		r, err := c.ModifyTrainingDataTraceSwitch(c.ctx, &tracepb.DataTypeReq{JobNsName: name, ProfilingSwitch: profilingSwitch(words)})
		if err == nil && r.GetCode() != switchboard.OK {
			err = fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
		}
		return err
	})
}

// client is a connection to one agent, for one call.
type client struct {
	tracepb.TrainingDataTraceClient
	ctx context.Context
}

// each calls f for every agent of the node that knows the job, with what it is told
// now; an error where there is none.
func (s *agentSwitch) each(ctx context.Context, job, node string, f func(client, string, depth.Setting) error) error {
	at, err := s.addresses(ctx, node)
	if err != nil {
		return err
	}
	known := 0
	for _, address := range at {
		err := s.call(ctx, address, func(c client) error {
			name := "default/" + job // an agent looks at the job alone
			set, ok, err := c.setting(name)
			if err != nil || !ok {
				return err
			}
			known++
			return f(c, name, set)
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
func (c client) setting(name string) (set depth.Setting, ok bool, err error) {
	var header metadata.MD
	r, err := c.GetTrainingDataTraceSwitch(c.ctx, &tracepb.DataStatusReq{JobNsName: name}, grpc.Header(&header))
	switch {
	case status.Code(err) == codes.NotFound:
		return set, false, nil
	case err != nil:
		return set, false, err
	case r.GetCode() != switchboard.OK:
		return set, false, fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
	}
	p := r.GetProfilingSwitch()
	return depth.Setting{Light: p.GetStep() == "on", Communication: p.GetCommunicationOperator() == "on",
		Ours: slices.Equal(header.Get(switchboard.Caller), []string{watchCaller})}, true, nil
}

func (s *agentSwitch) call(ctx context.Context, address string, f func(client) error) error {
	at, err := s.o.endpoint.Parse(address)
	if err != nil {
		return err
	}
	conn, err := s.o.endpoint.Dial(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, switchboard.Caller, watchCaller), switchTimeout)
	defer cancel()
	return f(client{tracepb.NewTrainingDataTraceClient(conn), ctx})
}
