package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/agent"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// observation is a watcher: what its flags say, and what it was wired to.
type observation struct {
	source, to, metrics, output string
	from                        source.Options
	every                       time.Duration
	once                        bool
	watch                       watch.Options

	// With --share: this watcher's name, how it finds the others, and for how long they wait for it.
	share, shareBy string
	lease          time.Duration
	// Whom verdicts are told to.
	kubernetes, releasing bool
	server, webhook       string
	cluster               health.Options
	// Where agents' switches listen, and who they are called as.
	depth    depth.Options
	agents   string
	endpoint endpoint.Options

	log     *slog.Logger
	live    *source.Live
	watcher *watch.Watcher
	deep    func() (nodes, failures int)  // how --deepen does, nil without it
	beside  []func(context.Context) error // what runs beside the looks
	told    *health.Cluster               // of a single look, else nil
	out     io.Writer
	failed  error // of stdout
}

// watchCommand follows jobs for as long as it runs, or looks once.
func watchCommand() *cobra.Command {
	w := &observation{}
	c := &cobra.Command{
		Use:   "watch SOURCE",
		Short: "follow running jobs: verdicts as they change, metrics, events",
		Long: `watch reads what is new in SOURCE (a directory, parquet:DIR or clickhouse://user@host:9000/db) and judges each finished step
with the engine of analyze. It says what changed: a line in the log, a row of the table verdicts (--to), metrics, and with
-o json the verdict on stdout. With --state it goes on where it was, also after a kill. With --kubernetes it tells the cluster,
once with --once; --release takes all of that back. With --share several watchers divide the jobs of one store, by Leases of
Kubernetes (coordination.k8s.io) or by rows of the table verdicts: each job is followed by one of them at a time.`,
		Example: `  laggard watch /user/cluster-info/profiling --state /var/lib/laggard-watch
  laggard watch clickhouse://laggard@ch:9000/laggard --to clickhouse://laggard@ch:9000/laggard --state /var/lib/laggard-watch
  laggard watch parquet:/data/laggard --job 6f3a --once -o json
  laggard watch clickhouse://laggard@ch:9000/laggard --to clickhouse://laggard@ch:9000/laggard --share $(hostname)
  laggard watch --release --kubernetes --kubernetes-server http://127.0.0.1:8001 --dry-run=false`,
		Args: func(c *cobra.Command, args []string) error {
			if w.releasing {
				return positional()(c, args)
			}

			return positional("SOURCE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}

			w.log, w.out = newLogger(), c.OutOrStdout()
			if w.releasing {
				return w.release(c.Context())
			}

			if err := w.checkFollowing(); err != nil {
				return err
			}

			w.source = args[0]
			return w.start(c.Context())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&w.watch.Jobs, "job", nil, "only these jobs (may be repeated); default all of the source")
	f.DurationVar(&w.every, "every", 10*time.Second, "how often to look")
	f.StringVar(&w.to, "to", "", "store that takes the table verdicts: parquet:DIR or clickhouse://…")
	f.StringVar(&w.watch.StateDir, "state", "", "directory that keeps what was learnt over restarts")
	f.StringVar(&w.metrics, "metrics", "127.0.0.1:9613", `address of /metrics, /healthz and /readyz, "" for none`)
	f.StringVar(&w.watch.Thresholds, "thresholds", "", "file of thresholds (JSON or YAML), read again when it changes")
	sourceFlags(c, &w.from)
	f.Float64Var(&w.watch.MinImpact, "min-impact", 0, "share of step time from which a job is not healthy (0: that of the thresholds)")
	f.DurationVar(&w.watch.Lag, "lag", feed.DefaultLag, "how long, by recorded time, a step waits for the rows of ranks that are late")
	f.DurationVar(&w.watch.Forget, "forget", watch.DefaultForget, "drop a job that was silent for so long, and its metrics")
	f.StringVarP(&w.output, "output", "o", "log", "log (to stderr), or json: also one verdict a line on stdout, when it changed")
	f.BoolVar(&w.once, "once", false, "look once, tell the cluster with --kubernetes, and exit with analyze's code of the worst job; without --state unfinished steps are judged too")
	w.shareFlags(f)
	w.clusterFlags(f)
	w.depthFlags(f)
	return c
}

// check refuses settings that are wrong whatever is done.
func (w *observation) check() error {
	if err := oneOf("unknown output %q", w.output, "log", "json"); err != nil {
		return err
	}

	if w.every <= 0 {
		return usage("--every %v: must be more than 0", w.every)
	}

	if err := errors.Join(checkMinImpact(w.watch.MinImpact), w.checkCluster()); err != nil {
		return err
	}

	return w.checkDepth()
}

// checkFollowing refuses settings that are wrong where jobs are followed: --release, which
// follows none, does not mind them.
func (w *observation) checkFollowing() error {
	if w.once && (w.webhook != "" || w.depth.Nodes > 0) {
		return usage("--once posts and switches nothing: leave it out with --webhook or --deepen")
	}

	if err := w.checkShare(); err != nil {
		return err
	}

	if w.to == "" {
		return nil
	}

	return checkStore(w.to)
}

// start wires the watcher and runs it.
func (w *observation) start(ctx context.Context) (err error) {
	if w.live, err = source.OpenLive(w.source, w.from); err != nil {
		return err
	}

	// All of it is closed in the reverse order: the watcher first, which may have something to store.
	defer func() { err = errors.Join(err, w.live.Close()) }()
	o := &w.watch
	o.Source, o.Log = w.live, w.log
	w.observe(w.write)
	if w.to != "" {
		sink, err := intake.OpenStore(w.to, clickhouse.Options{Logger: w.log})
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, sink.Close()) }()
		o.Sink = storeVerdicts(sink)
	}

	if w.share != "" {
		table, err := source.OpenLive(w.to, source.Options{})
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, table.Close()) }()
		if err := w.divide(table); err != nil {
			return err
		}
	}

	if err := errors.Join(w.tell(), w.deepen()); err != nil {
		return err
	}

	if w.watcher, err = watch.New(*o); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, w.watcher.Close()) }()
	if w.once {
		return w.lookOnce(ctx)
	}

	return w.run(ctx)
}

