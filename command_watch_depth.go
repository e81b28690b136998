package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// depthOptions are the flags of watch that record in depth where it looks.
type depthOptions struct {
	options  depth.Options
	agents   string
	endpoint endpoint.Options
}

// flags registers them. By default nothing is switched: recording Communication costs the trainer.
func (o *depthOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.options.Nodes, "deepen", 0, "turn Communication on for suspect nodes and their peers, on so many nodes at most, and off again when decided; 0 switches nothing (needs --dry-run=false)")
	f.StringVar(&o.agents, "agents", "{node}:9611", "where agents' switches listen (their --listen): an address with {node} in it, unix:PATH (one agent here), a file of node: address lines (YAML or JSON), or kubernetes: port 9611 of the node's pods with the label laggard/metrics")
	f.DurationVar(&o.options.Longest, "deepen-for", depth.DefaultLongest, "longest time that nodes are recorded in depth for one suspicion")
	o.endpoint.CallerFlags(f)
}

// check reads the list of agents too: one that is wrong is said at once, not at the first suspicion.
func (o *depthOptions) check() error {
	switch {
	case o.options.Nodes < 0:
		return usage("--deepen %d: want a number of nodes, or 0 to switch nothing", o.options.Nodes)
	case o.options.Nodes == 0:
		return nil
	case o.options.Longest <= 0:
		return usage("--deepen-for %v: must be more than 0", o.options.Longest)
	case o.agents == "":
		return usage("--deepen needs --agents: where do the agents' switches listen?")
	}

	if err := o.endpoint.Check(); err != nil {
		return usage("%v", err)
	}

	return (&depth.Agents{Where: o.agents}).Check()
}

// deepen adds adaptive depth.
func (w *observation) deepen() error {
	o := w.depth.options
	if o.Nodes == 0 {
		return nil
	}

	way := &depth.Agents{Where: w.depth.agents, Endpoint: &w.depth.endpoint}
	if w.depth.agents == depth.OfPods {
		api, err := w.cluster.api()
		if err != nil {
			return err
		}

		way.API = api
	}

	o.Switch, o.DryRun, o.Log = way, w.cluster.health.DryRun, w.log
	if w.watch.StateDir != "" {
		o.StateFile = filepath.Join(w.watch.StateDir, "depth.json")
	}

	d, err := depth.New(o)
	if err != nil {
		return err
	}

	w.deep = d.Places
	w.beside = append(w.beside, d.Run)
	w.observe(func(_ context.Context, v *verdict.Verdict, _ []watch.Change) { d.Observe(v, w.watcher.Suspects(v.Job)) })
	return nil
}
