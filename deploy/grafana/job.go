package main

// job is one job: is it slow, since when, who, why, what does it cost.
func job() Dashboard {
	panels := place(
		statPanel("Verdict", "The last word of `laggard watch`, as every other output begins. \"no verdict\" means that watch has not looked at this job.", "", 6, table(one(
			`WITH `+current+`
SELECT if(count() > 0, any(detail), 'no verdict') AS verdict FROM current WHERE `+whole), "verdict text")),
		statPanel("Impact", "The share of step time that the job would save without all its culprits together: at most, where parallel groups aren't known. It is the verdict's, not the sum of the nodes': ranks that wait for one another hide each other.", "percentunit", 3, table(one(
			`WITH `+current+`
SELECT impact FROM current WHERE `+whole), "impact number"), 0.01, 0.05),
		statPanel("Node-hours lost", "Impact times the nodes of the job, for as long as it lasted within the time range.", "h", 3, table(one(
			`WITH `+losses+`
SELECT sum(lost) AS lost FROM losses`), "lost number"), 0.01, 10),
		statPanel("Median step", "Median over all ranks and steps in the time range.", "s", 3, table(
			`SELECT quantileExact(0.5)(step_ns) / 1e9 AS step FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)`, "step number")),
		statPanel("Tokens", "Tokens a second that the recorded ranks say they worked on; no data where the trainer gives none.", "short", 3, table(
			`SELECT if(maxIf(tokens, tokens > 0) > 0, sumIf(tokens, tokens > 0) / nullIf((max(start_ns + step_ns) - min(start_ns)) / 1e9, 0), NULL) AS tokens
FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)`, "tokens number")),
		statPanel("Coverage", "Rank-steps that are stored, of ranks times steps seen. Below 1 something is missing: see the pipeline's page.", "percentunit", 3, table(
			`SELECT sum(have) / nullIf(count() * (SELECT uniqExact(rank) FROM ranks WHERE job = ${job:sqlstring}), 0) AS coverage
FROM (SELECT step, groupBitmap(rank) AS have FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts) GROUP BY step)`, "coverage number")),
		statPanel("Data age", "How long before the end of the time range the newest stored step began.", "s", 3, table(
			`SELECT dateDiff('second', max(ts), $__toTime) AS age FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)`, "age number"), 300, 900),
		jobHeat(),
		jobCauses(),
		linePanel("Step time", "Median step, and the slowest rank's. All ranks of synchronous training wait for the slowest, so both move together; where they part, a rank's step was cut differently.", "s", 12, 8, series(
			`SELECT $__timeInterval(ts) AS time, quantile(0.5)(step_ns) / 1e9 AS median, max(step_ns) / 1e9 AS slowest
FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)
GROUP BY time ORDER BY time`, "time time, median number, slowest number")),
		partsPanel("Where the time goes", "A step's mean over ranks: forward, other own work (backward, optimizer, host), communication that blocked, data loading, checkpoint.",
			"job = ${job:sqlstring} AND $__timeFilter(ts)", ""),
		jobSlowest(),
		jobImpact(),
		jobFindings(),
		linePanel("Communication by dimension", "Time in communication of each parallel dimension: a rank's mean a step. Waiting for a slow peer counts here too.", "s", 12, 8, series(
			`SELECT $__timeInterval(ts) AS time,
  sumIf(comm_tp_ns, comm_tp_ns > 0) / count() / 1e9 AS tensor, sumIf(comm_pp_ns, comm_pp_ns > 0) / count() / 1e9 AS pipeline,
  sumIf(comm_dp_ns, comm_dp_ns > 0) / count() / 1e9 AS data, sumIf(comm_cp_ns, comm_cp_ns > 0) / count() / 1e9 AS context,
  sumIf(comm_ep_ns, comm_ep_ns > 0) / count() / 1e9 AS expert, sumIf(comm_other_ns, comm_other_ns > 0) / count() / 1e9 AS other
FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)
GROUP BY time ORDER BY time`, "time time, tensor number, pipeline number, data number, context number, expert number, other number")),
		jobLinks(),
	)
	d := dashboard("job", "Job", "One job: step time, own time by role, causes, impact.", []variable{jobVariable(), nodeVariable(), measureVariable()}, panels)
	d.Annotations.List = annotations()
	return d
}

