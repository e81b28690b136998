-- The account of records: emitted = stored + summarised + aged + dropped + in flight.
CREATE TABLE IF NOT EXISTS {{.Table "ledger"}}{{.OnCluster}}
(
    `job`          String,
    `rank`         UInt32,
    `incarnation`  UInt64,
    `segment`      UInt64,
    `name`         String,
    `batch`        String,
    `table`        String,
    `state`        String,
    `reason`       String,
    `kind`         String,
    `records`      UInt64,
    `bytes`        UInt64,
    `first_offset` UInt64,
    `last_offset`  UInt64,
    `at_ns`        Int64
)
ENGINE = {{.Engine "ledger" "MergeTree"}}
PARTITION BY intDiv(`at_ns`, 86400000000000)
ORDER BY (`job`, `rank`, `segment`, `batch`)
{{.Settings}}
