package watch

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// description names a metric as the program's others are named.
func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("laggard_"+name, help, labels, nil)
}

// The metrics of watch: names and labels are what dashboards and alerts refer to.
var (
	metricNodeDegraded   = description("node_degraded", "1 for each node that is named: its state is a label.", "job", "node", "cause", "state")
	metricNodeSlowdown   = description("node_slowdown", "Slowdown against peers of the same role, 1 = equal.", "job", "node", "cause")
	metricNodeSince      = description("node_since_step", "First slow step.", "job", "node", "cause")
	metricLinkDegraded   = description("link_degraded", "1 for each slow communication group.", "job", "group")
	metricLinkSlowdown   = description("link_slowdown", "Slowdown of the group's transfer.", "job", "group")
	metricJobImpact      = description("job_impact", "Share of step time that the job would save without its slow nodes and links, at most.", "job")
	metricJobHealthy     = description("job_healthy", "1 when nothing above --min-impact is degraded.", "job")
	metricJobDecided     = description("job_decided", "0 when too little was measured to decide.", "job")
	metricJobCoverage    = description("job_coverage", "Measured share of the rank-steps.", "job")
	metricJobLast        = description("job_last_step", "Newest step that was judged.", "job")
	metricFindingPresent = description("finding", "1 for each finding about the job.", "job", "kind")
	metricSteps          = description("watch_steps_total", "Steps judged.", "job")
	metricLate           = description("watch_late_rows_total", "Rows that came after their step was judged.", "job")
	metricPending        = description("watch_pending_steps", "Steps that wait for the rows of ranks.", "job")
	metricLag            = description("watch_lag_seconds", "Recorded time between the newest row and the newest step judged.", "job")
	metricBehind         = description("watch_behind_seconds", "Age of the start of the newest step judged.", "job")
	metricChanges        = description("watch_changes_total", "Changes of verdicts.", "job")
	metricUnsent         = description("watch_unsent_changes", "Changes that the store of verdicts has not acknowledged.", "job")
	metricDamaged        = description("watch_damaged_files", "Compressed files that could not be read to their end.", "job")
	metricFailing        = description("watch_job_failing", "1 while the job can't be read.", "job")
	metricJobs           = description("watch_jobs", "Jobs followed.")
	metricDropped        = description("watch_jobs_dropped_total", "Jobs dropped because nothing new came.")
	metricTaken          = description("watch_jobs_taken_total", "Jobs of which something was said before this watcher followed them.")
	metricRepeated       = description("watch_changes_repeated_total", "Changes that were left out because the watcher before had stored them.")
	metricLooks          = description("watch_looks_total", "Looks at the source.", "result")
	metricLastLook       = description("watch_last_look_timestamp_seconds", "When a look last succeeded.")
	metricDeep           = description("watch_deep_nodes", "Nodes that --deepen records in depth, or is switching.")
	metricDeepFailed     = description("watch_deep_failures_total", "Calls to agents' switches that failed.")
	metricThresholds     = description("watch_thresholds_bad", "1 while the thresholds file can't be used and the last good one counts.")
)

// Handler answers /metrics, /healthz and /readyz; it is ready once a look has succeeded. deep
// returns how many nodes are recorded in depth, and how many calls of switches failed; nil where
// nothing is.
func (w *Watcher) Handler(deep func() (nodes, failures int)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) { collect(ch, w.Status(), deep) }))

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(answer, "ok") })
	mux.HandleFunc("GET /readyz", func(answer http.ResponseWriter, _ *http.Request) {
		if s := w.Status(); s.LastLook.IsZero() {
			http.Error(answer, "no look has succeeded yet: "+s.LastError, http.StatusServiceUnavailable)
			return
		}

		fmt.Fprintln(answer, "ok")
	})
	return mux
}

// collect makes the metrics of a watcher's status, anew for each scrape: nothing is counted
// twice, and a job that was dropped leaves no series behind.
func collect(ch chan<- prometheus.Metric, s Status, deep func() (nodes, failures int)) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	counter(metricLooks, float64(s.Looks-s.Failed), "ok")
	counter(metricLooks, float64(s.Failed), "failed")
	counter(metricDropped, float64(s.Dropped))
	counter(metricTaken, float64(s.Taken))
	counter(metricRepeated, float64(s.Repeated))
	gauge(metricJobs, float64(len(s.Jobs)))
	gauge(metricThresholds, truth(s.BadThresholds != ""))
	if deep != nil {
		nodes, failures := deep()
		gauge(metricDeep, float64(nodes))
		counter(metricDeepFailed, float64(failures))
	}

	if !s.LastLook.IsZero() {
		gauge(metricLastLook, float64(s.LastLook.UnixNano())/1e9)
	}

	for _, name := range slices.Sorted(maps.Keys(s.Jobs)) {
		j := s.Jobs[name]
		counter(metricSteps, float64(j.Steps), name)
		counter(metricLate, float64(j.Late), name)
		counter(metricChanges, float64(j.Changes), name)
		gauge(metricUnsent, float64(j.Unsent), name)
		gauge(metricPending, float64(j.Pending), name)
		gauge(metricDamaged, float64(j.Damaged), name)
		gauge(metricFailing, truth(j.Failing != ""), name)
		// Before the first step there is nothing to be behind.
		if j.Judged > 0 {
			gauge(metricLag, max(0, float64(j.Newest-j.Judged)/1e9), name)
			gauge(metricBehind, time.Since(time.Unix(0, j.Judged)).Seconds(), name)
		}

		if j.Verdict != nil {
			verdictMetrics(gauge, name, j.Verdict)
		}
	}
}

// verdictMetrics are those of one job's verdict.
func verdictMetrics(gauge func(d *prometheus.Desc, v float64, labels ...string), job string, v *verdict.Verdict) {
	// A series must come once in a scrape, and a verdict may name a node for two causes: the first counts.
	seen := map[string]bool{}
	for _, n := range v.Nodes {
		if n.State == verdict.Recovered || seen[n.Node] {
			continue
		}

		seen[n.Node] = true
		gauge(metricNodeDegraded, truth(verdict.Blamed(n.State)), job, n.Node, n.Cause, n.State)
		gauge(metricNodeSlowdown, n.Slowdown, job, n.Node, n.Cause)
		gauge(metricNodeSince, float64(n.SinceStep), job, n.Node, n.Cause)
	}

	groups := map[string]bool{}
	for i, l := range v.Links {
		name := l.Group
		if name == "" || groups[name] {
			// Links of one name, or of none, are told apart by their place in the verdict.
			name += "#" + strconv.Itoa(i)
		}

		groups[name] = true
		gauge(metricLinkDegraded, truth(verdict.Blamed(l.State)), job, name)
		gauge(metricLinkSlowdown, l.Slowdown, job, name)
	}

	kinds := map[string]bool{}
	for _, f := range v.Findings {
		if !kinds[f.Kind] {
			kinds[f.Kind] = true
			gauge(metricFindingPresent, 1, job, f.Kind)
		}
	}

	gauge(metricJobImpact, v.Most(), job)
	gauge(metricJobHealthy, truth(v.Healthy), job)
	gauge(metricJobDecided, truth(v.Decided), job)
	gauge(metricJobCoverage, v.Coverage, job)
	gauge(metricJobLast, float64(v.Steps.Last), job)
}

// truth is 1 or 0, as Prometheus has truths.
func truth(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