// jobHeat is every rank against its role. Above 128 ranks a row is several
// neighbours of one role, and shows the slowest of them.
func jobHeat() Panel {
	return heatPanel("Own time against the role, rank by rank", "Each row is a rank (of a large job: a few neighbours of one role, the slowest shown), ordered by role; each cell is its measure divided by the median of its role at that time. One red row is a slow rank; a red column is slow for everybody and blames no rank.", "percentunit", 24, 12, 0.9, 1.3, series(
		`WITH `+seats+`,
places AS (SELECT rank, incarnation, node, role, dense_rank() OVER (ORDER BY role, rank) AS place FROM seats),
bands AS (SELECT rank, incarnation, node, role, intDiv(place - 1, greatest(1, intDiv((SELECT max(place) FROM places) + 127, 128))) AS band FROM places),
lines AS (SELECT band, concat(min(role), ' r', leftPad(toString(min(rank)), 5, '0')) AS series FROM bands GROUP BY band),
cells AS (
  SELECT rank, incarnation, $__timeInterval(ts) AS time, avg(${measure:raw}) AS own
  FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts) AND ${measure:raw} >= 0
    AND rank GLOBAL IN (SELECT rank FROM seats WHERE role IN (SELECT role FROM seats WHERE $__conditionalAll(node IN (${node:sqlstring}), $node)))
  GROUP BY rank, incarnation, time
),
roles AS (
  SELECT time, quantileExact(0.5)(own) AS usual, groupArray((band, node, own)) AS members
  FROM cells GLOBAL INNER JOIN bands USING (rank, incarnation)
  GROUP BY role, time
)
SELECT time, series, max(own / usual) AS value
FROM (SELECT time, usual, member.1 AS band, member.2 AS node, member.3 AS own FROM roles ARRAY JOIN members AS member) AS placed INNER JOIN lines USING (band)
WHERE $__conditionalAll(node IN (${node:sqlstring}), $node)
GROUP BY time, series ORDER BY time, series`, "time time, series text, value number"))
}

// jobCauses is the verdict as watch stores it, the culprits before suspects and those that
// have recovered. The column rank is hidden: the link in ranks needs one number.
func jobCauses() Panel {
	return tablePanel("Causes", "What `laggard watch` says of this job's nodes and links now, with the evidence in words.", 24, 5, table(one(
		`WITH `+current+`
SELECT if(node != '', node, "group") AS subject, state, if("group" != '', 'link', cause) AS cause, JSONExtractFloat(body, 'slowdown') AS slowdown, impact,
  JSONExtractInt(body, 'since_step') AS since_step, JSONExtractFloat(body, 'confidence') AS confidence,
  arrayStringConcat(arrayMap(r -> toString(r), JSONExtract(body, 'ranks', 'Array(UInt32)')), ', ') AS ranks, JSONExtract(body, 'ranks', 'Array(UInt32)')[1] AS rank, detail
FROM current WHERE finding = '' AND NOT (`+whole+`)
ORDER BY state IN ('degraded', 'intermittent') DESC, impact DESC LIMIT 200`),
		"subject text, state text, cause text, slowdown number, impact number, since_step number, confidence number, ranks text, rank number, detail text")).
		with("state", "", words, cell).
		with("slowdown", "suffix: ×", property{"decimals", 2}).
		with("impact", "percentunit", coloured(0.01, 0.05), cell, property{"decimals", 1}).
		with("confidence", "percentunit").
		with("ranks", "", linked("Open the first of them", to("rank", "job", "${job}", "rank", "${__data.fields.rank}"))).
		with("rank", "", property{"custom.hidden", true}).
		with("detail", "", property{"custom.width", 520})
}

// jobSlowest compares means over the time range, so that a rank which is slow all the time
// stands above one that had a slow step.
func jobSlowest() Panel {
	return tablePanel("Ranks against their role", "The measure of each rank (mean a step) beside the median of its role, the slowest first, and the share of its step that it waits. A culprit does more and waits less than its peers. Click a rank to see it beside them.", 12, 9, table(
		`WITH `+seats+`,
own AS (
  SELECT rank, incarnation, avgIf(${measure:raw}, ${measure:raw} >= 0) / 1e9 AS mean, sumIf(exposed_ns, exposed_ns > 0) / sum(step_ns) AS waiting, count() AS steps
  FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts)
    AND rank GLOBAL IN (SELECT rank FROM seats WHERE role IN (SELECT role FROM seats WHERE $__conditionalAll(node IN (${node:sqlstring}), $node)))
  GROUP BY rank, incarnation
),
placed AS (
  SELECT rank, node, role, mean, steps, waiting, quantile(0.5)(mean) OVER (PARTITION BY role) AS peers
  FROM own GLOBAL INNER JOIN seats USING (rank, incarnation) WHERE isFinite(mean)
)
SELECT rank, node, role, mean AS own, peers, own / peers AS ratio, waiting, steps
FROM placed WHERE $__conditionalAll(node IN (${node:sqlstring}), $node)
ORDER BY ratio DESC LIMIT 100`,
		"rank number, node text, role text, own number, peers number, ratio number, waiting number, steps number")).
		with("rank", "", linked("Open the rank", to("rank", "job", "${job}", "rank", "${__value.raw}"))).
		with("own", "s").with("peers", "s").
		with("ratio", "percentunit", coloured(1.05, 1.15), cell).
		with("waiting", "percentunit")
}

