package watch

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Ready answers /readyz: the watcher is ready once a look has succeeded.
func (w *Watcher) Ready(answer http.ResponseWriter, _ *http.Request) {
	if s := w.Status(); s.LastLook.IsZero() {
		http.Error(answer, "no look has succeeded yet: "+s.LastError, http.StatusServiceUnavailable)
		return
	}

	fmt.Fprintln(answer, "ok")
}

// emit sends a metric, by its name and what it says, with the names of its labels and then their values.
type emit = func(name, help string, v float64, label ...string)

// Metrics sends how the watcher does now. deep returns how many nodes are recorded in depth, and how many
// calls of switches failed; nil where nothing is.
func (w *Watcher) Metrics(counter, gauge emit, deep func() (nodes, failures int)) {
	s := w.Status()
	counter("watch_looks_total", "Looks at the source.", float64(s.Looks-s.Failed), "result", "ok")
	counter("watch_looks_total", "Looks at the source.", float64(s.Failed), "result", "failed")
	counter("watch_jobs_dropped_total", "Jobs dropped because nothing new came.", float64(s.Dropped))
	counter("watch_jobs_taken_total", "Jobs of which something was said before this watcher followed them.", float64(s.Taken))
	counter("watch_changes_repeated_total", "Changes that were left out because the watcher before had stored them.", float64(s.Repeated))
	gauge("watch_jobs", "Jobs followed.", float64(len(s.Jobs)))
	gauge("watch_thresholds_bad", "1 while the thresholds file can't be used and the last good one counts.", truth(s.BadThresholds != ""))
	if deep != nil {
		nodes, failures := deep()
		gauge("watch_deep_nodes", "Nodes that --deepen records in depth, or is switching.", float64(nodes))
		counter("watch_deep_failures_total", "Calls to agents' switches that failed.", float64(failures))
	}

	if !s.LastLook.IsZero() {
		gauge("watch_last_look_timestamp_seconds", "When a look last succeeded.", float64(s.LastLook.UnixNano())/1e9)
	}

	for _, name := range slices.Sorted(maps.Keys(s.Jobs)) {
		j := s.Jobs[name]
		counter("watch_steps_total", "Steps judged.", float64(j.Steps), "job", name)
		counter("watch_late_rows_total", "Rows that came after their step was judged.", float64(j.Late), "job", name)
		counter("watch_changes_total", "Changes of verdicts.", float64(j.Changes), "job", name)
		gauge("watch_unsent_changes", "Changes that the store of verdicts has not acknowledged.", float64(j.Unsent), "job", name)
		gauge("watch_pending_steps", "Steps that wait for the rows of ranks.", float64(j.Pending), "job", name)
		gauge("watch_damaged_files", "Compressed files that could not be read to their end.", float64(j.Damaged), "job", name)
		gauge("watch_job_failing", "1 while the job can't be read.", truth(j.Failing != ""), "job", name)
		// Before the first step there is nothing to be behind.
		if j.Judged > 0 {
			gauge("watch_lag_seconds", "Recorded time between the newest row and the newest step judged.", max(0, float64(j.Newest-j.Judged)/1e9), "job", name)
			gauge("watch_behind_seconds", "Age of the start of the newest step judged.", time.Since(time.Unix(0, j.Judged)).Seconds(), "job", name)
		}

		if j.Verdict != nil {
			verdictMetrics(gauge, name, j.Verdict)
		}
	}
}

// verdictMetrics are those of one job's verdict.
func verdictMetrics(gauge emit, job string, v *verdict.Verdict) {
	// A series must come once in a scrape, and a verdict may name a node for two causes: the first counts.
	seen := map[string]bool{}
	for _, n := range v.Nodes {
		if n.State == verdict.Recovered || seen[n.Node] {
			continue
		}

		seen[n.Node] = true
		gauge("node_degraded", "1 for each node that is named: its state is a label.", truth(verdict.Blamed(n.State)), "job", "node", "cause", "state", job, n.Node, n.Cause, n.State)
		gauge("node_slowdown", "Slowdown against peers of the same role, 1 = equal.", n.Slowdown, "job", "node", "cause", job, n.Node, n.Cause)
		gauge("node_since_step", "First slow step.", float64(n.SinceStep), "job", "node", "cause", job, n.Node, n.Cause)
	}

	groups := map[string]bool{}
	for i, l := range v.Links {
		name := l.Group
		if name == "" || groups[name] {
			// Links of one name, or of none, are told apart by their place in the verdict.
			name += "#" + strconv.Itoa(i)
		}

		groups[name] = true
		gauge("link_degraded", "1 for each slow communication group.", truth(verdict.Blamed(l.State)), "job", "group", job, name)
		gauge("link_slowdown", "Slowdown of the group's transfer.", l.Slowdown, "job", "group", job, name)
	}

	kinds := map[string]bool{}
	for _, f := range v.Findings {
		if !kinds[f.Kind] {
			kinds[f.Kind] = true
			gauge("finding", "1 for each finding about the job.", 1, "job", "kind", job, f.Kind)
		}
	}

	gauge("job_impact", "Share of step time that the job would save without its slow nodes and links, at most.", v.Most(), "job", job)
	gauge("job_healthy", "1 when nothing above --min-impact is degraded.", truth(v.Healthy), "job", job)
	gauge("job_decided", "0 when too little was measured to decide.", truth(v.Decided), "job", job)
	gauge("job_coverage", "Measured share of the rank-steps.", v.Coverage, "job", job)
	gauge("job_last_step", "Newest step that was judged.", float64(v.Steps.Last), "job", job)
}

// truth is 1 or 0, as Prometheus has truths.
func truth(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
