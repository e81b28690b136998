-- Calls of one rank, group and op over a window of steps.
CREATE TABLE IF NOT EXISTS {{.Table "communications"}}{{.OnCluster}}
(
    `job`         String,
    `rank`        UInt32,
    `incarnation` UInt64,
    `node`        String,
    `step_from`   UInt64,
    `step_to`     UInt64,
    `repeat`      UInt16,
    `start_ns`    Int64,
    `group`       String,
    `dim`         String,
    `op`          String,
    `steps`       UInt32,
    `calls`       UInt32,
    `total_ns`    Int64,
    `min_ns`      Int64,
    `max_ns`      Int64,
    `bytes`       Int64
)
ENGINE = {{.Engine "communications" "MergeTree"}}
PARTITION BY intDiv(`start_ns`, 86400000000000)
ORDER BY (`job`, `rank`, `incarnation`, `step_from`, `repeat`, `group`, `op`)
{{.Settings}}
