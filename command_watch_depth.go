package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// depthOptions are the flags of watch that record in depth where it looks.
type depthOptions struct {
	nodes   int
	agents  string
	longest time.Duration

	endpoint endpoint.Options
}

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

	return (&depth.Agents{Where: o.agents}).Check()
}

// deepen adds adaptive depth.
func (w *observation) deepen(o *watch.Options) error {
	if w.o.depth.nodes == 0 {
		return nil
	}

	way := &depth.Agents{Where: w.o.depth.agents, Endpoint: &w.o.depth.endpoint}
	if w.o.depth.agents == depth.OfPods {
		api, err := w.o.cluster.api()
		if err != nil {
			return err
		}

		way.API = api
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
