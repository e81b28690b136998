package main

// alert is one alert: a rule of Grafana over ClickHouse and its twin for
// Prometheus, which asks the agents' and watch's metrics.
type alert struct {
	Name     string
	Title    string
	Summary  string
	Action   string // what a person does about it
	Severity string
	For      string

	SQL     string // one number column, the others become labels
	Columns string
	Above   float64 // fires for rows above it
	Window  int     // seconds that the query looks back

	Expr         string // PromQL
	AgentSummary string // the summary where that metric knows an agent and no job; "" = Summary
}

// A culprit is worth waking somebody up for where its job is not healthy: what watch's
// --min-impact says, also of equally slow nodes, each of which alone costs next to nothing.
const (
	harmed   = "job GLOBAL IN (SELECT job FROM current WHERE " + whole + " AND state = 'unhealthy')"
	wellJobs = "  unless on (namespace, pod, instance, job, exported_job) laggard_job_healthy == 1"
)

var alerts = []alert{
	{
		Name: "LaggardSlowNode", Title: "Slow node", Severity: "warning", For: "2m",
		Summary: "{{ $labels.node }} slows job {{ $labels.job }} down ({{ $labels.cause }}).",
		Action: "Open the Job page for the evidence. compute: check clocks, temperature and ECC of the device, move the job off it. host: look for other load on the node. " +
			"dataloader or checkpoint: look at the node's storage path. communication: check its NIC and cables. Cordon the node when it comes back.",
		SQL: every(`WITH ` + current + `
SELECT job, node, cause, count() AS degraded FROM current
WHERE node != '' AND finding = '' AND state IN ('degraded', 'intermittent') AND ` + harmed + ` GROUP BY job, node, cause`),
		Columns: "job text, node text, cause text, degraded number", Above: 0, Window: 3600,
		Expr: "laggard_node_degraded > 0\n" + wellJobs,
	},
	{
		Name: "LaggardSlowLink", Title: "Slow link", Severity: "warning", For: "2m",
		Summary: "Communication group {{ $labels.group }} of job {{ $labels.job }} is slow.",
		Action:  "Open the Job page, \"Groups against their like\". Check the switch ports and NICs between the group's nodes, error and pause counters first; a link that several jobs name is the one to replace.",
		SQL: every(`WITH ` + current + `
SELECT job, "group", count() AS degraded FROM current
WHERE "group" != '' AND finding = '' AND state IN ('degraded', 'intermittent') AND ` + harmed + ` GROUP BY job, "group"`),
		Columns: "job text, group text, degraded number", Above: 0, Window: 3600,
		Expr: "laggard_link_degraded > 0\n" + wellJobs,
	},
	{
		Name: "LaggardShippingLag", Title: "Shipping lag", Severity: "warning", For: "5m",
		Summary: "What node {{ $labels.node }} stores lies far behind its job {{ $labels.job }}.",
		Action:  "Open the Pipeline page. Is the agent of that node running, does its log name the store, is the store reachable and its disk not full? Nothing is lost while the disk cap holds: it ships what it kept.",
		SQL: every(`WITH ` + arrivals + `
SELECT job, node, dateDiff('second', newest, front) AS behind FROM live`),
		Columns: "job text, node text, behind number", Above: 300, Window: 3600,
		Expr:         "laggard_store_failing_seconds > 300\nor (time() - laggard_store_last_ack_timestamp_seconds > 300 and laggard_pending_rows > 0)\nor laggard_watch_lag_seconds > 300",
		AgentSummary: "{{ $labels.instance }} has not shipped for {{ $value | humanizeDuration }}.",
	},
	{
		Name: "LaggardRecordsLost", Title: "Records lost", Severity: "warning", For: "0m",
		Summary: "Records of job {{ $labels.job }} were lost ({{ $labels.cause }}).",
		Action: "Open the Pipeline page, \"Where records were lost\". ring-full: give the agent CPU or a volume that is not full, or the rings more slots. no-ring: a larger tmpfs. aged: raise --cap or bring the store back. " +
			"corrupt or torn-line: look for crashed trainers. Verdicts stay right down to the coverage that they state.",
		SQL: every(`WITH ` + account + `
SELECT job, if(reason != '', reason, state) AS cause, sum(n) AS records FROM entries WHERE state IN ('aged', 'dropped') AND reason != 'not-selected' GROUP BY job, cause`),
		// A segment's losses carry the time of its name, when it was begun: hours ago in a quiet job.
		Columns: "job text, cause text, records number", Above: 0, Window: 6 * 3600,
		Expr: "sum by (namespace, pod, instance, reason) (increase(laggard_records_dropped_total[15m])) > 0\n" +
			"or sum by (namespace, pod, instance) (increase(laggard_records_aged_total[15m])) > 0\n" +
			"or sum by (namespace, pod, instance) (increase(laggard_rows_poisoned_total[15m])) > 0",
		AgentSummary: "The agent {{ $labels.instance }} lost records ({{ $labels.reason }}).",
	},
	{
		Name: "LaggardJobWithoutData", Title: "Job without data", Severity: "critical", For: "5m",
		Summary: "Job {{ $labels.job }} has not ended and stores no steps.",
		Action: "Is the job hung (its log, py-spy on one rank), or only its recording off? `laggard trace status` shows the switch; LAGGARD_AUTO=1 and PYTHONPATH must be set in the trainer; " +
			"the Pipeline page shows whether the agents are well.",
		// Running: no end is known of a process that started last in its rank's place.
		SQL: `WITH running AS (
  SELECT job, max(started_ns) AS started FROM (
    SELECT job, rank, started_ns, ended_ns FROM ranks WHERE $__fromTime <= toDateTime(greatest(started_ns, ended_ns) / 1e9) OR ended_ns = 0 ORDER BY job, rank, started_ns DESC, version DESC LIMIT 1 BY job, rank
  ) WHERE ended_ns = 0 GROUP BY job
),
newest AS (SELECT job, max(start_ns) AS at_ns FROM steps WHERE $__timeFilter(ts) GROUP BY job)
SELECT job, toFloat64(toUnixTimestamp($__toTime)) - greatest(started, at_ns) / 1e9 AS silence
FROM running GLOBAL ANY LEFT JOIN newest USING (job)
WHERE greatest(started, at_ns) / 1e9 > toUnixTimestamp($__fromTime)`,
		Columns: "job text, silence number", Above: 900, Window: 86400,
		Expr: "(sum by (namespace, pod, instance) (laggard_recorders) > 0\n  unless sum by (namespace, pod, instance) (increase(laggard_records_drained_total[15m])) > 0)\n" +
			"or increase(laggard_watch_steps_total[15m]) == 0",
		AgentSummary: "Nothing was recorded for 15 minutes (agent {{ $labels.instance }}, job {{ $labels.job }}).",
	},
}
