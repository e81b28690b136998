-- One row per process (incarnation) of a rank. The row with the highest version counts: read with FINAL or argMax(…, version).
CREATE TABLE IF NOT EXISTS {{.Table "ranks"}}{{.OnCluster}}
(
    `job`         String,
    `rank`        UInt32,
    `incarnation` UInt64,
    `world_size`  UInt32,
    `local_rank`  UInt16,
    `node`        String,
    `device`      String,
    `pod`         String,
    `pid`         UInt32,
    `boot_id`     String,
    `started_ns`  Int64,
    `ended_ns`    Int64,
    `groups`      Array(String),
    `group_ranks` Array(Array(UInt32)),
    `writer`      String,
    `version`     UInt32,
    `off`         Array(String)
)
ENGINE = {{.Engine "ranks" "ReplacingMergeTree(`version`)"}}
ORDER BY (`job`, `rank`, `incarnation`)
{{.Settings}}
