// Package cluster holds laggard to a real ClickHouse cluster: shards of replicas that are
// killed, stopped, cut off and rebuilt while jobs are stored in it. Its tests have the
// build tag cluster; `make cluster` runs them, and installs what they need.
//
// After each fault a job is in the store once by count and by key, its audit is equal, and
// its verdict is the same from every server.
package cluster
