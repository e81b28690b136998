-- One row per process (incarnation) of a rank. The row with the highest version counts: read with FINAL or argMax(…, version).
CREATE TABLE IF NOT EXISTS {{.Table "ranks"}}{{.OnCluster}}
(
    `job`         LowCardinality(String),
    `rank`        UInt32,
    `incarnation` UInt64,
    `world_size`  UInt32,
    `local_rank`  UInt16,
    `node`        LowCardinality(String),
    `device`      LowCardinality(String),
    `pod`         String,
    `pid`         UInt32,
    `boot_id`     String,
    `started_ns`  Int64,
    `ended_ns`    Int64,
    `groups`      Array(String),
    `group_ranks` Array(Array(UInt32)),
    `writer`      LowCardinality(String),
    `version`     UInt32,
    `off`         Array(String),
    `ts`          DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`started_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "ranks" "ReplacingMergeTree(`version`)"}}
ORDER BY (`job`, `rank`, `incarnation`)
{{.TTL "ranks"}}{{.Settings}}
