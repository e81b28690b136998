package main

// inWindow limits steps to the chosen window, whose text is "first-last".
const inWindow = `$__conditionalAll(step BETWEEN toUInt64OrZero(splitByChar('-', ${window:sqlstring})[1]) AND toUInt64OrZero(splitByChar('-', ${window:sqlstring})[2]), $window)`

// mine and theirs are the steps of the chosen rank, and of its role's.
const (
	mine   = `job = ${job:sqlstring} AND rank = toUInt32OrZero(${rank:sqlstring}) AND $__timeFilter(ts) AND ` + inWindow
	theirs = `job = ${job:sqlstring} AND rank GLOBAL IN (SELECT rank FROM alike) AND $__timeFilter(ts) AND ` + inWindow
)

// rank is one rank beside those that do the same work.
func rank() Dashboard {
	panels := place(
		statPanel("Place", "Node and device of the rank, and the role that its parallel groups give it.", "", 6, table(
			`WITH `+peers+`
SELECT concat(any(node), if(any(device) != '', concat(' ', any(device)), ''), ' · ', any(role)) AS place FROM chosen`, "place text")),
		statPanel("Peers", "Ranks of the same role, this one included: what it is compared with.", "short", 3, table(
			`WITH `+peers+`
SELECT count() AS ranks FROM alike`, "ranks number")),
		statPanel("Measure", "The rank's median of the chosen measure.", "s", 4, table(
			`SELECT quantileExactIf(0.5)(${measure:raw}, ${measure:raw} >= 0) / 1e9 AS own FROM steps WHERE `+mine, "own number")),
		statPanel("Its peers'", "The median of its role, this rank left out.", "s", 4, table(
			`WITH `+peers+`
SELECT quantileExactIf(0.5)(${measure:raw}, ${measure:raw} >= 0 AND rank != toUInt32OrZero(${rank:sqlstring})) / 1e9 AS peers FROM steps WHERE `+theirs, "peers number")),
		statPanel("Ratio", "The rank's median divided by its peers'. From 1.05 on it is worth a look; the verdict asks for persistence as well.", "percentunit", 3, table(
			`WITH `+peers+`
SELECT quantileExactIf(0.5)(${measure:raw}, ${measure:raw} >= 0 AND rank = toUInt32OrZero(${rank:sqlstring})) / quantileExactIf(0.5)(${measure:raw}, ${measure:raw} >= 0 AND rank != toUInt32OrZero(${rank:sqlstring})) AS ratio FROM steps WHERE `+theirs, "ratio number"), 1.05, 1.15),
		statPanel("Waiting", "The share of its steps that the rank waits in communication. Who is slow waits least.", "percentunit", 4, table(
			`SELECT sumIf(exposed_ns, exposed_ns > 0) / sum(step_ns) AS waiting FROM steps WHERE `+mine, "waiting number")),
		rankTimeline(),
		linePanel("Beside its peers", "The measure over time: this rank, the median of its role, and its middle 80 %.", "s", 24, 8, series(
			`WITH `+peers+`
SELECT $__timeInterval(ts) AS time,
  avgIf(${measure:raw}, rank = toUInt32OrZero(${rank:sqlstring})) / 1e9 AS "this rank",
  quantile(0.5)(${measure:raw}) / 1e9 AS "median of the role",
  quantile(0.1)(${measure:raw}) / 1e9 AS "10 %", quantile(0.9)(${measure:raw}) / 1e9 AS "90 %"
FROM steps WHERE `+theirs+` AND ${measure:raw} >= 0
GROUP BY time ORDER BY time`, "time time, this rank number, median of the role number, 10 % number, 90 % number")).
			with("this rank", "", property{"color", map[string]any{"mode": "fixed", "fixedColor": "red"}}, property{"custom.lineWidth", 2}).
			with("10 %", "", faint, property{"custom.lineWidth", 1}).
			with("90 %", "", faint, property{"custom.fillBelowTo", "10 %"}),
		partsPanel("What its steps are made of", "This rank: forward, other own work, waiting, loading, saving, mean a step.", mine, ""),
		partsPanel("What its peers' are made of", "The same of its peers, this rank left out: a culprit's own work is longer than theirs, and they wait for it.", theirs+` AND rank != toUInt32OrZero(${rank:sqlstring})`, "WITH "+peers+"\n"),
		rankPeers(),
		rankGroups(),
		rankSteps(),
	)
	d := dashboard("rank", "Rank and Step", "One rank beside its peers, down to the ranges of a step.", []variable{jobVariable(), nodeVariable(), rankVariable(), windowVariable(), measureVariable()}, panels)
	d.Annotations.List = annotations()
	return d
}

var faint = property{"color", map[string]any{"mode": "fixed", "fixedColor": "gray"}}

