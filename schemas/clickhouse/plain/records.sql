-- Raw ranges. Identity: segment and byte offset in it.
CREATE TABLE IF NOT EXISTS {{.Table "records"}}{{.OnCluster}}
(
    `job`           String,
    `rank`          UInt32,
    `incarnation`   UInt64,
    `node`          String,
    `kind`          String,
    `step`          Int64,
    `repeat`        UInt16,
    `start_ns`      Int64,
    `dur_ns`        Int64,
    `side`          String,
    `host_start_ns` Int64,
    `host_dur_ns`   Int64,
    `exposed_ns`    Int64,
    `ring`          UInt32,
    `seq`           UInt64,
    `thread`        UInt64,
    `op`            String,
    `op_raw`        String,
    `group`         String,
    `peer`          Int32,
    `count`         Int64,
    `dtype`         String,
    `bytes`         Int64,
    `tokens`        Int64,
    `path`          String,
    `open`          UInt16,
    `segment`       UInt64,
    `offset`        UInt64
)
ENGINE = {{.Engine "records" "MergeTree"}}
PARTITION BY intDiv(`start_ns`, 86400000000000)
ORDER BY (`job`, `rank`, `segment`, `offset`)
{{.Settings}}
