package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/agent/probes"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// watchOptions are the flags of watch.
type watchOptions struct {
	source, to, metrics, thresholds, output string
	from                                    source.Options
	every                                   time.Duration
	once                                    bool
	watch                                   watch.Options
	share                                   shareOptions
	cluster                                 clusterOptions
	depth                                   depthOptions
}

func watchCommand() *cobra.Command {
	var o watchOptions
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
			if o.cluster.release {
				return positional()(c, args)
			}

			return positional("SOURCE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if o.output != "log" && o.output != "json" {
				return usage("unknown output %q%s", o.output, didYouMean(o.output, []string{"log", "json"}))
			}

			if o.every <= 0 {
				return usage("--every %v: must be more than 0", o.every)
			}

			if err := errors.Join(checkMinImpact(o.watch.MinImpact), o.cluster.check()); err != nil {
				return err
			}

			if err := o.depth.check(); err != nil {
				return err
			}

			if o.cluster.release {
				return release(c.Context(), o)
			}

			if o.once && (o.cluster.webhook != "" || o.depth.options.Nodes > 0) {
				return usage("--once posts and switches nothing: leave it out with --webhook or --deepen")
			}

			if err := o.share.check(&o); err != nil {
				return err
			}

			o.source = args[0]
			if o.to != "" {
				if err := checkStore(o.to); err != nil {
					return err
				}
			}

			return runWatch(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.watch.Jobs, "job", nil, "only these jobs (may be repeated); default all of the source")
	f.DurationVar(&o.every, "every", 10*time.Second, "how often to look")
	f.StringVar(&o.to, "to", "", "store that takes the table verdicts: parquet:DIR or clickhouse://…")
	f.StringVar(&o.watch.StateDir, "state", "", "directory that keeps what was learnt over restarts")
	f.StringVar(&o.metrics, "metrics", "127.0.0.1:9613", `address of /metrics, /healthz and /readyz, "" for none`)
	f.StringVar(&o.thresholds, "thresholds", "", "file of thresholds (JSON or YAML), read again when it changes")
	sourceFlags(c, &o.from)
	f.Float64Var(&o.watch.MinImpact, "min-impact", 0, "share of step time from which a job is not healthy (0: that of the thresholds)")
	f.DurationVar(&o.watch.Lag, "lag", feed.DefaultLag, "how long, by recorded time, a step waits for the rows of ranks that are late")
	f.DurationVar(&o.watch.Forget, "forget", watch.DefaultForget, "drop a job that was silent for so long, and its metrics")
	f.StringVarP(&o.output, "output", "o", "log", "log (to stderr), or json: also one verdict a line on stdout, when it changed")
	f.BoolVar(&o.once, "once", false, "look once, tell the cluster with --kubernetes, and exit with analyze's code of the worst job; without --state unfinished steps are judged too")
	o.share.flags(f)
	o.cluster.flags(f)
	o.depth.flags(f)
	return c
}

// observation is a watcher with what it was wired to.
type observation struct {
	o       watchOptions
	log     *slog.Logger
	source  *source.Live
	sink    *verdictStore
	watcher *watch.Watcher
	depth   *depth.Depth                  // nil without --deepen
	beside  []func(context.Context) error // what runs beside the looks
	cluster *health.Cluster               // of a single look, else nil
	out     io.Writer
	failed  error // of stdout
}

// runWatch wires the watcher and runs it.
func runWatch(ctx context.Context, o watchOptions, out io.Writer) (err error) {
	w := &observation{o: o, log: newLogger(), out: out}
	if w.source, err = source.OpenLive(ctx, o.source, o.from); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, w.source.Close()) }()
	wo := &w.o.watch
	wo.Source, wo.Log = w.source, w.log
	w.observe(w.write)
	if o.thresholds != "" {
		wo.Thresholds = watch.NewThresholds(o.thresholds)
	}

	if o.to != "" {
		sink, err := intake.OpenStore(ctx, o.to, intake.StoreOptions{Logger: w.log})
		if err != nil {
			return err
		}

		w.sink = &verdictStore{sink: sink}
		defer func() { err = errors.Join(err, sink.Close()) }()
		wo.Sink = w.sink
	}

	if o.share.name != "" {
		table, err := source.OpenLive(ctx, o.to, source.Options{})
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

	if w.watcher, err = watch.New(*wo); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, w.watcher.Close()) }()
	if o.once {
		return w.lookOnce(ctx)
	}

	return w.run(ctx)
}

