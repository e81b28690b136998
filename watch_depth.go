package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"gopkg.in/yaml.v3"

	"laggard/analyzer/watch"
	"laggard/analyzer/watch/depth"
	"laggard/collector/switchboard"
	"laggard/collector/trace"
	"laggard/schemas/tracepb"
	"laggard/schemas/verdict"
)

// depthOptions are the flags of watch that record in depth where it looks.
type depthOptions struct {
	nodes   int
	agents  string
	longest time.Duration
}

func (o *depthOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.nodes, "deepen", 0, "turn Communication on for suspect nodes and their peers, on so many nodes at most, and off again when decided; 0 switches nothing (needs --dry-run=false)")
	f.StringVar(&o.agents, "agents", "{node}:9611", "where agents' switches listen (their --listen): an address with {node} in it, or a file of node: address lines (YAML or JSON)")
	f.DurationVar(&o.longest, "deepen-for", depth.DefaultLongest, "longest time that nodes are recorded in depth for one suspicion")
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
	if !strings.Contains(o.agents, "{node}") {
		_, err := o.listed()
		return err
	}
	return nil
}

// deepen adds adaptive depth.
func (w *observation) deepen(o *watch.Options) error {
	if w.o.depth.nodes == 0 {
		return nil
	}
	do := depth.Options{Switch: &agentSwitch{w.o.depth}, Nodes: w.o.depth.nodes, Longest: w.o.depth.longest, DryRun: w.o.cluster.dryRun, Log: w.log}
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

// address returns where the switch of a node's agent listens.
func (o *depthOptions) address(node string) (string, error) {
	if strings.Contains(o.agents, "{node}") {
		return strings.ReplaceAll(o.agents, "{node}", node), nil
	}
	list, err := o.listed()
	if err != nil {
		return "", err
	}
	if list[node] == "" {
		return "", fmt.Errorf("find the agent of node %s: %s does not name it", node, o.agents)
	}
	return list[node], nil
}

// listed reads the file of addresses: it may change while we run.
func (o *depthOptions) listed() (map[string]string, error) {
	b, err := os.ReadFile(o.agents)
	if err != nil {
		return nil, fmt.Errorf("read --agents: %w; it is an address with {node} in it, or a file", err)
	}
	var list map[string]string
	if err := yaml.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read --agents %s: %w; want lines of node: host:port", o.agents, err)
	}
	return list, nil
}

// agentSwitch is the way to the agents' switches over gRPC.
type agentSwitch struct{ o depthOptions }

// watchCaller names this program to the agents.
const watchCaller = "laggard-watch"

// switchTimeout bounds one call: suspicion must become depth within seconds, and
// a dead agent must not hold up the others for long.
const switchTimeout = 2 * time.Second

// Get implements depth.Switch.
func (s *agentSwitch) Get(ctx context.Context, job, node string) (set depth.Setting, err error) {
	err = s.call(ctx, job, node, func(ctx context.Context, c tracepb.TrainingDataTraceClient, name string) error {
		var header metadata.MD
		r, err := c.GetTrainingDataTraceSwitch(ctx, &tracepb.DataStatusReq{JobNsName: name}, grpc.Header(&header))
		if err != nil {
			return err
		}
		if r.GetCode() != switchboard.OK {
			return fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
		}
		p := r.GetProfilingSwitch()
		set = depth.Setting{Light: p.GetStep() == "on", Communication: p.GetCommunicationOperator() == "on",
			Ours: slices.Equal(header.Get(switchboard.Caller), []string{watchCaller})}
		return nil
	})
	return set, err
}

// Set implements depth.Switch.
func (s *agentSwitch) Set(ctx context.Context, job, node string, communication bool) error {
	return s.call(ctx, job, node, func(ctx context.Context, c tracepb.TrainingDataTraceClient, name string) error {
		words := trace.State{Light: true, Communication: communication}.Words()
		r, err := c.ModifyTrainingDataTraceSwitch(ctx, &tracepb.DataTypeReq{JobNsName: name, ProfilingSwitch: profilingSwitch(words)})
		if err != nil {
			return err
		}
		if r.GetCode() != switchboard.OK {
			return fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
		}
		return nil
	})
}

func (s *agentSwitch) call(ctx context.Context, job, node string, f func(context.Context, tracepb.TrainingDataTraceClient, string) error) error {
	address, err := s.o.address(node)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("call agent %s: %w", address, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, switchboard.Caller, watchCaller), switchTimeout)
	defer cancel()
	if err := f(ctx, tracepb.NewTrainingDataTraceClient(conn), "default/"+job); err != nil {
		return fmt.Errorf("call agent %s: %w", address, err)
	}
	return nil
}