// rankTimeline is the ranges of the rank and of three peers, as states.
func rankTimeline() Panel {
	p := panel("state-timeline", "Timeline of the rank beside peers", "Recorded ranges of this rank and of the three nearest peers, the last 600 of them in the time range or window: forward, communication, loading, saving. Needs raw records (`--records light` or `all`); without Communication among them a gap is other work or waiting.", 24, 8, series(
		`WITH `+peers+`,
lanes AS (SELECT rank FROM alike ORDER BY rank != toUInt32OrZero(${rank:sqlstring}), abs(toInt64(rank) - toInt64(toUInt32OrZero(${rank:sqlstring}))), rank LIMIT 4),
spans AS (
  SELECT rank, start_ns, dur_ns, transform(kind, ['FP', 'Communication', 'DataLoader', 'SaveCheckpoint'], [1, 2, 3, 4], 5) AS state
  FROM records WHERE job = ${job:sqlstring} AND rank GLOBAL IN (SELECT rank FROM lanes) AND kind != 'Step' AND dur_ns > 0 AND $__timeFilter(ts)
    AND $__conditionalAll(step BETWEEN toInt64OrZero(splitByChar('-', ${window:sqlstring})[1]) AND toInt64OrZero(splitByChar('-', ${window:sqlstring})[2]), $window)
  ORDER BY start_ns DESC LIMIT 600
)
SELECT fromUnixTimestamp64Nano(edge.1) AS time, concat('rank ', leftPad(toString(rank), 5, '0')) AS series, toFloat64(max(edge.2)) AS value
FROM spans ARRAY JOIN [(start_ns, state), (start_ns + dur_ns, 0)] AS edge
GROUP BY time, series ORDER BY time, series`, "time time, series text, value number"))
	p.FieldConfig.Defaults = field{
		DisplayName: "${__field.labels.series}",
		Mappings: values(
			[3]string{"0", " ", "transparent"},
			[3]string{"1", "forward", "green"},
			[3]string{"2", "communication", "orange"},
			[3]string{"3", "data loading", "blue"},
			[3]string{"4", "checkpoint", "purple"},
			[3]string{"5", "other kind", "gray"},
		),
		Custom: map[string]any{"fillOpacity": 90, "lineWidth": 0, "spanNulls": true},
	}
	p.Options = map[string]any{"mergeValues": true, "showValue": "never", "rowHeight": 0.8, "alignValue": "left",
		"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}}
	return p
}

func rankPeers() Panel {
	return tablePanel("The role, rank by rank", "Every rank of the role with its median of the measure, the slowest first.", 12, 9, table(
		`WITH `+peers+`
SELECT rank, any(node) AS node, quantileExact(0.5)(${measure:raw}) / 1e9 AS own, quantileExact(0.9)(${measure:raw}) / 1e9 AS p90, sumIf(exposed_ns, exposed_ns > 0) / sum(step_ns) AS waiting, count() AS steps
FROM steps WHERE `+theirs+` AND ${measure:raw} >= 0
GROUP BY rank ORDER BY own DESC LIMIT 512`,
		"rank number, node text, own number, p90 number, waiting number, steps number")).
		with("rank", "", linked("Look at this rank", to("rank", "job", "${job}", "rank", "${__value.raw}"))).
		with("own", "s", property{"custom.cellOptions", map[string]any{"type": "gauge", "mode": "basic"}}).
		with("p90", "s").with("waiting", "percentunit")
}

// rankGroups compares the rank with the members of its own groups: who comes last to a
// collective spends the least time in it.
func rankGroups() Panel {
	return tablePanel("Its communication", "Time of the rank in each group and op, a step, beside the median of the group's members. Below them: the others wait for this rank.", 12, 9, table(
		`WITH members AS (
  SELECT "group", dim, op, rank, sum(total_ns) / sum(steps) / 1e9 AS own, sum(calls) / sum(steps) AS calls, sum(bytes) / sum(steps) AS size
  FROM communications
  WHERE job = ${job:sqlstring} AND $__timeFilter(ts)
    AND "group" GLOBAL IN (SELECT "group" FROM communications WHERE job = ${job:sqlstring} AND rank = toUInt32OrZero(${rank:sqlstring}) AND $__timeFilter(ts) GROUP BY "group")
  GROUP BY "group", dim, op, rank
)
SELECT "group" AS link, dim, op, count() AS ranks, maxIf(own, rank = toUInt32OrZero(${rank:sqlstring})) AS mine, quantileExact(0.5)(own) AS members, mine / members AS ratio,
  maxIf(calls, rank = toUInt32OrZero(${rank:sqlstring})) AS calls_a_step, maxIf(size, rank = toUInt32OrZero(${rank:sqlstring})) AS bytes_a_step
FROM members GROUP BY "group", dim, op HAVING mine > 0 ORDER BY mine DESC LIMIT 100`,
		"link text, dim text, op text, ranks number, mine number, members number, ratio number, calls_a_step number, bytes_a_step number")).
		with("mine", "s").with("members", "s").with("ratio", "percentunit").
		with("bytes_a_step", "decbytes")
}

// rankSteps shows rows as they are; the flags' words are those of row.Step.Flags.
func rankSteps() Panel {
	return tablePanel("Steps", "The rank's steps as they are stored, the slowest by the measure first. Empty means: not recorded.", 24, 9, table(
		`SELECT step, repeat, ts AS start, step_ns AS duration, nullIf(self_ns, -1) AS own, nullIf(fp_ns, -1) AS forward, nullIf(exposed_ns, -1) AS waiting, nullIf(dataloader_ns, -1) AS loading, nullIf(checkpoint_ns, -1) AS saving, nullIf(tokens, -1) AS tokens,
  arrayStringConcat(arrayFilter(w -> w != '', [if(bitTest(flags, 0), 'host times only', ''), if(bitTest(flags, 1), 'estimated', ''), if(bitTest(flags, 2), 'switched', ''), if(bitTest(flags, 3), 'never ended', ''), if(bitTest(flags, 4), 'late records', '')]), ', ') AS notes
FROM steps WHERE `+mine+`
ORDER BY ${measure:raw} DESC LIMIT 200`,
		"step number, repeat number, start time, duration number, own number, forward number, waiting number, loading number, saving number, tokens number, notes text")).
		with("duration", "ns").with("own", "ns").with("forward", "ns").with("waiting", "ns").with("loading", "ns").with("saving", "ns")
}
