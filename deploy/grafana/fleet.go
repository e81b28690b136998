package main

// fleet is the first page: which jobs, which nodes, what it costs.
func fleet() Dashboard {
	panels := place(
		statPanel("Jobs with data", "Jobs that stored at least one step in the time range.", "short", 4, table(many(
			`SELECT uniqExact(job) AS jobs FROM steps WHERE JOBS AND $__timeFilter(ts)`), "jobs number")),
		statPanel("Degraded nodes", "Nodes whose last verdict is degraded or intermittent, in jobs with data.", "short", 4, table(many(
			`WITH `+current+`
SELECT uniqExactIf((job, node), node != '' AND state IN ('degraded', 'intermittent')) AS nodes FROM current`), "nodes number"), 1),
		statPanel("Slow links", "Communication groups whose last verdict is degraded or intermittent.", "short", 4, table(many(
			`WITH `+current+`
SELECT uniqExactIf((job, "group"), "group" != '' AND state IN ('degraded', 'intermittent')) AS links FROM current`), "links number"), 1),
		statPanel("Node-hours used", "Nodes of each job times the time that it has data for.", "h", 4, table(many(
			`WITH `+losses+`
SELECT sum(used) AS used FROM losses`), "used number")),
		statPanel("Node-hours lost", "What culprits cost in the time range: the impact of all of a job's together times its nodes, for as long as it lasted.", "h", 4, table(many(
			`WITH `+losses+`
SELECT sum(lost) AS lost FROM losses`), "lost number"), 0.01, 10),
		statPanel("Share lost", "Node-hours lost of the node-hours used.", "percentunit", 4, table(many(
			`WITH `+losses+`
SELECT if(sum(used) > 0, sum(lost) / sum(used), 0) AS share FROM losses`), "share number"), 0.01, 0.05),
		culprits(),
		jobsTable(),
		namedPanel("Step time, relative", "Each job's step time beside its own median in the time range: 1.2 is 20 % slower than usual. It says that a job became slow, not who is to blame.", "percentunit", 12, 9, many(
			`WITH usual AS (SELECT job, quantile(0.5)(step_ns) AS median FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job),
shown AS (SELECT $__timeInterval(ts) AS time, job AS series, quantile(0.5)(step_ns) AS step FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY time, series)
SELECT time, series, step / median AS value
FROM shown GLOBAL ANY LEFT JOIN usual ON shown.series = usual.job
ORDER BY time, series`)),
		namedPanel("Verdicts by cause", "How many nodes and links turned degraded or intermittent, by cause.", "short", 12, 9, many(
			`WITH turns AS (
  SELECT ts, "group", state, cause, lagInFrame(state, 1, '') OVER (PARTITION BY job, node, "group" ORDER BY at_ns, step ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
  FROM verdicts WHERE JOBS AND finding = '' AND $__timeFilter(ts)
)
SELECT $__timeInterval(ts) AS time, if("group" != '', 'link', cause) AS series, count() AS value
FROM turns WHERE state IN ('degraded', 'intermittent') AND before NOT IN ('degraded', 'intermittent')
GROUP BY time, series ORDER BY time, series`)).bars(),
		repeaters(),
	)
	return dashboard("fleet", "Fleet", "Jobs, degraded nodes and links, and what they cost.", []variable{jobsVariable()}, panels)
}

// culprits is the table to act on.
func culprits() Panel {
	return tablePanel("Degraded nodes and links", "The last word of `laggard watch` on every node and link that isn't well, the costliest first. Click a node for the evidence in its job.", 24, 7, table(many(
		`WITH `+current+`
SELECT job, node, "group" AS link, state, if("group" != '', 'link', cause) AS cause, JSONExtractFloat(body, 'slowdown') AS slowdown, impact,
  JSONExtractInt(body, 'since_step') AS since_step, ts AS decided, detail
FROM current WHERE finding = '' AND state IN ('degraded', 'intermittent', 'suspect')
ORDER BY state = 'suspect', impact DESC, job, node LIMIT 500`),
		"job text, node text, link text, state text, cause text, slowdown number, impact number, since_step number, decided time, detail text")).
		with("job", "", linked("Open the job", to("job", "job", "${__data.fields.job}"))).
		with("node", "", linked("Open the node in its job", to("job", "job", "${__data.fields.job}", "node", "${__data.fields.node}"))).
		with("state", "", words, cell).
		with("slowdown", "suffix: ×", property{"decimals", 2}).
		with("impact", "percentunit", coloured(0.01, 0.05), cell, property{"decimals", 1}).
		with("detail", "", property{"custom.width", 520})
}

// jobsTable is one row per job.
func jobsTable() Panel {
	return tablePanel("Jobs", "Jobs with data, the costliest first. `age` is how long ago the newest stored step began, as of the end of the time range; a job that has ended has none.", 24, 8, table(many(
		`WITH `+losses+`,
`+current+`,
blamed AS (
  SELECT job, uniqExactIf(node, node != '' AND state IN ('degraded', 'intermittent')) AS bad, anyIf(impact, `+whole+`) AS impact
  FROM current GROUP BY job
),
paces AS (
  SELECT job, max(step) AS last_step, quantile(0.5)(step_ns) / 1e9 AS step_s, max(ts) AS newest FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job
)
SELECT job, ranks, sizes.nodes AS nodes, last_step, step_s, if(alive > 0, dateDiff('second', newest, $__toTime), NULL) AS age, bad AS degraded, impact, lost
FROM paces ANY LEFT JOIN sizes USING (job) ANY LEFT JOIN losses USING (job) ANY LEFT JOIN blamed USING (job)
ORDER BY lost DESC, job LIMIT 1000`),
		"job text, ranks number, nodes number, last_step number, step_s number, age number, degraded number, impact number, lost number")).
		with("job", "", linked("Open the job", to("job", "job", "${__value.raw}"))).
		with("step_s", "s", property{"displayName", "step time"}).
		with("age", "s", coloured(300, 900), cell).
		with("degraded", "short", coloured(1), cell).
		with("impact", "percentunit", coloured(0.01, 0.05), cell).
		with("lost", "h", property{"displayName", "node-hours lost"})
}

// repeaters are nodes that come back.
func repeaters() Panel {
	return tablePanel("Nodes that come back", "Nodes by the number of times a verdict on them turned degraded or intermittent, over all jobs: what to take out for repair.", 24, 6, table(many(
		`WITH turns AS (
  SELECT job, node, state, cause, ts, impact_ppm / 1e6 AS impact,
    lagInFrame(state, 1, '') OVER (PARTITION BY job, node ORDER BY at_ns, step ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
  FROM verdicts WHERE JOBS AND node != '' AND finding = '' AND $__timeFilter(ts)
)
SELECT node, count() AS episodes, uniqExact(job) AS jobs, arrayStringConcat(arraySort(groupUniqArray(cause)), ', ') AS causes, max(impact) AS worst, min(ts) AS first, max(ts) AS last
FROM turns WHERE state IN ('degraded', 'intermittent') AND before NOT IN ('degraded', 'intermittent')
GROUP BY node ORDER BY episodes DESC, worst DESC LIMIT 200`),
		"node text, episodes number, jobs number, causes text, worst number, first time, last time")).
		with("worst", "percentunit", coloured(0.01, 0.05), cell)
}
