-- One row per step of a rank: what analysis reads.
CREATE TABLE IF NOT EXISTS {{.Table "steps"}}{{.OnCluster}}
(
    `job`              String,
    `rank`             UInt32,
    `incarnation`      UInt64,
    `node`             String,
    `step`             UInt64,
    `repeat`           UInt16,
    `start_ns`         Int64,
    `step_ns`          Int64,
    `fp_ns`            Int64,
    `fp_count`         UInt32,
    `comm_ns`          Int64,
    `exposed_ns`       Int64,
    `comm_tp_ns`       Int64,
    `comm_pp_ns`       Int64,
    `comm_dp_ns`       Int64,
    `comm_cp_ns`       Int64,
    `comm_ep_ns`       Int64,
    `comm_other_ns`    Int64,
    `dataloader_ns`    Int64,
    `checkpoint_ns`    Int64,
    `checkpoint_count` UInt32,
    `self_ns`          Int64,
    `host_fp_ns`       Int64,
    `tokens`           Int64,
    `flags`            UInt32,
    `backward_ns`      Int64
)
ENGINE = {{.Engine "steps" "MergeTree"}}
PARTITION BY intDiv(`start_ns`, 86400000000000)
ORDER BY (`job`, `rank`, `incarnation`, `step`, `repeat`)
{{.Settings}}
