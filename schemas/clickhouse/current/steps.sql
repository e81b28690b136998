-- One row per step of a rank: what analysis reads.
CREATE TABLE IF NOT EXISTS {{.Table "steps"}}{{.OnCluster}}
(
    `job`              LowCardinality(String),
    `rank`             UInt32 CODEC(ZSTD(1)),
    `incarnation`      UInt64 CODEC(ZSTD(1)),
    `node`             LowCardinality(String),
    `step`             UInt64 CODEC(Delta, ZSTD(1)),
    `repeat`           UInt16 CODEC(ZSTD(1)),
    `start_ns`         Int64 CODEC(Delta, ZSTD(1)),
    `step_ns`          Int64 CODEC(T64, ZSTD(1)),
    `fp_ns`            Int64 CODEC(T64, ZSTD(1)),
    `fp_count`         UInt32 CODEC(T64, ZSTD(1)),
    `comm_ns`          Int64 CODEC(T64, ZSTD(1)),
    `exposed_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_tp_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_pp_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_dp_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_cp_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_ep_ns`       Int64 CODEC(T64, ZSTD(1)),
    `comm_other_ns`    Int64 CODEC(T64, ZSTD(1)),
    `dataloader_ns`    Int64 CODEC(T64, ZSTD(1)),
    `checkpoint_ns`    Int64 CODEC(T64, ZSTD(1)),
    `checkpoint_count` UInt32 CODEC(T64, ZSTD(1)),
    `self_ns`          Int64 CODEC(T64, ZSTD(1)),
    `host_fp_ns`       Int64 CODEC(T64, ZSTD(1)),
    `tokens`           Int64 CODEC(T64, ZSTD(1)),
    `flags`            UInt32 CODEC(T64, ZSTD(1)),
    `backward_ns`      Int64 CODEC(T64, ZSTD(1)),
    `ts`               DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(`start_ns`, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX ts_minmax `ts` TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "steps" "MergeTree"}}
PARTITION BY toYYYYMMDD(`ts`)
ORDER BY (`job`, `rank`, `incarnation`, `step`, `repeat`)
{{.TTL "steps"}}{{.Settings}}
