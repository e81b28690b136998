package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// clusterOptions are the flags of watch that tell others of verdicts.
type clusterOptions struct {
	kubernetes      bool
	server, act     string
	maxNodes        int
	hold            time.Duration
	release, dryRun bool
	webhook         string
}

func (o *clusterOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.kubernetes, "kubernetes", false, "tell the cluster: node condition TrainingDegraded and events, by the pod's service account (needs --dry-run=false)")
	f.StringVar(&o.server, "kubernetes-server", "", "URL of the API server, e.g. of `kubectl proxy` (default: the pod's)")
	f.StringVar(&o.act, "act", "", "also act on degraded nodes: cordon, taint, or reschedule (MindCluster takes the job off them)")
	f.IntVar(&o.maxNodes, "max-nodes", 1, "never act on more nodes at once")
	f.DurationVar(&o.hold, "hold", health.DefaultHold, "how long a node must be well before condition and act are taken back (with --once at once)")
	f.BoolVar(&o.release, "release", false, "take back all that laggard set on the cluster's nodes (conditions, taints, cordons, annotations) and exit; SOURCE is left out, and no watcher may run beside")
	f.BoolVar(&o.dryRun, "dry-run", true, "only say what would be written to the cluster's nodes, and what would be switched")
	f.StringVar(&o.webhook, "webhook", "", "URL that gets the verdict as JSON (POST) when it changed")
}

func (o *clusterOptions) check() error {
	switch {
	case o.act != "" && !slices.Contains(health.Acts, o.act):
		return usage("--act %q%s", o.act, didYouMean(o.act, health.Acts))
	case o.act != "" && !o.kubernetes:
		return usage("--act needs --kubernetes")
	case o.release && !o.kubernetes:
		return usage("--release needs --kubernetes")
	case o.hold <= 0:
		return usage("--hold %v: must be more than 0", o.hold)
	case o.maxNodes < 1:
		return usage("--max-nodes %d: must be at least 1", o.maxNodes)
	}

	if o.webhook != "" {
		if u, err := url.Parse(o.webhook); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("--webhook: want a URL like https://host/path")
		}
	}

	return nil
}

// tell adds those who want to hear of verdicts.
func (w *observation) tell(o *watch.Options) error {
	c := w.o.cluster
	if c.webhook != "" {
		h := health.NewWebhook(c.webhook, w.log)
		w.beside = append(w.beside, h.Run)
		o.Observers = append(o.Observers, func(_ context.Context, v *verdict.Verdict, changes []watch.Change) {
			if len(changes) > 0 {
				told := *v
				told.Source = source.Redact(w.o.source)
				h.Changed(watch.MessageKey(changes), &told)
			}
		})
	}

	if !c.kubernetes {
		return nil
	}

	h, err := w.o.health(w.log, func() float64 { return w.watcher.MinImpact() })
	if err != nil {
		return err
	}

	if w.o.once {
		w.cluster = h
		return nil
	}

	w.beside = append(w.beside, h.Run)
	o.Observers = append(o.Observers, func(_ context.Context, v *verdict.Verdict, _ []watch.Change) { h.Observe(v) })
	return nil
}

// health returns the cluster as the flags say.
func (o *watchOptions) health(log *slog.Logger, minImpact func() float64) (*health.Cluster, error) {
	c := &o.cluster
	api, err := c.api()
	if err != nil {
		return nil, err
	}

	ho := health.Options{
		API: api, Act: c.act, MaxNodes: c.maxNodes, Hold: c.hold, DryRun: c.dryRun, Log: log, MinImpact: minImpact, Jobs: o.jobs,
	}
	if o.state != "" {
		ho.StateFile = filepath.Join(o.state, "cluster.json")
	} else if c.act == health.ActReschedule && !c.dryRun {
		return nil, usage("--act=reschedule needs --state: what labels a job had before must survive a restart")
	}

	return health.New(ho)
}

// tellOnce tells the cluster of the jobs as they are now, each as of its newest step.
func (w *observation) tellOnce(ctx context.Context) error {
	if w.cluster == nil {
		return nil
	}

	for _, j := range w.watcher.Status().Jobs {
		if j.Verdict != nil {
			w.cluster.ObserveAt(j.Verdict, time.Unix(0, j.Newest))
		}
	}

	if err := w.cluster.Once(ctx); err != nil {
		return fmt.Errorf("tell the cluster: %w", err)
	}

	return nil
}

// release takes back what laggard set on nodes.
func release(ctx context.Context, o watchOptions) (err error) {
	log := newLogger()
	if o.state != "" {
		lock, err := watch.Lock(o.state) // no watcher of that state runs
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, lock.Close()) }()
	}

	h, err := o.health(log, nil)
	if err != nil {
		return err
	}

	nodes, err := h.Release(ctx)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}

	log.Info("released", "nodes", nodes, "dry_run", o.cluster.dryRun)
	return nil
}

// api returns the API server to talk to, none where nothing is written and there is none.
func (o *clusterOptions) api() (health.API, error) {
	if o.server != "" || o.dryRun && !o.release && !health.InPod() {
		return health.API{Server: o.server}, nil
	}

	api, err := health.OfPod()
	if err != nil {
		return api, fmt.Errorf("--kubernetes: %w", err)
	}

	return api, nil
}
