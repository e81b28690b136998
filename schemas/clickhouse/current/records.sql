-- Raw ranges. Identity: segment and byte offset in it.
CREATE TABLE IF NOT EXISTS {{.Table "records"}}{{.OnCluster}}
(
    `job`           LowCardinality(String),
    `rank`          UInt32 CODEC(ZSTD(1)),
    `incarnation`   UInt64 CODEC(ZSTD(1)),
    `node`          LowCardinality(String),
    `kind`          LowCardinality(String),
    `step`          Int64 CODEC(Delta, ZSTD(1)),
    `repeat`        UInt16 CODEC(ZSTD(1)),
    `start_ns`      Int64 CODEC(Delta, ZSTD(1)),
    `dur_ns`        Int64 CODEC(T64, ZSTD(1)),
    `side`          LowCardinality(String),
    `host_start_ns` Int64 CODEC(Delta, ZSTD(1)),
    `host_dur_ns`   Int64 CODEC(T64, ZSTD(1)),
    `exposed_ns`    Int64 CODEC(T64, ZSTD(1)),
    `ring`          UInt32 CODEC(ZSTD(1)),
    `seq`           UInt64 CODEC(Delta, ZSTD(1)),
    `thread`        UInt64 CODEC(ZSTD(1)),
    `op`            LowCardinality(String),
    `op_raw`        LowCardinality(String),
    `group`         LowCardinality(String),
    `peer`          Int32 CODEC(T64, ZSTD(1)),
    `count`         Int64 CODEC(T64, ZSTD(1)),
    `dtype`         LowCardinality(String),
    `bytes`         Int64 CODEC(T64, ZSTD(1)),
    `tokens`        Int64 CODEC(T64, ZSTD(1)),
    `path`          String CODEC(ZSTD(1)),
    `open`          UInt16 CODEC(ZSTD(1)),
    `segment`       UInt64 CODEC(ZSTD(1)),
    `offset`        UInt64 CODEC(Delta, ZSTD(1)),
    `ts`            DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`start_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "records" "MergeTree"}}
PARTITION BY toYYYYMMDD(`ts`)
ORDER BY (`job`, `rank`, `segment`, `offset`)
{{.TTL "records"}}{{.Settings}}
