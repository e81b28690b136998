package main

// sourceVariable lets a page choose among several data sources of a kind.
func sourceVariable(name, label, plugin string) variable {
	return variable{Name: name, Label: label, Type: "datasource", Query: plugin}
}

// queried is a variable filled by SQL.
func queried(name, label, description, sql string, all bool) variable {
	t := table(sql, name+" text")
	t.RefID = "Variable"
	v := variable{
		Name: name, Label: label, Description: description, Type: "query", Datasource: &clickhouseSource,
		Query: t, Definition: sql, Refresh: 2, Multi: all, IncludeAll: all,
	}
	if all {
		v.Current = &option{Text: []string{"All"}, Value: []string{"$__all"}, Selected: true}
	}

	return v
}

// newest orders by last start.
const newest = `SELECT job FROM ranks GROUP BY job ORDER BY max(ts) DESC, job LIMIT 1000`

func jobVariable() variable {
	return queried("job", "Job", "The training job, the newest first.", newest, false)
}

func jobsVariable() variable {
	return queried("job", "Job", "Training jobs, the newest first.", newest, true)
}

func nodeVariable() variable {
	return queried("node", "Node", "Nodes that the job runs or ran on.",
		`SELECT node FROM ranks WHERE job = ${job:sqlstring} GROUP BY node ORDER BY length(node), node`, true)
}

func rankVariable() variable {
	return queried("rank", "Rank", "A rank of the chosen nodes.",
		`SELECT toString(rank) AS rank FROM ranks AS r
WHERE job = ${job:sqlstring} AND $__conditionalAll(node IN (${node:sqlstring}), $node)
GROUP BY r.rank ORDER BY r.rank`, false)
}

// windowVariable offers up to 32 ranges of steps, of a multiple of 16 steps.
func windowVariable() variable {
	v := queried("window", "Steps", "A window of steps; All is every step in the time range.",
		`SELECT concat(toString(lo + i * size), '-', toString(lo + (i + 1) * size - 1)) AS window
FROM (
  SELECT intDiv(min(step), 16) * 16 AS lo, max(step) AS hi, 16 * intDiv(hi - lo + 512, 512) AS size
  FROM steps WHERE job = ${job:sqlstring} AND rank = toUInt32OrZero(${rank:sqlstring}) AND $__timeFilter(ts)
)
ARRAY JOIN range(toUInt32(intDiv(hi - lo, size) + 1)) AS i
ORDER BY i`, true)
	v.Multi = false
	v.Current = &option{Text: "All", Value: "$__all", Selected: true}
	return v
}

// measures are the columns of steps that can be compared among ranks.
var measures = []option{
	{Text: "own time", Value: "self_ns", Selected: true},
	{Text: "forward", Value: "fp_ns"},
	{Text: "data loading", Value: "dataloader_ns"},
	{Text: "checkpoint", Value: "checkpoint_ns"},
	{Text: "exposed communication", Value: "exposed_ns"},
	{Text: "step", Value: "step_ns"},
}

func measureVariable() variable {
	v := variable{
		Name: "measure", Label: "Measure", Type: "custom", Options: measures, Current: &measures[0],
		Description: "What is compared. Own time is the step less waiting, loading and saving; use forward where no communication was recorded.",
	}
	query := ""
	for i, m := range measures {
		if i > 0 {
			query += ","
		}

		query += m.Text.(string) + " : " + m.Value.(string)
	}

	v.Query = query
	return v
}

// annotations of a job's pages: verdicts, saves, and the switch.
func annotations() []annotation {
	mark := func(name, color, sql string) annotation {
		t := table(sql, "time time, timeEnd time, title text, text text, tags text")
		t.RefID = "Anno"
		return annotation{Name: name, Enable: true, IconColor: color, Datasource: clickhouseSource, Target: t}
	}
	return []annotation{
		mark("Verdicts", "red", `SELECT ts AS time, ts AS timeEnd,
  concat(multiIf(node != '', node, "group" != '', "group", finding != '', finding, 'job'), ': ', if(finding != '', 'finding', state), if(cause != '', concat(' (', cause, ')'), '')) AS title,
  if(detail != '', detail, concat('step ', toString(step))) AS text,
  'verdict' AS tags
FROM (
  SELECT *, ts, lagInFrame(state, 1, '') OVER (PARTITION BY node, "group", finding ORDER BY at_ns ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
  FROM verdicts WHERE job = ${job:sqlstring} AND $__timeFilter(ts)
)
WHERE state != before OR finding != '' AND before = ''
ORDER BY time LIMIT 200`),
		mark("Checkpoints", "blue", `SELECT min(ts) AS time, max(ts + toIntervalNanosecond(step_ns)) AS timeEnd,
  concat('checkpoint at step ', toString(step)) AS title,
  concat(toString(uniqExact(rank)), ' ranks, slowest ', toString(round(max(checkpoint_ns) / 1e9, 2)), ' s') AS text,
  'checkpoint' AS tags
FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts) AND checkpoint_count > 0
GROUP BY step ORDER BY time LIMIT 200`),
		mark("Switch changes", "purple", `SELECT min(ts) AS time, min(ts) AS timeEnd,
  concat('tracing switched at step ', toString(step)) AS title,
  concat(toString(uniqExact(rank)), ' ranks') AS text,
  'switch' AS tags
FROM steps WHERE job = ${job:sqlstring} AND $__timeFilter(ts) AND bitAnd(flags, 4) != 0
GROUP BY step ORDER BY time LIMIT 200`),
	}
}
