-- The account of records: emitted = stored + summarised + aged + dropped + in flight.
CREATE TABLE IF NOT EXISTS {{.Table "ledger"}}{{.OnCluster}}
(
    `job`          LowCardinality(String),
    `rank`         UInt32 CODEC(ZSTD(1)),
    `incarnation`  UInt64 CODEC(ZSTD(1)),
    `segment`      UInt64 CODEC(ZSTD(1)),
    `name`         String CODEC(ZSTD(1)),
    `batch`        String CODEC(ZSTD(1)),
    `table`        LowCardinality(String),
    `state`        LowCardinality(String),
    `reason`       LowCardinality(String),
    `kind`         LowCardinality(String),
    `records`      UInt64 CODEC(T64, ZSTD(1)),
    `bytes`        UInt64 CODEC(T64, ZSTD(1)),
    `first_offset` UInt64 CODEC(T64, ZSTD(1)),
    `last_offset`  UInt64 CODEC(T64, ZSTD(1)),
    `at_ns`        Int64 CODEC(Delta, ZSTD(1)),
    `ts`           DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`at_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "ledger" "MergeTree"}}
PARTITION BY toYYYYMMDD(`ts`)
ORDER BY (`job`, `rank`, `segment`, `batch`)
{{.TTL "ledger"}}{{.Settings}}
