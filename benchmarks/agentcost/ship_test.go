package agentcost

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
)

const (
	shipperOf = "LAGGARD_COST_SHIPPER" // directory, store and selection of a shipper process
	// shipRate is P12's: 12,500 records a second of each of eight ranks.
	shipRate = 100_000
	// The line P12.
	wantedShipperCore = 10.0
)

// shipper follows a directory as the agent does, and nothing else, until it is told to
// end.
func shipper(what string) error {
	parts := strings.Split(what, "\n")
	if len(parts) != 4 {
		return fmt.Errorf("%s: want four lines", shipperOf)
	}

	selection, ok := rollup.ParseSelection(parts[2])
	if !ok {
		return fmt.Errorf("selection %s", parts[2])
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sink, err := intake.OpenStore(parts[1], clickhouse.Options{})
	if err != nil {
		return err
	}

	go func() { // the parent closes the pipe
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	f, err := intake.NewFollower(parts[0], sink, intake.Options{State: parts[3], Records: selection})
	if err != nil {
		return err
	}

	return f.Run(ctx)
}

// paced writes the segments of eight ranks at shipRate.
type paced struct {
	dir   string
	ranks [ranks]pacedRank
	line  []byte
}

type pacedRank struct {
	file *os.File
	name int64
	size int
	n    int64 // records so far
	buf  []byte
}

const pacedBeats = shipRate / ranks / 100 // records a rank and beat of 10 ms

// beat appends what a beat brings.
func (p *paced) beat(began int64) error {
	for rank := range p.ranks {
		r := &p.ranks[rank]
		r.buf = r.buf[:0]
		for range pacedBeats {
			r.buf = p.next(r, began).AppendLine(r.buf)
		}

		if r.file == nil || r.size+len(r.buf) > 10<<20 {
			if err := p.rotate(rank, began); err != nil {
				return err
			}
		}

		if _, err := r.file.Write(r.buf); err != nil {
			return err
		}

		r.size += len(r.buf)
	}

	return nil
}

// next is a rank's next record: each 2,500th ends a step of 200 ms.
func (p *paced) next(r *pacedRank, began int64) *record.Record {
	const calls = shipRate / ranks / 5
	const apart = int64(time.Second) * ranks / shipRate
	i := r.n
	r.n++
	start := began + i*apart
	if i%calls == calls-1 {
		s := record.New(record.Step)
		s.Step, s.Start, s.Dur, s.Ring, s.Seq = i/calls, start-(calls-1)*apart, calls*apart, 1, uint64(i/calls)
		return &s
	}

	c := record.New(record.Communication)
	c.Step, c.Start, c.Dur, c.Exposed, c.Ring, c.Seq = i/calls, start, 5000+i%977, 4000, 2, uint64(i-i/calls)
	c.Op, c.Group, c.Count, c.Dtype, c.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
	return &c
}

func (p *paced) rotate(rank int, began int64) (err error) {
	r := &p.ranks[rank]
	if r.file != nil {
		if err := r.file.Close(); err != nil {
			return err
		}
	}

	dir := filepath.Join(p.dir, "cost", strconv.Itoa(rank))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	r.name = max(r.name+1, began/int64(time.Second))
	m := record.Meta{
		Format: record.Format, Segment: fmt.Sprintf("%08x%08x", rank, r.name), Job: "cost", Rank: rank, Incarnation: record.ID(rank + 1),
		WorldSize: ranks, Node: "node-0", StartedNs: began,
	}
	p.line = m.AppendLine(p.line[:0])
	r.size = len(p.line)
	if r.file, err = os.OpenFile(filepath.Join(dir, strconv.FormatInt(r.name, 10)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
		_, err = r.file.Write(p.line)
	}

	return err
}

// BenchmarkShipper is P12: what tail, rollup and shipping take of a core and of memory
// while 100,000 records a second are written, with the default records and with all.
func BenchmarkShipper(b *testing.B) {
	for _, records := range []string{"light", "all"} {
		b.Run("clickhouse/records="+records, func(b *testing.B) {
			s := chtest.Start(b)
			for b.Loop() {
				measureShipper(b, s.Store(s.Database()), records)
			}
		})
		b.Run("parquet/records="+records, func(b *testing.B) {
			for b.Loop() {
				measureShipper(b, "parquet:"+filepath.Join(b.TempDir(), "store"), records)
			}
		})
	}
}

func measureShipper(b *testing.B, store, records string) {
	p := &paced{dir: b.TempDir()}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), shipperOf+"="+strings.Join([]string{p.dir, store, records, b.TempDir()}, "\n"))
	var words bytes.Buffer
	c.Stderr = &words
	end, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}

	if err := c.Start(); err != nil {
		b.Fatal(err)
	}

	length := lengthOf(b, 10*time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	u := usage{}
	var cpu time.Duration
	var from time.Time
	began := time.Now()
	for beats := int64(0); from.IsZero() || time.Since(from) < length; {
		<-tick.C
		for due := time.Since(began).Milliseconds() / 10; beats < due; beats++ {
			if err := p.beat(began.UnixNano()); err != nil {
				b.Fatal(err)
			}
		}

		if from.IsZero() && time.Since(began) > warmUp {
			cpu, from = chtest.ProcessorTime(b, c.Process.Pid), time.Now()
		}

		if beats%10 == 0 {
			u.anon = max(u.anon, anonymous(b, c.Process.Pid))
		}
	}

	u.cpu, u.wall = chtest.ProcessorTime(b, c.Process.Pid)-cpu, time.Since(from)
	if err := end.Close(); err != nil {
		b.Fatal(err)
	}

	if err := c.Wait(); err != nil {
		b.Fatalf("shipper: %v\n%s", err, words.Bytes())
	}

	core := 100 * u.cpu.Seconds() / u.wall.Seconds()
	b.ReportMetric(core, "%core")
	b.ReportMetric(float64(u.anon)/1024, "MiB-anon")
	b.ReportMetric(0, "ns/op")
	b.Logf("%.0f s at %d records/s: %.2f %% of a core (wanted under %.0f), RssAnon %.1f MiB at most (wanted under %.0f)",
		u.wall.Seconds(), shipRate, core, wantedShipperCore, float64(u.anon)/1024, wantedMiB)
}

// BenchmarkFreshness is P17: how long after a step's end its row can be read from
// ClickHouse, through recorder, ring, agent and segments, at 40,000 records a second.
// The store is asked every 10 ms.
func BenchmarkFreshness(b *testing.B) {
	binary := laggard(b)
	s := chtest.Start(b)
	for b.Loop() {
		db := s.Database()
		var ages []time.Duration
		watching, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() {
			done <- freshness(watching, s, db, &ages)
		}()
		run(b, binary, s.Store(db), "light", lengthOf(b, 10*time.Second))
		stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}

		slices.Sort(ages)
		if len(ages) < 50 {
			b.Fatalf("%d steps seen", len(ages))
		}

		p50, p99 := ages[len(ages)/2], ages[len(ages)*99/100]
		b.ReportMetric(p50.Seconds(), "p50-s")
		b.ReportMetric(p99.Seconds(), "p99-s")
		b.ReportMetric(0, "ns/op")
		b.Logf("%d steps: p50 %.2f s (wanted at most 1.5), p99 %.2f s (wanted at most 6)", len(ages), p50.Seconds(), p99.Seconds())
	}
}

// freshness notes how old each step of rank 0 is when its row is first seen.
func freshness(ctx context.Context, s *chtest.Server, db string, ages *[]time.Duration) error {
	conn := s.Conn(db)
	defer conn.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	seen := int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		var ends []int64
		err := conn.QueryRow(ctx, "SELECT groupArray(start_ns + step_ns) FROM steps WHERE rank = 0 AND start_ns + step_ns > "+strconv.FormatInt(seen, 10)).Scan(&ends)
		if ctx.Err() != nil {
			return nil
		}

		if err != nil {
			if strings.Contains(err.Error(), "doesn't exist") {
				continue // the agent has not made it yet
			}

			return fmt.Errorf("ask for steps: %w", err)
		}

		at := time.Now().UnixNano()
		for _, end := range ends {
			*ages = append(*ages, time.Duration(at-end))
			seen = max(seen, end)
		}
	}
}

// lengthOf is how long to measure.
func lengthOf(b *testing.B, usual time.Duration) time.Duration {
	b.Helper()
	text := os.Getenv(measureSeconds)
	if text == "" {
		return usual
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatalf("%s: %v", measureSeconds, err)
	}

	return time.Duration(n) * time.Second
}
