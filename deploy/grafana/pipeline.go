package main

// account is the ledger by job: of a segment's entries of the same state, reason
// and kind the one that has seen most of the segment counts. Entries with a batch
// count rows of tables, not records, and stay out.
const account = `entries AS (
  SELECT job, rank, segment, state, reason, kind, argMax(records, last_offset) AS n, argMax(ts, last_offset) AS at
  FROM ledger WHERE JOBS AND batch = '' AND $__timeFilter(ts)
  GROUP BY job, rank, segment, state, reason, kind
),
account AS (
  SELECT job, sumIf(n, state = 'emitted') AS emitted, sumIf(n, state = 'stored') AS stored, sumIf(n, state = 'summarised') AS summarised,
    sumIf(n, state = 'aged') AS aged, sumIf(n, state = 'dropped') AS dropped,
    toInt64(emitted) - toInt64(stored) - toInt64(summarised) - toInt64(aged) - toInt64(dropped) AS in_flight
  FROM entries GROUP BY job
)`

// arrivals is the newest row of every node with data in the time range.
const arrivals = `arrivals AS (
  SELECT job, node, uniqExact(rank) AS ranks, max(ts) AS newest, max(step) AS last_step FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job, node
),
live AS (
  SELECT job, node, ranks, newest, last_step, max(newest) OVER (PARTITION BY job) AS front FROM arrivals
)`

// pipeline answers whether it is us: lag, losses, ageing, the ledger. What is above the
// heading is asked of the store, and is blind where an agent can't reach it; what is below
// the agents' own metrics say.
func pipeline() Dashboard {
	panels := place(
		statPanel("Data age", "How long before the end of the time range the newest step of any job began. It grows when jobs stop too.", "s", 4, table(many(
			`SELECT dateDiff('second', max(ts), $__toTime) AS age FROM steps WHERE JOBS AND $__timeFilter(ts)`), "age number"), 300, 900),
		statPanel("Furthest behind", "How far the newest data of the slowest node lies behind its own job's: one agent's lag.", "s", 4, table(many(
			`WITH `+arrivals+`
SELECT max(dateDiff('second', newest, front)) AS behind FROM live`), "behind number"), 60, 300),
		statPanel("Emitted", "Records that trainers emitted, by the ledger of finished segments.", "short", 4, table(many(
			`WITH `+account+`
SELECT sum(emitted) AS emitted FROM account`), "emitted number")),
		statPanel("Lost", "Records that were emitted and are gone: dropped, or aged under the disk cap before they were shipped.", "short", 4, table(many(
			`WITH `+account+`
SELECT sum(aged) + sum(dropped) AS lost FROM account`), "lost number"), 1),
		statPanel("Share lost", "Lost of emitted.", "percentunit", 4, table(many(
			`WITH `+account+`
SELECT if(sum(emitted) > 0, (sum(aged) + sum(dropped)) / sum(emitted), 0) AS share FROM account`), "share number"), 0.0001, 0.01),
		statPanel("In flight", "Emitted and not yet accounted for. Lastingly below zero would be an error of ours.", "short", 4, table(many(
			`WITH `+account+`
SELECT sum(in_flight) AS in_flight FROM account`), "in_flight number")),
		namedPanel("Rank-steps stored", "Steps of ranks that arrived, by job, in each interval of the time they were run.", "short", 12, 8, many(
			`SELECT $__timeInterval(ts) AS time, job AS series, count() / $__interval_s AS value FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY time, series ORDER BY time, series`)).with("value", "ops"),
		namedPanel("Lost, by reason", "Records dropped or aged, by reason: ring-full is an agent too slow or absent, aged is a disk cap too small for a store that is away.", "short", 12, 8, many(
			`WITH `+account+`
SELECT $__timeInterval(at) AS time, if(reason != '', reason, state) AS series, sum(n) AS value FROM entries WHERE state IN ('aged', 'dropped') GROUP BY time, series ORDER BY time, series`)).bars(),
		pipelineLedger(), pipelineNodes(), pipelineLosses(),
		namedPanel("Coverage", "Rank-steps stored of ranks times steps seen, by job.", "percentunit", 12, 8, many(
			`WITH sizes AS (SELECT job, uniqExact(rank) AS ranks FROM ranks WHERE JOBS GROUP BY job),
seen AS (SELECT job, step, min(ts) AS at, groupBitmap(rank) AS have FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job, step)
SELECT $__timeInterval(at) AS time, job AS series, avg(least(1, have / ranks)) AS value FROM seen GLOBAL INNER JOIN sizes USING (job) GROUP BY time, series ORDER BY time, series`)),
		linePanel("Steps with a flag", "Share of rank-steps that carry a flag: host times only, estimated waits, switched, never ended, late records.", "percentunit", 12, 8, series(many(
			`SELECT $__timeInterval(ts) AS time, avg(bitTest(flags, 0)) AS "host times only", avg(bitTest(flags, 1)) AS estimated, avg(bitTest(flags, 2)) AS switched, avg(bitTest(flags, 3)) AS "never ended", avg(bitTest(flags, 4)) AS "late records"
FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY time ORDER BY time`),
			"time time, host times only number, estimated number, switched number, never ended number, late records number")),
		namedPanel("Rows stored, by table", "Rows of each table by the batches that the store acknowledged.", "short", 24, 6, many(
			`SELECT $__timeInterval(ts) AS time, "table" AS series, sum(records) AS value FROM ledger WHERE JOBS AND batch != '' AND state = 'stored' AND $__timeFilter(ts) GROUP BY time, series ORDER BY time, series`)).bars(),
		heading("Agents, as Prometheus sees them"),
		linePanel("Drain lag", "Age of the oldest record of an agent's last pass over its rings.", "s", 8, 7, promql("A", "laggard_drain_lag_seconds", "{{instance}}")),
		linePanel("Store failing", "For how long each agent's store has been failing.", "s", 8, 7, promql("A", "laggard_store_failing_seconds", "{{instance}}")),
		linePanel("Backlog", "Bytes on disk that an agent has not read yet.", "bytes", 8, 7, promql("A", "laggard_backlog_bytes", "{{instance}}")),
		linePanel("Losing", "Records lost a second, by reason; aged ones were deleted under the disk cap before they were shipped.", "ops", 8, 7,
			promql("A", "sum by (reason) (rate(laggard_records_dropped_total[5m]))", "{{reason}}"), promql("B", "sum(rate(laggard_records_aged_total[5m]))", "aged")),
		linePanel("Profiling directory", "Bytes of the directory, and bytes over the cap that nothing may be deleted for.", "bytes", 8, 7,
			promql("A", "laggard_tree_bytes", "{{instance}}"), promql("B", "laggard_tree_over_cap_bytes > 0", "{{instance}} over the cap")),
		linePanel("Retries and doubts", "Calls to the store that were repeated, and inserts that had to be looked up, a second.", "ops", 8, 7,
			promql("A", "sum(rate(laggard_store_retries_total[5m]))", "retries"), promql("B", "sum(rate(laggard_store_doubts_total[5m]))", "doubts")),
		linePanel("Watch lag", "How far `laggard watch` is behind the newest step.", "s", 8, 7, promql("A", "laggard_watch_lag_seconds", "{{job}}")),
		linePanel("Watch steps", "Steps that watch judges a second.", "ops", 8, 7, promql("A", "sum by (job) (rate(laggard_watch_steps_total[5m]))", "{{job}}")),
		linePanel("Rows refused", "Rows that the store refused and that are kept as dead letters.", "short", 8, 7, promql("A", "sum by (table) (increase(laggard_rows_poisoned_total[5m]))", "{{table}}")),
	)
	return dashboard("pipeline", "Pipeline", "Is it us? Lag, drops, ageing and the ledger.",
		[]variable{sourceVariable("prometheus", "Prometheus", "prometheus"), jobsVariable()}, panels)
}