// observe adds one who hears of verdicts.
func (w *observation) observe(o watch.Observer) {
	w.o.watch.Observers = append(w.o.watch.Observers, o)
}

// run looks until ctx ends, and serves metrics beside.
func (w *observation) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if w.o.metrics != "" {
		l, err := probes.Listen(w.o.metrics)
		if err != nil {
			return err
		}

		w.log.Info("serving metrics", "address", l.Addr().String())
		var deep func() (nodes, failures int)
		if w.depth != nil {
			deep = w.depth.Places
		}

		g.Go(func() error { return probes.Serve(ctx, l, w.watcher.Handler(deep)) })
	}

	if w.source.Missing() {
		w.log.Warn("no such directory yet: waiting for it", "source", w.o.source)
	}

	for _, run := range w.beside {
		g.Go(func() error { return run(ctx) })
	}

	g.Go(func() error {
		t := time.NewTicker(w.o.every)
		defer t.Stop()
		return w.watcher.Run(ctx, t.C)
	})
	return g.Wait()
}

// lookOnce looks once and returns the worst job's exit code.
func (w *observation) lookOnce(ctx context.Context) error {
	look := w.watcher.Finish
	if w.o.watch.StateDir != "" {
		look = w.watcher.Look // there will be another one
	}

	if err := errors.Join(look(ctx), w.failed); err != nil {
		return err
	}

	s := w.watcher.Status()
	if none := w.source.None(); len(s.Jobs) == 0 && none != nil {
		return fmt.Errorf("watch %s: no job in it%s: %w", source.Redact(w.o.source), wanted(w.o.watch.Jobs), none)
	}

	if len(s.Jobs) == 0 {
		if w.source.Missing() {
			return fmt.Errorf("watch %s: no such directory: check the path", w.o.source)
		}

		return fmt.Errorf("watch %s: no job in it%s", source.Redact(w.o.source), wanted(w.o.watch.Jobs))
	}

	if err := w.tellOnce(ctx); err != nil {
		return err
	}

	code := verdict.ExitHealthy
	for _, j := range s.Jobs {
		switch c := j.Verdict.Exit(w.watcher.MinImpact()); {
		case c == verdict.ExitDegraded, c == verdict.ExitUndecided && code == verdict.ExitHealthy:
			code = c
		}
	}

	if code != verdict.ExitHealthy {
		return exitCode(code)
	}

	return nil
}

func wanted(jobs []string) string {
	if len(jobs) == 0 {
		return ""
	}

	return fmt.Sprintf(" of those named with --job (%q)", jobs)
}

// write prints a verdict that changed as a line of JSON.
func (w *observation) write(_ context.Context, v *verdict.Verdict, changes []watch.Change) {
	if w.o.output != "json" || len(changes) == 0 && !w.o.once {
		return
	}

	if err := json.NewEncoder(w.out).Encode(w.told(v)); err != nil {
		w.failed = fmt.Errorf("write verdict: %w", err)
		w.log.Error("write verdict", "error", err)
	}
}

// told is a verdict as others are told of it.
func (w *observation) told(v *verdict.Verdict) *verdict.Verdict {
	told := *v
	told.Source = source.Redact(w.o.source)
	return &told
}

// verdictStore fits a store to the watcher.
type verdictStore struct {
	sink    ship.Sink
	created bool
}

// Verdicts implements watch.Sink.
func (s *verdictStore) Verdicts(ctx context.Context, rows []row.Verdict) error {
	if !s.created {
		if err := s.sink.Create(ctx); err != nil {
			return fmt.Errorf("store verdicts: %w", err)
		}

		s.created = true
	}

	return ship.Verdicts(ctx, s.sink, rows)
}
