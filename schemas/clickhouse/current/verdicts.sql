-- Decisions of laggard watch.
CREATE TABLE IF NOT EXISTS {{.Table "verdicts"}}{{.OnCluster}}
(
    `job`        LowCardinality(String),
    `at_ns`      Int64 CODEC(Delta, ZSTD(1)),
    `step`       UInt64 CODEC(Delta, ZSTD(1)),
    `node`       LowCardinality(String),
    `finding`    LowCardinality(String),
    `group`      LowCardinality(String),
    `state`      LowCardinality(String),
    `cause`      LowCardinality(String),
    `detail`     String CODEC(ZSTD(1)),
    `body`       String CODEC(ZSTD(1)),
    `impact_ppm` UInt32,
    `ts`         DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`at_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "verdicts" "MergeTree"}}
PARTITION BY toYYYYMMDD(`ts`)
ORDER BY (`job`, `at_ns`, `step`, `node`, `finding`)
{{.TTL "verdicts"}}{{.Settings}}
