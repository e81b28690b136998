-- Calls of one rank, group and op over a window of steps.
CREATE TABLE IF NOT EXISTS {{.Table "communications"}}{{.OnCluster}}
(
    `job`         LowCardinality(String),
    `rank`        UInt32 CODEC(ZSTD(1)),
    `incarnation` UInt64 CODEC(ZSTD(1)),
    `node`        LowCardinality(String),
    `step_from`   UInt64 CODEC(Delta, ZSTD(1)),
    `step_to`     UInt64 CODEC(Delta, ZSTD(1)),
    `repeat`      UInt16 CODEC(ZSTD(1)),
    `start_ns`    Int64 CODEC(Delta, ZSTD(1)),
    `group`       LowCardinality(String),
    `dim`         LowCardinality(String),
    `op`          LowCardinality(String),
    `steps`       UInt32 CODEC(T64, ZSTD(1)),
    `calls`       UInt32 CODEC(T64, ZSTD(1)),
    `total_ns`    Int64 CODEC(T64, ZSTD(1)),
    `min_ns`      Int64 CODEC(T64, ZSTD(1)),
    `max_ns`      Int64 CODEC(T64, ZSTD(1)),
    `bytes`       Int64 CODEC(T64, ZSTD(1)),
    `ts`          DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`start_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "communications" "MergeTree"}}
PARTITION BY toYYYYMMDD(`ts`)
ORDER BY (`job`, `rank`, `incarnation`, `step_from`, `repeat`, `group`, `op`)
{{.TTL "communications"}}{{.Settings}}