// jobImpact draws steps, not points: a verdict holds until the next one. One from before the
// time range is drawn from the range's start, and the last one to its end.
func jobImpact() Panel {
	return namedPanel("Impact over time", "What each node or link costs the job, and all of them together, as decided at the time, kept until the next word; 0 from its recovery on.", "percentunit", 12, 9,
		`WITH points AS (
  SELECT ts, multiIf(node != '', node, "group" != '', "group", 'all together') AS series, if(state IN ('suspect', 'recovered'), 0, impact_ppm / 1e6) AS value
  FROM verdicts WHERE job = ${job:sqlstring} AND ts <= $__toTime AND finding = '' AND $__conditionalAll(node IN ('', ${node:sqlstring}), $node)
)
SELECT time, series, argMax(value, ts) AS value
FROM (
  SELECT greatest(toDateTime(ts, 'UTC'), toDateTime($__fromTime, 'UTC')) AS time, series, value, ts FROM points
  UNION ALL SELECT toDateTime($__toTime, 'UTC') AS time, series, value, ts FROM points
)
GROUP BY time, series ORDER BY time, series`).steps().from(0)
}

// steps keeps a value until the next.
func (p Panel) steps() Panel {
	c := p.FieldConfig.Defaults.Custom
	c["lineInterpolation"], c["spanNulls"], c["lineWidth"] = "stepAfter", true, 2
	return p
}

// from sets the lower end of the axis.
func (p Panel) from(least float64) Panel {
	p.FieldConfig.Defaults.Min = &least
	return p
}

func jobFindings() Panel {
	return tablePanel("Findings", "What is wrong with the job and no node is to blame for: imbalance, shared storage, a job that is slow as a whole, too little data.", 24, 4, table(one(
		`WITH `+current+`
SELECT finding, impact, step, ts AS decided, detail FROM current WHERE finding != '' AND state != 'recovered' ORDER BY impact DESC LIMIT 100`),
		"finding text, impact number, step number, decided time, detail text")).
		with("impact", "percentunit", coloured(0.05, 0.2), cell).
		with("detail", "", property{"custom.width", 700})
}

// jobLinks compares groups of one dimension and op by the time that the rank
// which waited least spent: it came last, so it waited for nobody.
func jobLinks() Panel {
	return tablePanel("Groups against their like", "Transfer time of each group's calls: that of the member that spent least, as it came last and waited for nobody, beside the median of groups of the same dimension and op. Slow here, and in no rank's own time, is a slow link. Collectives only: who sends and receives waits for one peer.", 12, 8, table(
		`WITH members AS (
  SELECT "group", dim, op, rank, sum(total_ns) / sum(calls) AS per_call, sum(bytes) / sum(total_ns) AS rate, sum(bytes) / sum(calls) AS size
  FROM communications WHERE job = ${job:sqlstring} AND $__timeFilter(ts) AND op NOT IN ('send', 'recv')
  GROUP BY "group", dim, op, rank
),
transfers AS (SELECT "group", dim, op, min(per_call) / 1e9 AS transfer, max(rate) * 1e9 AS rate, avg(size) AS size, count() AS ranks FROM members GROUP BY "group", dim, op),
beside AS (SELECT *, quantile(0.5)(transfer) OVER (PARTITION BY dim, op) AS peers, count() OVER (PARTITION BY dim, op) AS alike FROM transfers)
SELECT "group" AS link, dim, op, ranks, transfer, peers, transfer / peers AS ratio, size, rate FROM beside WHERE alike > 1 ORDER BY ratio DESC LIMIT 100`,
		"link text, dim text, op text, ranks number, transfer number, peers number, ratio number, size number, rate number")).
		with("transfer", "s").with("peers", "s").
		with("ratio", "percentunit", coloured(1.2, 1.5), cell).
		with("size", "decbytes").with("rate", "Bps")
}
