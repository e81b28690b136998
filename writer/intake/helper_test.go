package intake_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

func TestMain(m *testing.M) {
	if os.Getenv("LAGGARD_TEST_INGEST") != "" {
		ingestProcess()
		return
	}

	if os.Getenv("LAGGARD_TEST_FOLLOW") != "" {
		followProcess()
		return
	}

	goleak.VerifyTestMain(m)
}

// base is a start near a midnight, so that rows cross partitions.
const base = int64(1_753_055_990_000_000_000)

// job writes the files of a job: ranks that each make steps of a second, with two
// collectives a step. It can be written piece by piece.
type job struct {
	t     testing.TB
	dir   string
	limit int64
	ranks []*rank
	late  int // device lines come so many steps, that is seconds, late; 0 writes none
}

func (j *job) add(r *rank, rec record.Record, ring uint32) {
	j.t.Helper()
	rec.Ring, rec.Seq = ring, r.seq[ring]
	r.seq[ring]++
	if err := r.w.AppendRecord(&rec); err != nil {
		j.t.Fatal(err)
	}
}

// steps writes n more steps of every rank.
func (j *job) steps(n int) {
	j.t.Helper()
	for range n {
		j.begin()
		j.finish()
	}

	j.flush()
}

// begin writes the collectives of every rank's next step, finish the rest of it.
func (j *job) begin() {
	j.t.Helper()
	for _, r := range j.ranks {
		start := base + int64(r.step)*1_000_000_000
		for k := range int64(2) {
			c := record.New(record.Communication)
			c.Step, c.Start, c.Dur, c.Exposed = int64(r.step), start+100_000_000*(k+2), 50_000_000, 40_000_000
			c.Op, c.Group, c.Count, c.Dtype, c.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
			j.add(r, c, 2)
		}
	}
}

func (j *job) finish() {
	j.t.Helper()
	for _, r := range j.ranks {
		start := base + int64(r.step)*1_000_000_000
		fp := record.New(record.FP)
		fp.Step, fp.Start, fp.Dur = int64(r.step), start+10_000_000, 100_000_000
		j.add(r, fp, 1)
		s := record.New(record.Step)
		s.Step, s.Start, s.Dur = int64(r.step), start, 990_000_000
		j.add(r, s, 1)
		r.step++
		if from := r.step - 1 - j.late; j.late > 0 && from >= 0 {
			d := record.New(record.FP)
			d.Step, d.Start, d.Dur, d.Side = int64(from), base+int64(from)*1_000_000_000+20_000_000, 70_000_000, record.Device
			d.HostStart, d.HostDur = d.Start-5_000_000, 1_000_000
			j.add(r, d, 3)
		}
	}
}

func (j *job) flush() {
	j.t.Helper()
	for _, r := range j.ranks {
		if err := r.w.Flush(); err != nil {
			j.t.Fatal(err)
		}
	}
}

// end writes the end lines and closes the files.
func (j *job) end() {
	j.t.Helper()
	for _, r := range j.ranks {
		e := record.End{At: base + int64(r.step)*1_000_000_000, How: "closed"}
		if err := r.w.AppendLine(e.AppendLine(nil)); err != nil {
			j.t.Fatal(err)
		}

		if err := errors.Join(r.w.Flush(), r.w.Close()); err != nil {
			j.t.Fatal(err)
		}
	}
}

type rank struct {
	w    *segment.Writer
	step int
	seq  [4]uint64
}

func newJob(t testing.TB, dir string, ranks int, limit int64) *job {
	t.Helper()
	j := &job{t: t, dir: dir, limit: limit}
	for r := range ranks {
		j.ranks = append(j.ranks, &rank{w: j.process(r, ranks, 0)})
	}

	return j
}

// process opens the segments of a rank's n-th process.
func (j *job) process(r, ranks, n int) *segment.Writer {
	j.t.Helper()
	name := int64(1_753_000_000 + 1000*n)
	w, err := segment.Open(filepath.Join(j.dir, "j1", fmt.Sprint(r)), record.Meta{
		Format: record.Format, Job: "j1", Rank: r, Incarnation: record.ID(1000 + 100*n + r), WorldSize: ranks, LocalRank: r % 8,
		Node: fmt.Sprintf("node-%d", r/2), PID: 100 + r, StartedNs: base, Writer: "go/1",
		Groups: []record.Group{{Dim: "dp", Name: "dp0", Index: r, Size: ranks}},
	}, segment.Options{Limit: j.limit, Now: func() time.Time { name++; return time.Unix(name, 0) }})
	if err != nil {
		j.t.Fatal(err)
	}

	return w
}