func pipelineLedger() Panel {
	return tablePanel("Ledger", "The account of records of each job: emitted = stored + summarised + aged + dropped + in flight. Summarised records are in a step's or window's sums, not rows of their own.", 24, 6, table(many(
		`WITH `+account+`
SELECT job, emitted, stored, summarised, aged, dropped, in_flight, if(emitted > 0, (aged + dropped) / emitted, 0) AS share_lost FROM account ORDER BY share_lost DESC, job LIMIT 1000`),
		"job text, emitted number, stored number, summarised number, aged number, dropped number, in_flight number, share_lost number")).
		with("job", "", linked("Open the job", to("job", "job", "${__value.raw}"))).
		with("aged", "short", coloured(1), cell).with("dropped", "short", coloured(1), cell).
		with("share_lost", "percentunit", coloured(0.0001, 0.01), cell)
}

// pipelineNodes tells an agent that lags from a job that has stopped: nodes are compared
// within their job alone.
func pipelineNodes() Panel {
	return tablePanel("Nodes, the furthest behind first", "The newest step of each node's ranks, behind the newest of its job. A node that stays behind has an agent that lags or is gone; in synchronous training its ranks can't be.", 12, 9, table(many(
		`WITH `+arrivals+`
SELECT job, node, ranks, last_step, newest, dateDiff('second', newest, front) AS behind FROM live ORDER BY behind DESC, job, node LIMIT 500`),
		"job text, node text, ranks number, last_step number, newest time, behind number")).
		with("behind", "s", coloured(60, 300), cell)
}

func pipelineLosses() Panel {
	return tablePanel("Where records were lost", "Ranks with losses, by reason and kind.", 12, 9, table(many(
		`WITH `+account+`,
places AS (SELECT job, rank, argMax(node, (started_ns, version)) AS node FROM ranks WHERE JOBS GROUP BY job, rank)
SELECT job, node, rank, state, reason, kind, sum(n) AS records, max(at) AS last
FROM entries GLOBAL ANY LEFT JOIN places USING (job, rank) WHERE state IN ('aged', 'dropped') GROUP BY job, node, rank, state, reason, kind ORDER BY records DESC LIMIT 500`),
		"job text, node text, rank number, state text, reason text, kind text, records number, last time"))
}
