package fleet

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/ship"
)

// BenchmarkInsert tells what an insert of so many steps costs a server that does nothing else,
// merges included: its processor time, and how long the answer takes.
func BenchmarkInsert(b *testing.B) {
	for _, steps := range []int{8, 48, 8_000, 80_000} {
		b.Run("steps="+strconv.Itoa(steps), func(b *testing.B) {
			server := chtest.Start(b)
			sink := made(b, server)
			batches := make([]*ship.Batch, b.N)
			for i := range batches {
				batches[i] = stepsOf(i, steps)
			}

			before := chtest.ProcessorTime(b, server.PID())
			for b.ResetTimer(); len(batches) > 0; batches = batches[1:] {
				if err := sink.Insert(b.Context(), batches[0]); err != nil {
					b.Fatal(err)
				}
			}

			b.StopTimer()
			spent := chtest.ProcessorTime(b, server.PID()) - before
			b.ReportMetric(float64(spent.Microseconds())/1e3/float64(b.N), "server-ms/op")
		})
	}
}

// BenchmarkStart tells what an agent asks of a server before its first insert: the tables, the
// right to insert, and what there is of its rows.
func BenchmarkStart(b *testing.B) {
	server := chtest.Start(b)
	made(b, server)
	before := chtest.ProcessorTime(b, server.PID())
	for i := 0; b.Loop(); i++ {
		sink := made(b, server)
		err := sink.Probe(b.Context())
		if err == nil {
			_, err = sink.Stored(b.Context(), stepsOf(i, 48))
		}

		if err != nil {
			b.Fatal(err)
		}

		sink.Rest()
	}

	spent := chtest.ProcessorTime(b, server.PID()) - before
	b.ReportMetric(float64(spent.Microseconds())/1e3/float64(b.N), "server-ms/op")
}

// made is a sink of a server's database default, with the tables in it.
func made(b *testing.B, server *chtest.Server) *clickhouse.Sink {
	b.Helper()
	sink, err := clickhouse.Open(server.Store("default"), clickhouse.Options{})
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = sink.Close() })
	if err := sink.Create(b.Context()); err != nil {
		b.Fatal(err)
	}

	return sink
}

// stepsOf is a batch of an agent of eight ranks.
func stepsOf(agent, n int) *ship.Batch {
	rows := &row.Rows{}
	for i := range n {
		rank := agent*ranksOfAgent + i%ranksOfAgent
		step := i/ranksOfAgent + 1
		rows.Steps = append(rows.Steps, row.Step{Job: "fleet", Rank: uint32(rank), Incarnation: 1, Node: "node-" + strconv.Itoa(agent),
			Step: uint64(step), StartNs: int64(step) * int64(stepTime), StepNs: int64(stepTime)})
	}

	return ship.Cut(rows)[0]
}

// BenchmarkRowBytes prints what the rows of 64 simulated ranks × 400 steps take on the disk of a
// current ClickHouse: SCALE.md counts with it.
func BenchmarkRowBytes(b *testing.B) {
	for b.Loop() {
		cfg, err := simulate.Sized("compute-1.5", 3, 64)
		if err != nil {
			b.Fatal(err)
		}

		cfg.Steps = 400
		dir := filepath.Join(b.TempDir(), "job")
		if _, err := simulate.Write(dir, cfg); err != nil {
			b.Fatal(err)
		}

		engine := chtest.StartEngine(b)
		sink, err := clickhouse.Open("clickhouse://"+engine.Address+"/default?protocol=http&compression=none", clickhouse.Options{})
		if err != nil {
			b.Fatal(err)
		}

		if _, err := intake.Once(b.Context(), dir, sink, intake.Options{Records: rollup.All}); err != nil {
			b.Fatal(err)
		}

		const q = "SELECT table, sum(rows), sum(data_compressed_bytes), round(sum(data_compressed_bytes) / sum(rows)), round(sum(data_uncompressed_bytes) / sum(rows)) " +
			"FROM system.parts WHERE active AND database = 'default' GROUP BY table ORDER BY table FORMAT TSV"
		text, err := engine.Query(q)
		if err != nil {
			b.Fatal(err)
		}

		b.Logf("table, rows, bytes on disk, bytes a row, before compression:\n%s", text)
		if err := sink.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
