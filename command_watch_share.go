package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

// How watchers find each other.
const (
	byLeases = "leases"
	byRows   = "rows"
)

// shareFlags have watchers divide the jobs of a store. All watchers of a store must have the same, but for the name.
func (w *observation) shareFlags(f *pflag.FlagSet) {
	f.StringVar(&w.share, "share", "", "this watcher's name among several that follow the same SOURCE: each follows its share of the jobs, and takes over those of one that is silent for --lease (needs --to, a ClickHouse store that all of them have)")
	f.StringVar(&w.shareBy, "share-by", "", "how they find each other, the same for all: leases of Kubernetes in the pod's namespace (verbs list, create, update and delete on leases.coordination.k8s.io; written in a dry run, too), or rows of --to (default: leases in a pod or with --kubernetes-server, else rows)")
	f.DurationVar(&w.lease, "lease", watch.DefaultLease, "how long a watcher of --share that says nothing keeps its jobs, the same for all")
}

// checkShare refuses what several watchers can't do together.
func (w *observation) checkShare() error {
	switch {
	case w.shareBy != "" && !slices.Contains([]string{byLeases, byRows}, w.shareBy):
		return usage("--share-by %q%s", w.shareBy, didYouMean(w.shareBy, []string{byLeases, byRows}))
	case w.lease < time.Second || w.lease%time.Second != 0:
		return usage("--lease %v: want whole seconds, 1s at least", w.lease)
	case w.share == "" && w.shareBy != "":
		return usage("--share-by needs --share: this watcher's name")
	case w.share == "":
		return nil
	case w.once || !strings.HasPrefix(w.to, ddl.Scheme):
		return usage("--share needs --to clickhouse://…, where what was said of a job is found by who takes it over, and goes without --once")
	case w.kubernetes:
		return usage("--share goes without --kubernetes: each watcher would take back what another one says of a node")
	}

	return nil
}

// leaseNamespace has the Leases where the watcher runs in no pod: that of the manifests.
const leaseNamespace = "laggard"

// divide shares the jobs with other watchers.
func (w *observation) divide(table *source.Live) error {
	w.watch.Table = table.Verdicts
	by := w.shareBy
	if by == "" && (w.server != "" || health.InPod()) {
		by = byLeases
	}

	if by != byLeases {
		w.watch.Holder = &watch.Rows{Name: w.share, Sink: w.watch.Sink, Table: table.Verdicts, Lease: w.lease, Now: time.Now, Log: w.log}
		return nil
	}

	api := health.API{Server: w.server}
	if api.Server == "" {
		var err error
		if api, err = health.OfPod(); err != nil {
			return usage("--share-by leases: %v, or share by rows", err)
		}
	}

	store, err := ddl.ParseAddress(w.to)
	if err != nil {
		return err
	}

	leases := watch.NewLeases(api, cmp.Or(api.Namespace, leaseNamespace), w.share, store.String(), w.lease, w.log)
	w.beside = append(w.beside, leases.Run)
	w.watch.Holder = leases
	return nil
}
