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

// shareOptions are the flags of watchers that divide the jobs of a store.
type shareOptions struct {
	name, by string
	lease    time.Duration
}

// How watchers find each other.
const (
	byLeases = "leases"
	byRows   = "rows"
)

// flags registers them. All watchers of a store must have the same, but for the name.
func (o *shareOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "share", "", "this watcher's name among several that follow the same SOURCE: each follows its share of the jobs, and takes over those of one that is silent for --lease (needs --to, a ClickHouse store that all of them have)")
	f.StringVar(&o.by, "share-by", "", "how they find each other, the same for all: leases of Kubernetes in the pod's namespace (verbs list, create, update and delete on leases.coordination.k8s.io; written in a dry run, too), or rows of --to (default: leases in a pod or with --kubernetes-server, else rows)")
	f.DurationVar(&o.lease, "lease", watch.DefaultLease, "how long a watcher of --share that says nothing keeps its jobs, the same for all")
}

// check refuses what several watchers can't do together.
func (o *shareOptions) check(w *observation) error {
	switch {
	case o.by != "" && !slices.Contains([]string{byLeases, byRows}, o.by):
		return usage("--share-by %q%s", o.by, didYouMean(o.by, []string{byLeases, byRows}))
	case o.lease < time.Second || o.lease%time.Second != 0:
		return usage("--lease %v: want whole seconds, 1s at least", o.lease)
	case o.name == "" && o.by != "":
		return usage("--share-by needs --share: this watcher's name")
	case o.name == "":
		return nil
	case w.once || !strings.HasPrefix(w.to, ddl.Scheme):
		return usage("--share needs --to clickhouse://…, where what was said of a job is found by who takes it over, and goes without --once")
	case w.cluster.kubernetes:
		return usage("--share goes without --kubernetes: each watcher would take back what another one says of a node")
	}

	return nil
}

// leaseNamespace has the Leases where the watcher runs in no pod: that of the manifests.
const leaseNamespace = "laggard"

// divide shares the jobs with other watchers.
func (w *observation) divide(table *source.Live) error {
	s := &w.share
	w.watch.Table = table.Verdicts
	by := s.by
	if by == "" && (w.cluster.server != "" || health.InPod()) {
		by = byLeases
	}

	if by != byLeases {
		w.watch.Holder = &watch.Rows{Name: s.name, Sink: w.watch.Sink, Table: table.Verdicts, Lease: s.lease, Now: time.Now, Log: w.log}
		return nil
	}

	api := health.API{Server: w.cluster.server}
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

	leases := watch.NewLeases(api, cmp.Or(api.Namespace, leaseNamespace), s.name, store.String(), s.lease, w.log)
	w.beside = append(w.beside, leases.Run)
	w.watch.Holder = leases
	return nil
}
