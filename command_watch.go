package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"laggard/analyzer/source"
	"laggard/analyzer/watch"
	"laggard/schemas/row"
	"laggard/schemas/verdict"
	"laggard/writer/intake"
	"laggard/writer/ship"
)

// watchOptions are the flags of watch.
type watchOptions struct {
	source, to, state, metrics, thresholds, topology, output string
	jobs                                                     []string
	every, lag, forget                                       time.Duration
	minImpact                                                float64
	once                                                     bool
}

func watchCommand() *cobra.Command {
	var o watchOptions
	c := &cobra.Command{
		Use:   "watch SOURCE",
		Short: "follow running jobs: verdicts as they change, metrics, events",
		Long: `watch reads what is new in SOURCE (a directory, parquet:DIR or clickhouse://user@host:9000/db) and judges each finished step
with the engine of analyze. It says what changed: a line in the log, a row of the table verdicts (--to), metrics, and with
-o json the verdict on stdout. With --state it goes on where it was, also after a kill.`,
		Example: `  laggard watch /user/cluster-info/profiling --state /var/lib/laggard-watch
  laggard watch clickhouse://laggard@ch:9000/laggard --to clickhouse://laggard@ch:9000/laggard --state /var/lib/laggard-watch
  laggard watch parquet:/data/laggard --job 6f3a --once -o json`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			o.source = args[0]
			if o.output != "log" && o.output != "json" {
				return usage("unknown output %q%s", o.output, didYouMean(o.output, []string{"log", "json"}))
			}
			if o.every <= 0 {
				return usage("--every %v: must be more than 0", o.every)
			}
			return runWatch(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.jobs, "job", nil, "only these jobs (may be repeated); default all of the source")
	f.DurationVar(&o.every, "every", 10*time.Second, "how often to look")
	f.StringVar(&o.to, "to", "", "store that takes the table verdicts: parquet:DIR or clickhouse://…")
	f.StringVar(&o.state, "state", "", "directory that keeps what was learnt over restarts")
	f.StringVar(&o.metrics, "metrics", "127.0.0.1:9613", `address of /metrics, /healthz and /readyz, "" for none`)
	f.StringVar(&o.thresholds, "thresholds", "", "file of thresholds (JSON or YAML), read again when it changes")
	f.StringVar(&o.topology, "topology", "", "topology file (JSON); found by itself where one exists")
	f.Float64Var(&o.minImpact, "min-impact", 0, "share of step time from which a job is not healthy (0: that of the thresholds)")
	f.DurationVar(&o.lag, "lag", watch.DefaultLag.Time, "how long, by recorded time, a step waits for the rows of ranks that are late")
	f.DurationVar(&o.forget, "forget", watch.DefaultForget, "drop a job that was silent for so long, and its metrics")
	f.StringVarP(&o.output, "output", "o", "log", "log (to stderr), or json: also one verdict a line on stdout, when it changed")
	f.BoolVar(&o.once, "once", false, "look once and exit with analyze's code of the worst job; without --state unfinished steps are judged too")
	return c
}

// observation is a watcher with what it was wired to.
type observation struct {
	o       watchOptions
	log     *slog.Logger
	source  *source.Live
	sink    *verdictStore
	watcher *watch.Watcher
	out     io.Writer
	failed  error // of stdout
}

// runWatch wires the watcher and runs it.
func runWatch(ctx context.Context, o watchOptions, out io.Writer) (err error) {
	w := &observation{o: o, log: newLogger(), out: out}
	if w.source, err = source.OpenLive(ctx, o.source, source.Options{Topology: o.topology}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.source.Close()) }()
	wo := watch.Options{Source: liveSource{w.source}, Jobs: o.jobs, StateDir: o.state, MinImpact: o.minImpact,
		Lag: watch.Lag{Time: o.lag}, Forget: o.forget, Log: w.log, Observers: []watch.Observer{w.write}}
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
	if w.watcher, err = watch.New(wo); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.watcher.Close()) }()
	if o.once {
		return w.lookOnce(ctx)
	}
	return w.run(ctx)
}

