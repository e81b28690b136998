package chtest

import (
	"context"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// TestClickhouseGoOverHTTP sends rows of the types that our tables use through
// clickhouse-go's HTTP mode and reads them back.
func TestClickhouseGoOverHTTP(t *testing.T) {
	e := StartEngine(t)
	if v, err := e.Query("SELECT version()"); err != nil || v == "" {
		t.Fatalf("version = %q, %v", v, err)
	}

	conn, err := clickhouse.Open(&clickhouse.Options{Protocol: clickhouse.HTTP, Addr: []string{e.Address}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const ddl = `CREATE TABLE t (job LowCardinality(String), rank UInt32, step_ns Int64, groups Array(String), group_ranks Array(Array(UInt32)),
		ts DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(step_ns)) ENGINE = MergeTree ORDER BY (job, rank)`
	if err := conn.Exec(ctx, ddl); err != nil {
		t.Fatal(err)
	}

	batch, err := conn.PrepareBatch(ctx, "INSERT INTO t (job, rank, step_ns, groups, group_ranks)")
	if err != nil {
		t.Fatal(err)
	}

	const rows = 1000
	for i := range rows {
		if err := batch.Append("j1", uint32(i), int64(1753000000000000000+i), []string{"dp:dp0:0:2"}, [][]uint32{{0, uint32(i)}}); err != nil {
			t.Fatal(err)
		}
	}

	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}

	got, err := conn.Query(ctx, "SELECT job, rank, step_ns, groups, group_ranks, ts FROM t ORDER BY rank")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	n := 0
	for got.Next() {
		var job string
		var rank uint32
		var ns int64
		var groups []string
		var members [][]uint32
		var ts time.Time
		if err := got.Scan(&job, &rank, &ns, &groups, &members, &ts); err != nil {
			t.Fatal(err)
		}

		if job != "j1" || rank != uint32(n) || ns != int64(1753000000000000000+n) || groups[0] != "dp:dp0:0:2" || members[0][1] != rank || ts.UnixNano() != ns {
			t.Fatalf("row %d = %v %v %v %v %v %v", n, job, rank, ns, groups, members, ts)
		}

		n++
	}

	if got.Err() != nil || n != rows {
		t.Fatalf("read %d rows, %v, want %d", n, got.Err(), rows)
	}
}

func TestErrorNamesTheCode(t *testing.T) {
	e := StartEngine(t)
	if _, err := e.Query("SELECT * FROM missing"); err == nil {
		t.Fatal("a query of a missing table succeeded")
	}
}
