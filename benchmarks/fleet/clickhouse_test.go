package fleet

import (
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse/chtest"
)

// BenchmarkClickHouse reads 10,000 ranks × 1,000 steps from ClickHouse to the verdict, and
// beside it has clickhouse-client run the same queries, one after the other and two at a
// time, as the reader does, and throw the rows away.
func BenchmarkClickHouse(b *testing.B) {
	f := &fleets[0]
	server := chtest.Start(b)
	database := server.Database()
	sink, err := clickhouse.Open(b.Context(), server.Store(database), clickhouse.Options{})
	if err != nil {
		b.Fatal(err)
	}

	f.fill(b, sink)
	host, port, _ := strings.Cut(server.Addr(), ":")
	b.ResetTimer()
	for b.Loop() {
		analyze(b, server.Store(database))
		queries := f.queries(database)
		for _, clients := range []int{1, 2} {
			began := time.Now()
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

			b.ReportMetric(time.Since(began).Seconds(), fmt.Sprintf("clients%d-s", clients))
		}
	}
}

// queries are those of analyzer/source, by ranges of ranks.
func (f *fleet) queries(database string) []string {
	const steps, communications = "rank, incarnation, step, repeat", "rank, incarnation, step_from, repeat, `group`, op"
	windows := (f.steps + row.Window - 1) / row.Window * 4
	return append(f.ranges(database, row.StepsTable, reflect.TypeFor[row.Step](), steps, f.steps),
		f.ranges(database, row.CommunicationsTable, reflect.TypeFor[row.Communication](), communications, windows)...)
}

// ranges cuts the ranks so that a query brings about 64 Ki rows.
func (f *fleet) ranges(database, table string, of reflect.Type, key string, rows int) []string {
	var columns, all []string
	for i := range of.NumField() {
		if name := of.Field(i).Tag.Get("col"); name != "job" {
			columns = append(columns, ddl.Quote(name))
		}
	}

	for from, width := 0, 64<<10/rows; from < f.ranks(); from += width {
		all = append(all, fmt.Sprintf("SELECT %s FROM %s.%s WHERE job = 'fleet' AND rank BETWEEN %d AND %d LIMIT 1 BY %s",
			strings.Join(columns, ", "), database, table, from, min(from+width, f.ranks())-1, key))
	}

	return all
}