// restart lets every rank die where it is, without an end line, and begin again
// some steps before.
func (j *job) restart(n, back int) {
	j.t.Helper()
	for r, k := range j.ranks {
		if err := errors.Join(k.w.Flush(), k.w.Close()); err != nil {
			j.t.Fatal(err)
		}

		*k = rank{w: j.process(r, len(j.ranks), n), step: k.step - back}
	}
}

func store(t testing.TB, spec string) ship.Sink {
	t.Helper()
	s, err := intake.OpenStore(spec, clickhouse.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func all() intake.Options {
	return intake.Options{Records: rollup.All}
}

func once(t testing.TB, dir, spec string, o intake.Options) intake.Report {
	t.Helper()
	r, err := intake.Once(t.Context(), dir, store(t, spec), o)
	if err != nil {
		t.Fatalf("Once: %v", err)
	}

	return r
}

// dump returns the rows of a Parquet store as sorted text, a table each: what two
// ways of shipping are compared by, cell by cell.
func dump(t testing.TB, dir string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	collect[row.Rank](t, dir, row.RanksTable, out)
	collect[row.Step](t, dir, row.StepsTable, out)
	collect[row.Communication](t, dir, row.CommunicationsTable, out)
	collect[row.Record](t, dir, row.RecordsTable, out)
	out[row.LedgerTable] = accounts(t, dir)
	return out
}

// accounts is the account of the segments: of several entries of one thing the one
// that covers most of its segment counts.
func accounts(t testing.TB, dir string) []string {
	t.Helper()
	type thing struct {
		segment             uint64
		state, reason, kind string
	}
	last := map[thing]row.Ledger{}
	for _, f := range filesOf(t, dir, row.LedgerTable) {
		err := parquet.Read(f, func(rows []row.Ledger) error {
			for _, l := range rows {
				k := thing{uint64(l.Segment), l.State, l.Reason, l.Kind}
				if old, ok := last[k]; l.Batch == "" && (!ok || l.LastOffset > old.LastOffset) {
					last[k] = l
				}
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	var all []string
	for _, l := range last {
		all = append(all, fmt.Sprintf("%+v", l))
	}

	slices.Sort(all)
	return all
}

func collect[T any](t testing.TB, dir, table string, out map[string][]string) {
	t.Helper()
	for _, f := range filesOf(t, dir, table) {
		err := parquet.Read(f, func(rows []T) error {
			for i := range rows {
				out[table] = append(out[table], fmt.Sprintf("%+v", rows[i]))
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	slices.Sort(out[table])
}

// same compares two stores.
func same(t testing.TB, got, want map[string][]string) {
	t.Helper()
	for _, table := range []string{row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable, row.LedgerTable} {
		if slices.Equal(got[table], want[table]) {
			continue
		}

		t.Errorf("%s: %d rows, want %d", table, len(got[table]), len(want[table]))
		for i := range min(len(got[table]), len(want[table])) {
			if got[table][i] != want[table][i] {
				t.Errorf("first difference, row %d:\n got %s\nwant %s", i, got[table][i], want[table][i])
				break
			}
		}
	}
}

// written makes a finished job and what a plain pass over it stores.
func written(t testing.TB, ranks, steps int, limit int64) (dir string, want map[string][]string) {
	t.Helper()
	dir = t.TempDir()
	j := newJob(t, dir, ranks, limit)
	j.steps(steps)
	j.end()
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	want = dump(t, plain)
	if len(want[row.StepsTable]) != ranks*steps || len(want[row.RecordsTable]) != 4*ranks*steps {
		t.Fatalf("a plain pass stores %d steps and %d records", len(want[row.StepsTable]), len(want[row.RecordsTable]))
	}

	return dir, want
}

// follow runs a follower over f.
func follow(t testing.TB, dir, spec string, o intake.Options, f func(*intake.Follower)) {
	t.Helper()
	fo, err := intake.NewFollower(dir, store(t, spec), o)
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fo.Run(ctx) }()
	f(fo)
	stop()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
}

func syncAll(t testing.TB, fo *intake.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := fo.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

// filesOf lists the files of a table of a Parquet store, of all jobs.
func filesOf(t testing.TB, dir, table string) (files []string) {
	t.Helper()
	folders, err := parquet.Folders(dir, table)
	for _, folder := range folders {
		some, failed := parquet.Files(folder)
		files, err = append(files, some...), errors.Join(err, failed)
	}

	if err != nil {
		t.Fatal(err)
	}

	return files
}
