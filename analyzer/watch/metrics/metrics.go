// Package metrics shows what a watcher knows as Prometheus metrics.
//
// Invariant: nothing is counted here; each metric is read from the watcher's status when
// it is asked for. Caveat: names and labels are what dashboards and alerts refer to.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("laggard_"+name, help, labels, nil)
}

// The metrics of watch, by name.
var (
	nodeDegraded   = description("node_degraded", "1 for each node that is named: its state is a label.", "job", "node", "cause", "state")
	nodeSlowdown   = description("node_slowdown", "Slowdown against peers of the same role, 1 = equal.", "job", "node", "cause")
	nodeSince      = description("node_since_step", "First slow step.", "job", "node", "cause")
	linkDegraded   = description("link_degraded", "1 for each slow communication group.", "job", "group")
	linkSlowdown   = description("link_slowdown", "Slowdown of the group's transfer.", "job", "group")
	jobImpact      = description("job_impact", "Share of step time that the job would save without its slow nodes and links, at most.", "job")
	jobHealthy     = description("job_healthy", "1 when nothing above --min-impact is degraded.", "job")
	jobDecided     = description("job_decided", "0 when too little was measured to decide.", "job")
	jobCoverage    = description("job_coverage", "Measured share of the rank-steps.", "job")
	jobLast        = description("job_last_step", "Newest step that was judged.", "job")
	findingPresent = description("finding", "1 for each finding about the job.", "job", "kind")
	steps          = description("watch_steps_total", "Steps judged.", "job")
	late           = description("watch_late_rows_total", "Rows that came after their step was judged.", "job")
	pending        = description("watch_pending_steps", "Steps that wait for the rows of ranks.", "job")
	lag            = description("watch_lag_seconds", "Recorded time between the newest row and the newest step judged.", "job")
	behind         = description("watch_behind_seconds", "Age of the start of the newest step judged.", "job")
	changes        = description("watch_changes_total", "Changes of verdicts.", "job")
	unsent         = description("watch_unsent_changes", "Changes that the store of verdicts has not acknowledged.", "job")
	damaged        = description("watch_damaged_files", "Compressed files that could not be read to their end.", "job")
	failing        = description("watch_job_failing", "1 while the job can't be read.", "job")
	jobs           = description("watch_jobs", "Jobs followed.")
	dropped        = description("watch_jobs_dropped_total", "Jobs dropped because nothing new came.")
	taken          = description("watch_jobs_taken_total", "Jobs of which something was said before this watcher followed them.")
	repeated       = description("watch_changes_repeated_total", "Changes that were left out because the watcher before had stored them.")
	looks          = description("watch_looks_total", "Looks at the source.", "result")
	lastLook       = description("watch_last_look_timestamp_seconds", "When a look last succeeded.")
	deep           = description("watch_deep_nodes", "Nodes that --deepen records in depth, or is switching.")
	deepFailed     = description("watch_deep_failures_total", "Calls to agents' switches that failed.")
	thresholds     = description("watch_thresholds_bad", "1 while the thresholds file can't be used and the last good one counts.")
)

type emit func(d *prometheus.Desc, v float64, labels ...string)

// Watcher is a collector over the status of a watcher.
type Watcher struct {
	Status func() watch.Status
	// Deep returns how many nodes are recorded in depth, and how many calls of switches
	// failed; nil where nothing is.
	Deep func() (nodes, failures int)
}

// Describe implements prometheus.Collector.
func (m *Watcher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Watcher) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := m.Status()
	counter(looks, float64(s.Looks-s.Failed), "ok")
	counter(looks, float64(s.Failed), "failed")
	counter(dropped, float64(s.Dropped))
	counter(taken, float64(s.Taken))
	counter(repeated, float64(s.Repeated))
	gauge(jobs, float64(len(s.Jobs)))
	gauge(thresholds, truth(s.BadThresholds != ""))
	if m.Deep != nil {
		nodes, failures := m.Deep()
		gauge(deep, float64(nodes))
		counter(deepFailed, float64(failures))
	}

	if !s.LastLook.IsZero() {
		gauge(lastLook, float64(s.LastLook.UnixNano())/1e9)
	}

	for _, name := range s.Names() {
		j := s.Jobs[name]
		counter(steps, float64(j.Steps), name)
		counter(late, float64(j.Late), name)
		counter(changes, float64(j.Changes), name)
		gauge(unsent, float64(j.Unsent), name)
		gauge(pending, float64(j.Pending), name)
		gauge(damaged, float64(j.Damaged), name)
		gauge(failing, truth(j.Failing != ""), name)
		if j.Judged > 0 {
			gauge(lag, max(0, float64(j.Newest-j.Judged)/1e9), name)
			gauge(behind, time.Since(time.Unix(0, j.Judged)).Seconds(), name)
		}

		if j.Verdict != nil {
			verdictMetrics(gauge, name, j.Verdict)
		}
	}
}

// verdictMetrics are those of one job's verdict.
func verdictMetrics(gauge emit, job string, v *verdict.Verdict) {
	seen := map[string]bool{}
	for _, n := range v.Nodes {
		if n.State == verdict.Recovered || seen[n.Node] {
			continue
		}

		seen[n.Node] = true
		gauge(nodeDegraded, truth(verdict.Blamed(n.State)), job, n.Node, n.Cause, n.State)
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
		gauge(linkDegraded, truth(verdict.Blamed(l.State)), job, name)
		gauge(linkSlowdown, l.Slowdown, job, name)
	}

	kinds := map[string]bool{}
	for _, f := range v.Findings {
		if !kinds[f.Kind] {
			kinds[f.Kind] = true
			gauge(findingPresent, 1, job, f.Kind)
		}
	}

	gauge(jobImpact, v.Most(), job)
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
