package fleet

import (
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
)

// stored are fleets in ClickHouse: 10 million rows of steps each, of many steps or many ranks.
var stored = []fleet{fleets[0], {"100000x100", 10, 1250, 8, 10, 100}}

// BenchmarkClickHouse reads fleets from ClickHouse to the verdict. Beside it clickhouse-client
// runs the same queries and throws the rows away, one client and two at a time, as many as there
// are readers; and the queries that it took before: identities sorted, doubles left out by the
// server. scan-s is how long clickhouse-go takes for the identities, value by value.
func BenchmarkClickHouse(b *testing.B) {
	for k := range stored {
		f := &stored[k]
		b.Run(f.name, func(b *testing.B) {
			server := chtest.Start(b)
			database := server.Database()
			sink, err := clickhouse.Open(server.Store(database), clickhouse.Options{})
			if err != nil {
				b.Fatal(err)
			}

			f.fill(b, sink)
			b.ResetTimer()
			for b.Loop() {
				used := chtest.ProcessorTime(b, server.PID())
				analyze(b, server.Store(database))
				b.ReportMetric((chtest.ProcessorTime(b, server.PID()) - used).Seconds(), "server-s")
				for name, queries := range map[string][]string{"now": f.queries(database, false), "before": f.queries(database, true)} {
					for clients := 1; clients <= 2; clients++ {
						used, began := chtest.ProcessorTime(b, server.PID()), time.Now()
						ask(b, server, queries, clients)
						b.ReportMetric(time.Since(began).Seconds(), fmt.Sprintf("%s-clients%d-s", name, clients))
						b.ReportMetric((chtest.ProcessorTime(b, server.PID()) - used).Seconds(), fmt.Sprintf("%s-server%d-s", name, clients))
					}
				}

				began := time.Now()
				scan(b, server, identities(database, true))
				b.ReportMetric(time.Since(began).Seconds(), "scan-s")
			}
		})
	}
}

// ask has so many clients run queries, each its share of them.
func ask(b *testing.B, server *chtest.Server, queries []string, clients int) {
	b.Helper()
	host, port, _ := strings.Cut(server.Addr(), ":")
	done := make(chan error, clients)
	for k := range clients {
		part := queries[k*len(queries)/clients : (k+1)*len(queries)/clients]
		go func() {
			out, err := exec.Command("clickhouse-client", "--host", host, "--port", port, "--multiquery", "--format", "Null", "--query", strings.Join(part, ";")).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}

			done <- err
		}()
	}

	for range clients {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// scan reads identities value by value.
func scan(b *testing.B, server *chtest.Server, query string) {
	b.Helper()
	rows, err := server.Conn("").Query(b.Context(), query)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	var all []row.Rank
	for rows.Next() {
		var one row.Rank
		v := reflect.ValueOf(&one).Elem()
		var into []any
		for i := 1; i < v.NumField(); i++ { // all but the job
			into = append(into, v.Field(i).Addr().Interface())
		}

		if err := rows.Scan(into...); err != nil {
			b.Fatal(err)
		}

		all = append(all, one)
	}

	if err := rows.Err(); err != nil || len(all) == 0 {
		b.Fatalf("%d identities: %v", len(all), err)
	}
}

// queries are those of analyzer/source, by ranges of ranks; or those that it took before.
func (f *fleet) queries(database string, before bool) []string {
	steps, communications := "", ""
	if before {
		steps, communications = "LIMIT 1 BY rank, incarnation, step, repeat", "LIMIT 1 BY rank, incarnation, step_from, repeat, `group`, op"
	}

	windows := (f.steps + row.Window - 1) / row.Window * 4
	all := append([]string{identities(database, before)}, f.ranges(selected[row.Step](database, row.StepsTable), steps, f.steps)...)
	return append(all, f.ranges(selected[row.Communication](database, row.CommunicationsTable), communications, windows)...)
}

// identities is the query for the table of ranks.
func identities(database string, before bool) string {
	tail := "SETTINGS max_block_size = 1024"
	if before {
		tail = "ORDER BY rank, incarnation, version DESC LIMIT 1 BY rank, incarnation"
	}

	return selected[row.Rank](database, row.RanksTable) + " " + tail
}

// selected is the query for a table's rows of the fleet, without its end.
func selected[T any](database, table string) string {
	var columns []string
	of := reflect.TypeFor[T]()
	for i := range of.NumField() {
		if name := of.Field(i).Tag.Get("col"); name != "job" {
			columns = append(columns, ddl.Quote(name))
		}
	}

	return fmt.Sprintf("SELECT %s FROM %s.%s WHERE job = 'fleet'", strings.Join(columns, ", "), database, table)
}

// ranges cuts the ranks so that a query brings about 64 Ki rows, of which each rank has some.
func (f *fleet) ranges(query, tail string, rows int) []string {
	var all []string
	for from, width := 0, 64<<10/rows; from < f.ranks(); from += width {
		all = append(all, fmt.Sprintf("%s AND rank BETWEEN %d AND %d %s", query, from, min(from+width, f.ranks())-1, tail))
	}

	return all
}
