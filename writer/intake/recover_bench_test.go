package intake_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// spool writes a spool of n segments of 10 MiB, of eight ranks in turns.
func spool(b *testing.B, n int) (dir string, bytes int64) {
	b.Helper()
	dir = b.TempDir()
	var body []byte
	for i := 0; len(body) < segment.DefaultLimit-1024; i++ {
		r := record.New(record.Communication)
		r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq = int64(i/1000), base+int64(i)*30_000, int64(5000+i%977), 4000, 2, uint64(i)
		r.Op, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
		if i%1000 == 999 {
			r = record.New(record.Step)
			r.Step, r.Start, r.Dur, r.Ring, r.Seq = int64(i/1000), base+int64(i-999)*30_000, 30_000_000, 1, uint64(i/1000)
		}

		body = r.AppendLine(body)
	}

	for i := range n {
		rank := i % 8
		name := 1_753_055_000 + i/8
		m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", i+1), Job: "j1", Rank: rank, Incarnation: record.ID(7000 + i), WorldSize: 8, Node: "node-0", StartedNs: base}
		path := filepath.Join(dir, "j1", strconv.Itoa(rank))
		if err := os.MkdirAll(path, 0o755); err != nil {
			b.Fatal(err)
		}

		text := append(m.AppendLine(nil), body...)
		if err := os.WriteFile(filepath.Join(path, strconv.Itoa(name)), text, 0o644); err != nil {
			b.Fatal(err)
		}

		bytes += int64(len(text))
	}

	return dir, bytes
}

// lines writes n records of one rank, 999 communications to a step, as plain segments.
func lines(b *testing.B, dir string, n int) {
	b.Helper()
	rank := filepath.Join(dir, "j1", "0")
	if err := os.MkdirAll(rank, 0o755); err != nil {
		b.Fatal(err)
	}

	var body []byte
	name := 1_753_000_000
	write := func() {
		if err := os.WriteFile(filepath.Join(rank, fmt.Sprint(name)), body, 0o644); err != nil {
			b.Fatal(err)
		}

		body = body[:0]
		name++
	}
	for i := range n {
		if len(body) == 0 {
			m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", name), Job: "j1", Incarnation: 7, WorldSize: 1, Node: "node-0", StartedNs: base}
			body = m.AppendLine(body)
		}

		start := base - 80_000_000_000_000 + int64(i)*30_000
		r := record.New(record.Communication)
		r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq = int64(i/1000), start, int64(5000+i%977), 4000, 2, uint64(i-i/1000)
		r.Op, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
		if i%1000 == 999 {
			r = record.New(record.Step)
			r.Step, r.Start, r.Dur, r.Ring, r.Seq = int64(i/1000), start-999*30_000, 1000*30_000, 1, uint64(i/1000)
		}

		body = r.AppendLine(body)
		if len(body) > 10<<20-512 {
			write()
		}
	}

	write()
}

// first is a sink that tells when the store has acknowledged the first rows.
type first struct {
	ship.Sink
	acked chan struct{}
}

func (f *first) Insert(ctx context.Context, b *ship.Batch) error {
	err := f.Sink.Insert(ctx, b)
	if err == nil && b.Table != row.RanksTable {
		select {
		case f.acked <- struct{}{}:
		default:
		}
	}

	return err
}

// BenchmarkRecoverSpool is P18: an agent begins with a spool of LAGGARD_SPOOL
// segments of 10 MiB that were never shipped (500 are 5 GiB; 32 by default), without
// any state; the time until the server has acknowledged the first rows. The
// reference is listing and opening the same files with the standard library.
func BenchmarkRecoverSpool(b *testing.B) {
	n := 32
	if text := os.Getenv("LAGGARD_SPOOL"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}

	dir, bytes := spool(b, n)
	server := chtest.Start(b)
	var times, opens []float64
	for b.Loop() {
		began := time.Now()
		files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
		if err != nil || len(files) != n {
			b.Fatalf("%d files: %v", len(files), err)
		}

		for _, path := range files {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}

			f.Close()
		}

		opens = append(opens, time.Since(began).Seconds())

		sink := &first{store(b, server.Store(server.Database())), make(chan struct{}, 1)}
		began = time.Now()
		o := all()
		o.Grace = time.Millisecond // the rest is not the question
		fo, err := intake.NewFollower(dir, sink, o)
		if err != nil {
			b.Fatal(err)
		}

		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- fo.Run(ctx) }()
		<-sink.acked
		times = append(times, time.Since(began).Seconds())
		stop()
		<-done
		marks, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".*"))
		for _, path := range marks {
			os.Remove(path)
		}
	}

	slices.Sort(times)
	slices.Sort(opens)
	b.ReportMetric(float64(bytes)/(1<<30), "GiB")
	b.ReportMetric(times[len(times)/2], "s-to-first-ship")
	b.ReportMetric(times[len(times)-1]-times[0], "s-spread")
	b.ReportMetric(opens[len(opens)/2], "s-list-and-open")
}

// BenchmarkCatchUp is P19: on one core, how much faster than live (30,000 records a
// second) a follower brings what has waited into the real server, raw rows and all.
func BenchmarkCatchUp(b *testing.B) {
	const n, live = 600_000, 30_000.0
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dir := b.TempDir()
	lines(b, dir, n)
	server := chtest.Start(b)
	var ratios []float64
	for b.Loop() {
		db := server.Database()
		sink := store(b, server.Store(db))
		o := all()
		o.State = b.TempDir()
		fo, err := intake.NewFollower(dir, sink, o)
		if err != nil {
			b.Fatal(err)
		}

		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- fo.Run(ctx) }()
		if err := fo.Sync(ctx); err != nil {
			b.Fatal(err)
		}

		took := time.Since(began).Seconds()
		stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}

		if got := server.Count("SELECT count() FROM " + db + ".records"); got < n*99/100 {
			b.Fatalf("%d records stored", got)
		}

		ratios = append(ratios, n/live/took)
		server.Exec("DROP DATABASE " + db)
		if err := os.Remove(filepath.Join(dir, "j1", "0", ".reached")); err != nil {
			b.Fatal(err)
		}
	}

	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-live")
	b.ReportMetric(ratios[len(ratios)-1]-ratios[0], "x-spread")
}
