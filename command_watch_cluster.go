package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// clusterFlags tell others of verdicts. --dry-run is the default: nobody's cluster is written to by a first try.
func (w *observation) clusterFlags(f *pflag.FlagSet) {
	f.BoolVar(&w.kubernetes, "kubernetes", false, "tell the cluster: node condition TrainingDegraded and events, by the pod's service account (needs --dry-run=false)")
	f.StringVar(&w.server, "kubernetes-server", "", "URL of the API server, e.g. of `kubectl proxy` (default: the pod's)")
	f.StringVar(&w.cluster.Act, "act", "", "also act on degraded nodes: cordon, taint, or reschedule (MindCluster takes the job off them)")
	f.IntVar(&w.cluster.MaxNodes, "max-nodes", 1, "never act on more nodes at once")
	f.DurationVar(&w.cluster.Hold, "hold", health.DefaultHold, "how long a node must be well before condition and act are taken back (with --once at once)")
	f.BoolVar(&w.releasing, "release", false, "take back all that laggard set on the cluster's nodes (conditions, taints, cordons, annotations) and exit; SOURCE is left out, and no watcher may run beside")
	f.BoolVar(&w.cluster.DryRun, "dry-run", true, "only say what would be written to the cluster's nodes, and what would be switched")
	f.StringVar(&w.webhook, "webhook", "", "URL that gets the verdict as JSON (POST) when it changed")
}

// checkCluster refuses what would act otherwise than it reads.
func (w *observation) checkCluster() error {
	h := &w.cluster
	switch {
	case h.Act != "" && !slices.Contains(health.Acts, h.Act):
		return usage("--act %q%s", h.Act, didYouMean(h.Act, health.Acts))
	case h.Act != "" && !w.kubernetes:
		return usage("--act needs --kubernetes")
	case w.releasing && !w.kubernetes:
		return usage("--release needs --kubernetes")
	case h.Hold <= 0:
		return usage("--hold %v: must be more than 0", h.Hold)
	case h.MaxNodes < 1:
		return usage("--max-nodes %d: must be at least 1", h.MaxNodes)
	}

	if w.webhook != "" {
		if u, err := url.Parse(w.webhook); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("--webhook: want a URL like https://host/path")
		}
	}

	return nil
}

// tell adds those who want to hear of verdicts.
func (w *observation) tell() error {
	if w.webhook != "" {
		h := health.NewWebhook(w.webhook, w.log)
		w.beside = append(w.beside, h.Run)
		w.observe(func(_ context.Context, v *verdict.Verdict, changes []watch.Change) {
			if len(changes) > 0 {
				h.Changed(watch.MessageKey(changes), w.shown(v))
			}
		})
	}

	if !w.kubernetes {
		return nil
	}

	// Asked with each verdict: the watcher that knows it is made later than this.
	h, err := w.health(func() float64 { return w.watcher.MinImpact() })
	if err != nil {
		return err
	}

	if w.once {
		w.told = h
		return nil
	}

	w.beside = append(w.beside, h.Run)
	w.observe(func(_ context.Context, v *verdict.Verdict, _ []watch.Change) { h.Observe(v) })
	return nil
}

// health returns the cluster as the flags say.
func (w *observation) health(minImpact func() float64) (*health.Cluster, error) {
	api, err := clusterAPI(w.server, w.cluster.DryRun && !w.releasing)
	if err != nil {
		return nil, err
	}

	h := w.cluster
	h.API, h.Log, h.MinImpact, h.Jobs = api, w.log, minImpact, w.watch.Jobs
	if w.watch.StateDir != "" {
		h.StateFile = filepath.Join(w.watch.StateDir, "cluster.json")
	} else if h.Act == health.ActReschedule && !h.DryRun {
		return nil, usage("--act=reschedule needs --state: what labels a job had before must survive a restart")
	}

	return health.New(h)
}

// tellOnce tells the cluster of the jobs as they are now, each as of its newest step.
func (w *observation) tellOnce(ctx context.Context) error {
	if w.told == nil {
		return nil
	}

	for _, j := range w.watcher.Status().Jobs {
		if j.Verdict != nil {
			w.told.ObserveAt(j.Verdict, time.Unix(0, j.Newest))
		}
	}

	if err := w.told.Once(ctx); err != nil {
		return fmt.Errorf("tell the cluster: %w", err)
	}

	return nil
}

// release takes back what laggard set on nodes.
func (w *observation) release(ctx context.Context) (err error) {
	if w.watch.StateDir != "" {
		lock, err := watch.Lock(w.watch.StateDir) // no watcher of that state runs
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, lock.Close()) }()
	}

	h, err := w.health(nil)
	if err != nil {
		return err
	}

	nodes, err := h.Release(ctx)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}

	w.log.Info("released", "nodes", nodes, "dry_run", w.cluster.DryRun)
	return nil
}

// clusterAPI returns the API server to talk to, none where nothing is written and there is none.
func clusterAPI(server string, dry bool) (health.API, error) {
	if server != "" || dry && !health.InPod() {
		return health.API{Server: server}, nil
	}

	api, err := health.OfPod()
	if err != nil {
		return api, fmt.Errorf("--kubernetes: %w", err)
	}

	return api, nil
}
