package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// depthFlags have it recorded in depth where it looks. By default nothing is switched: recording Communication costs the trainer.
func (w *observation) depthFlags(f *pflag.FlagSet) {
	f.IntVar(&w.depth.Nodes, "deepen", 0, "turn Communication on for suspect nodes and their peers, on so many nodes at most, and off again when decided; 0 switches nothing (needs --dry-run=false)")
	f.StringVar(&w.agents, "agents", "{node}:9611", "where agents' switches listen (their --listen): an address with {node} in it, unix:PATH (one agent here), a file of node: address lines (YAML or JSON), or kubernetes: port 9611 of the node's pods with the label laggard/metrics")
	f.DurationVar(&w.depth.Longest, "deepen-for", depth.DefaultLongest, "longest time that nodes are recorded in depth for one suspicion")
	w.endpoint.CallerFlags(f)
}

// checkDepth reads the list of agents too: one that is wrong is said at once, not at the first suspicion.
func (w *observation) checkDepth() error {
	switch {
	case w.depth.Nodes < 0:
		return usage("--deepen %d: want a number of nodes, or 0 to switch nothing", w.depth.Nodes)
	case w.depth.Nodes == 0:
		return nil
	case w.depth.Longest <= 0:
		return usage("--deepen-for %v: must be more than 0", w.depth.Longest)
	case w.agents == "":
		return usage("--deepen needs --agents: where do the agents' switches listen?")
	}

	if err := w.endpoint.Check(); err != nil {
		return usage("%v", err)
	}

	return (&depth.Agents{Where: w.agents}).Check()
}

// deepen adds adaptive depth.
func (w *observation) deepen() error {
	o := w.depth
	if o.Nodes == 0 {
		return nil
	}

	way := &depth.Agents{Where: w.agents, Endpoint: &w.endpoint}
	if w.agents == depth.OfPods {
		api, err := clusterAPI(w.server, w.cluster.DryRun)
		if err != nil {
			return err
		}

		way.API = api
	}

	o.Switch, o.DryRun, o.Log = way, w.cluster.DryRun, w.log
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
