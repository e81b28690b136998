package main

import "strings"

// Parts of queries. Subqueries that join or filter across tables are GLOBAL, so
// that they are right on Distributed tables too.
//
// The plugin expands macros ($__timeFilter, $__conditionalAll, …) and variables. A
// variable is text whatever it holds, so numbers are made of it (toUInt32OrZero); a
// macro's condition is true when "All" is chosen. A time of -1 in a column was not
// recorded, so sums and quantiles take what is 0 and above.

// seats is one row per incarnation of a rank of the job: node, and the role that
// its groups give it. Ranks of one role do the same work: same stage, same tensor
// and context position (else the same data-parallel group).
const seats = `seats AS (
  SELECT rank, incarnation, max(started_ns) AS started, argMax(node, version) AS node, argMax(device, version) AS device, argMax(groups, version) AS gs,
    multiIf(
      arrayExists(g -> match(g, '^(pp|tp|cp):'), gs),
      arrayStringConcat(arrayMap(d -> concat(d, leftPad(splitByChar(':', arrayFirst(g -> startsWith(g, concat(d, ':')), gs))[-2], 2, '0')),
        arrayFilter(d -> arrayExists(g -> startsWith(g, concat(d, ':')), gs), ['pp', 'tp', 'cp'])), ' '),
      arrayExists(g -> startsWith(g, 'dp:'), gs), splitByChar(':', arrayFirst(g -> startsWith(g, 'dp:'), gs))[2],
      'all') AS role
  FROM ranks WHERE job = ${job:sqlstring}
  GROUP BY rank, incarnation
)`

// peers is the chosen rank and those of its role, in the newest incarnation.
const peers = seats + `,
chosen AS (SELECT role, node, device, started FROM seats WHERE rank = toUInt32OrZero(${rank:sqlstring}) ORDER BY started DESC LIMIT 1),
alike AS (SELECT rank FROM seats WHERE role IN (SELECT role FROM chosen) GROUP BY rank)`

// current is the last word on every node, link and finding up to the end of the
// time range, of jobs with data in it.
const current = `current AS (
  SELECT job, node, "group", finding, state, cause, impact_ppm / 1e6 AS impact, step, ts, detail, body
  FROM verdicts
  WHERE JOBS AND ts <= $__toTime AND job GLOBAL IN (SELECT job FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job)
  ORDER BY job, at_ns DESC, step DESC
  LIMIT 1 BY job, node, "group", finding
)`

// whole picks the word on the job itself from those on its nodes, links and findings.
const whole = `node = '' AND "group" = '' AND finding = ''`

// losses is the node-hours lost by job within the time range: what all its culprits
// cost together, for as long as it was said, times the nodes of the job.
const losses = `spans AS (
  SELECT job, impact_ppm / 1e6 AS impact, at_ns AS begin_ns,
    leadInFrame(at_ns, 1, toInt64(0)) OVER (PARTITION BY job ORDER BY at_ns, step ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next_ns
  FROM verdicts WHERE JOBS AND ` + whole + ` AND ts <= $__toTime
),
sizes AS (
  SELECT job, uniqExact(node) AS nodes, uniqExact(rank) AS ranks, countIf(ended_ns = 0) AS alive
  FROM (SELECT job, rank, node, ended_ns FROM ranks WHERE JOBS ORDER BY job, rank, started_ns DESC, version DESC LIMIT 1 BY job, rank)
  GROUP BY job
),
runs AS (
  SELECT job, min(start_ns) AS first_ns, max(start_ns) AS last_ns FROM steps WHERE JOBS AND $__timeFilter(ts) GROUP BY job
),
losses AS (
  SELECT job, any(nodes) AS nodes, nodes * (any(last_ns) - any(first_ns)) / 3.6e12 AS used,
    nodes * sum(impact * hours) AS lost
  FROM (
    SELECT job, nodes, first_ns, last_ns, impact,
      greatest(0, least(if(next_ns = 0, last_ns, next_ns), last_ns) - greatest(begin_ns, first_ns)) / 3.6e12 AS hours
    FROM runs ANY LEFT JOIN sizes USING (job) LEFT JOIN spans USING (job)
  )
  GROUP BY job
)`

// one makes a part's JOBS the page's single job, many the page's several.
func one(part string) string {
	return strings.ReplaceAll(part, "JOBS", "job = ${job:sqlstring}")
}

func many(part string) string {
	return strings.ReplaceAll(part, "JOBS", "$__conditionalAll(job IN (${job:sqlstring}), $job)")
}

// every makes JOBS no condition: for alert rules.
func every(part string) string {
	return strings.ReplaceAll(part, "JOBS", "1 = 1")
}