// run looks until ctx ends, and serves metrics beside.
func (w *observation) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if w.o.metrics != "" {
		l, err := net.Listen("tcp", w.o.metrics)
		if err != nil {
			return fmt.Errorf("serve metrics: %w; name another address with --metrics, or \"\" for none", err)
		}
		w.log.Info("serving metrics", "address", l.Addr().String())
		g.Go(func() error { return serveHTTP(ctx, l, w.handler()) })
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
	if w.o.state != "" {
		look = w.watcher.Look // there will be another one
	}
	if err := errors.Join(look(ctx), w.failed); err != nil {
		return err
	}
	s := w.watcher.Status()
	if len(s.Jobs) == 0 {
		return fmt.Errorf("watch %s: no job in it%s", source.Redact(w.o.source), wanted(w.o.jobs))
	}
	code := verdict.ExitHealthy
	for _, j := range s.Jobs {
		switch c := j.Verdict.Exit(w.impact()); {
		case c == verdict.ExitDegraded, c == verdict.ExitUndecided && code == verdict.ExitHealthy:
			code = c
		}
	}
	if code != verdict.ExitHealthy {
		return exitCode(code)
	}
	return nil
}

func (w *observation) impact() float64 {
	if w.o.minImpact > 0 {
		return w.o.minImpact
	}
	return defaultMinImpact
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
	told := *v
	told.Source = source.Redact(w.o.source)
	if err := json.NewEncoder(w.out).Encode(told); err != nil {
		w.failed = fmt.Errorf("write verdict: %w", err)
		w.log.Error("write verdict", "error", err)
	}
}

