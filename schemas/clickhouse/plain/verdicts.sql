-- Decisions of laggard watch.
CREATE TABLE IF NOT EXISTS {{.Table "verdicts"}}{{.OnCluster}}
(
    `job`        String,
    `at_ns`      Int64,
    `step`       UInt64,
    `node`       String,
    `finding`    String,
    `group`      String,
    `state`      String,
    `cause`      String,
    `detail`     String,
    `body`       String,
    `impact_ppm` UInt32
)
ENGINE = {{.Engine "verdicts" "MergeTree"}}
PARTITION BY intDiv(`at_ns`, 86400000000000)
ORDER BY (`job`, `at_ns`, `step`, `node`, `finding`)
{{.Settings}}