// observe adds one who hears of verdicts.
func (w *observation) observe(o func(context.Context, *verdict.Verdict, []watch.Change)) {
	w.watch.Observers = append(w.watch.Observers, o)
}

// run looks until ctx ends, and serves metrics beside.
func (w *observation) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if w.metrics != "" {
		probes, err := agent.ListenProbes(w.metrics, w.log)
		if err != nil {
			return err
		}

		metrics := func(counter, gauge agent.Emit) { w.watcher.Metrics(counter, gauge, w.deep) }
		g.Go(func() error { return probes.Serve(ctx, agent.Handler(metrics, http.HandlerFunc(w.watcher.Ready))) })
	}

	if w.live.Missing() {
		w.log.Warn("no such directory yet: waiting for it", "source", w.source)
	}

	for _, run := range w.beside {
		g.Go(func() error { return run(ctx) })
	}

	g.Go(func() error {
		t := time.NewTicker(w.every)
		defer t.Stop()
		return w.watcher.Run(ctx, t.C)
	})
	return g.Wait()
}

// lookOnce looks once and returns the worst job's exit code.
func (w *observation) lookOnce(ctx context.Context) error {
	look := w.watcher.Finish
	if w.watch.StateDir != "" {
		look = w.watcher.Look // there will be another one
	}

	if err := errors.Join(look(ctx), w.failed); err != nil {
		return err
	}

	s := w.watcher.Status()
	if none := w.live.None(); len(s.Jobs) == 0 && none != nil {
		return fmt.Errorf("watch %s: no job in it%s: %w", source.Redact(w.source), wanted(w.watch.Jobs), none)
	}

	if len(s.Jobs) == 0 {
		if w.live.Missing() {
			return fmt.Errorf("watch %s: no such directory: check the path", w.source)
		}

		return fmt.Errorf("watch %s: no job in it%s", source.Redact(w.source), wanted(w.watch.Jobs))
	}

	if err := w.tellOnce(ctx); err != nil {
		return err
	}

	code := verdict.ExitHealthy
	for _, j := range s.Jobs {
		switch c := j.Verdict.Exit(w.watcher.MinImpact()); {
		// Degraded is worse than undecided, and undecided worse than healthy.
		case c == verdict.ExitDegraded, c == verdict.ExitUndecided && code == verdict.ExitHealthy:
			code = c
		}
	}

	return exitWith(code)
}

// wanted names the jobs that were asked for, where some were.
func wanted(jobs []string) string {
	if len(jobs) == 0 {
		return ""
	}

	return fmt.Sprintf(" of those named with --job (%q)", jobs)
}

// write prints a verdict that changed as a line of JSON.
func (w *observation) write(_ context.Context, v *verdict.Verdict, changes []watch.Change) {
	if w.output != "json" || len(changes) == 0 && !w.once {
		return
	}

	if err := json.NewEncoder(w.out).Encode(w.shown(v)); err != nil {
		w.failed = fmt.Errorf("write verdict: %w", err)
		w.log.Error("write verdict", "error", err)
	}
}

// shown is a verdict as others are told of it.
func (w *observation) shown(v *verdict.Verdict) *verdict.Verdict {
	shown := *v
	shown.Source = source.Redact(w.source)
	return &shown
}

// storeVerdicts fits a store to the watcher. Tables are made with the first rows and not at the
// start: a store that is away then is no reason not to watch.
func storeVerdicts(sink ship.Sink) func(context.Context, []row.Verdict) error {
	created := false
	return func(ctx context.Context, rows []row.Verdict) error {
		if !created {
			if err := sink.Create(ctx); err != nil {
				return fmt.Errorf("store verdicts: %w", err)
			}

			created = true
		}

		return ship.Verdicts(ctx, sink, rows)
	}
}