// handler answers /metrics, /healthz and /readyz.
func (w *observation) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&watchMetrics{status: w.watcher.Status})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if s := w.watcher.Status(); s.LastLook.IsZero() {
			http.Error(rw, "no look has succeeded yet: "+s.LastError, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
	return mux
}

// liveSource fits a source to the watcher.
type liveSource struct{ *source.Live }

// Follow implements watch.Source.
func (s liveSource) Follow(ctx context.Context, job string, cursor []byte) (watch.Reader, error) {
	r, err := s.Live.Follow(ctx, job, cursor)
	if err != nil {
		return nil, err
	}
	return r, nil
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

// The metrics of watch, by name.
var (
	nodeDegraded    = description("node_degraded", "1 for each node that is named: its state is a label.", "job", "node", "cause", "state")
	nodeSlowdown    = description("node_slowdown", "Slowdown against peers of the same role, 1 = equal.", "job", "node", "cause")
	nodeSince       = description("node_since_step", "First slow step.", "job", "node", "cause")
	linkDegraded    = description("link_degraded", "1 for each slow communication group.", "job", "group")
	linkSlowdown    = description("link_slowdown", "Slowdown of the group's transfer.", "job", "group")
	jobImpact       = description("job_impact", "Share of step time that the job would save without its worst node or link.", "job")
	jobHealthy      = description("job_healthy", "1 when nothing above --min-impact is degraded.", "job")
	jobDecided      = description("job_decided", "0 when too little was measured to decide.", "job")
	jobCoverage     = description("job_coverage", "Measured share of the rank-steps.", "job")
	jobLast         = description("job_last_step", "Newest step that was judged.", "job")
	findingPresent  = description("finding", "1 for each finding about the job.", "job", "kind")
	watchSteps      = description("watch_steps_total", "Steps judged.", "job")
	watchLate       = description("watch_late_rows_total", "Rows that came after their step was judged.", "job")
	watchPending    = description("watch_pending_steps", "Steps that wait for the rows of ranks.", "job")
	watchLag        = description("watch_lag_seconds", "Recorded time between the newest row and the newest step judged.", "job")
	watchBehind     = description("watch_behind_seconds", "Age of the start of the newest step judged.", "job")
	watchChanges    = description("watch_changes_total", "Changes of verdicts.", "job")
	watchUnsent     = description("watch_unsent_changes", "Changes that the store of verdicts has not acknowledged.", "job")
	watchFailing    = description("watch_job_failing", "1 while the job can't be read.", "job")
	watchJobs       = description("watch_jobs", "Jobs followed.")
	watchDropped    = description("watch_jobs_dropped_total", "Jobs dropped because nothing new came.")
	watchLooks      = description("watch_looks_total", "Looks at the source.", "result")
	watchLastLook   = description("watch_last_look_timestamp_seconds", "When a look last succeeded.")
	watchThresholds = description("watch_thresholds_bad", "1 while the thresholds file can't be used and the last good one counts.")
)

// watchMetrics turns the watcher's status into Prometheus metrics when asked.
type watchMetrics struct{ status func() watch.Status }

// Describe implements prometheus.Collector.
func (m *watchMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *watchMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := m.status()
	counter(watchLooks, float64(s.Looks-s.Failed), "ok")
	counter(watchLooks, float64(s.Failed), "failed")
	counter(watchDropped, float64(s.Dropped))
	gauge(watchJobs, float64(len(s.Jobs)))
	gauge(watchThresholds, truth(s.BadThresholds != ""))
	if !s.LastLook.IsZero() {
		gauge(watchLastLook, float64(s.LastLook.UnixNano())/1e9)
	}
	for _, name := range s.Names() {
		j := s.Jobs[name]
		counter(watchSteps, float64(j.Steps), name)
		counter(watchLate, float64(j.Late), name)
		counter(watchChanges, float64(j.Changes), name)
		gauge(watchUnsent, float64(j.Unsent), name)
		gauge(watchPending, float64(j.Pending), name)
		gauge(watchFailing, truth(j.Failing != ""), name)
		if j.Judged > 0 {
			gauge(watchLag, max(0, float64(j.Newest-j.Judged)/1e9), name)
			gauge(watchBehind, time.Since(time.Unix(0, j.Judged)).Seconds(), name)
		}
		if j.Verdict != nil {
			verdictMetrics(gauge, name, j.Verdict)
		}
	}
}

// verdictMetrics are those of one job's verdict.
func verdictMetrics(gauge emit, job string, v *verdict.Verdict) {
	impact := 0.0
	seen := map[string]bool{}
	for _, n := range v.Nodes {
		if n.State == verdict.Recovered || seen[n.Node] {
			continue
		}
		seen[n.Node] = true
		impact = max(impact, n.JobImpact)
		gauge(nodeDegraded, truth(n.State == verdict.Degraded || n.State == verdict.Intermittent), job, n.Node, n.Cause, n.State)
		gauge(nodeSlowdown, n.Slowdown, job, n.Node, n.Cause)
		gauge(nodeSince, float64(n.SinceStep), job, n.Node, n.Cause)
	}
	groups := map[string]bool{}
	for i, l := range v.Links {
		name := l.Group
		if name == "" || groups[name] {
			name += "#" + strconv.Itoa(i)
		}
		groups[name] = true
		impact = max(impact, l.JobImpact)
		gauge(linkDegraded, truth(l.State == verdict.Degraded || l.State == verdict.Intermittent), job, name)
		gauge(linkSlowdown, l.Slowdown, job, name)
	}
	kinds := map[string]bool{}
	for _, f := range v.Findings {
		if !kinds[f.Kind] {
			kinds[f.Kind] = true
			gauge(findingPresent, 1, job, f.Kind)
		}
	}
	gauge(jobImpact, impact, job)
	gauge(jobHealthy, truth(v.Healthy), job)
	gauge(jobDecided, truth(v.Decided), job)
	gauge(jobCoverage, v.Coverage, job)
	gauge(jobLast, float64(v.Steps.Last), job)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
