package intake_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laggard/schemas/parquet"
	"laggard/schemas/record"
	"laggard/schemas/row"
	"laggard/writer/clickhouse/chtest"
	"laggard/writer/intake"
	"laggard/writer/rollup"
	"laggard/writer/segment"
	"laggard/writer/ship"
	"laggard/writer/tail"
)

func TestMain(m *testing.M) {
	if os.Getenv("LAGGARD_TEST_INGEST") != "" {
		ingestProcess()
		return
	}
	goleak.VerifyTestMain(m)
}

// base is a start near a midnight, so that rows cross partitions.
const base = int64(1_753_055_990_000_000_000)

// job writes the files of a job: ranks that each make steps of a second, with two
// collectives a step. It can be written in portions.
type job struct {
	t     testing.TB
	dir   string
	ranks []*rank
}

type rank struct {
	w    *segment.Writer
	step int
	seq  [3]uint64
}

func newJob(t testing.TB, dir string, ranks int, limit int64) *job {
	t.Helper()
	j := &job{t: t, dir: dir}
	for r := range ranks {
		name := int64(1_753_000_000)
		w, err := segment.Open(filepath.Join(dir, "j1", fmt.Sprint(r)), record.Meta{
			Format: record.Format, Job: "j1", Rank: r, Incarnation: record.ID(1000 + r), WorldSize: ranks, LocalRank: r % 8,
			Node: fmt.Sprintf("node-%d", r/2), PID: 100 + r, StartedNs: base, Writer: "go/1",
			Groups: []record.Group{{Dim: "dp", Name: "dp0", Index: r, Size: ranks}},
		}, segment.Options{Limit: limit, Now: func() time.Time { name++; return time.Unix(name, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, &rank{w: w})
	}
	return j
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
	for _, r := range j.ranks {
		for range n {
			start := base + int64(r.step)*1_000_000_000
			for k := range int64(2) {
				c := record.New(record.Communication)
				c.Step, c.Start, c.Dur, c.Exposed = int64(r.step), start+100_000_000*(k+2), 50_000_000, 40_000_000
				c.Op, c.Group, c.Count, c.Dtype, c.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
				j.add(r, c, 2)
			}
			fp := record.New(record.FP)
			fp.Step, fp.Start, fp.Dur = int64(r.step), start+10_000_000, 100_000_000
			j.add(r, fp, 1)
			s := record.New(record.Step)
			s.Step, s.Start, s.Dur = int64(r.step), start, 990_000_000
			j.add(r, s, 1)
			r.step++
		}
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

func (j *job) close() {
	for _, r := range j.ranks {
		if err := r.w.Close(); err != nil {
			j.t.Error(err)
		}
	}
}

func store(t testing.TB, spec string) ship.Sink {
	t.Helper()
	s, err := intake.OpenStore(t.Context(), spec, intake.StoreOptions{})
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
	return intake.Options{Rollup: intake.Rollup{Records: rollup.All}}
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
	collect(t, dir, row.RanksTable, out, parquet.ReadRanks)
	collect(t, dir, row.StepsTable, out, parquet.ReadSteps)
	collect(t, dir, row.CommunicationsTable, out, parquet.ReadCommunications)
	collect(t, dir, row.RecordsTable, out, parquet.ReadRecords)
	return out
}

func collect[T any](t testing.TB, dir, table string, out map[string][]string, read func(string, func([]T) error) error) {
	t.Helper()
	files, err := parquet.Files(dir, table, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		err := read(f, func(rows []T) error {
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
	for _, table := range []string{row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable} {
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

func TestSecondPassStoresNothing(t *testing.T) {
	dir, want := written(t, 3, 100, 20<<10)
	server := chtest.Start(t)
	db := server.Database()
	for name, spec := range map[string]string{"parquet": "parquet:" + t.TempDir(), "clickhouse": server.Store(db)} {
		t.Run(name, func(t *testing.T) {
			first := once(t, dir, spec, all())
			if rows := uint64(len(want[row.StepsTable]) + len(want[row.RecordsTable]) + len(want[row.CommunicationsTable]) + len(want[row.RanksTable])); first.Stored() < rows {
				t.Fatalf("first pass: %s, want %d rows", first, rows)
			}
			second := once(t, dir, spec, all())
			if second.Stored() != 0 || second.Tables[row.LedgerTable].Inserted != 0 || !strings.Contains(second.String(), "nothing to store") {
				t.Fatalf("second pass: %s", second)
			}
			left, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".*"))
			left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == ".reached" })
			if len(left) != 0 {
				t.Fatalf("left in the tree: %v", left)
			}
		})
	}
	steps := server.Count("SELECT count() FROM " + db + ".steps")
	if steps != uint64(len(want[row.StepsTable])) {
		t.Fatalf("%d steps in ClickHouse", steps)
	}
	// The account: what was emitted was stored, segment by segment.
	emitted := server.Count("SELECT sum(records) FROM " + db + ".ledger WHERE state = 'emitted' AND batch = ''")
	stored := server.Count("SELECT sum(records) FROM " + db + ".ledger WHERE state = 'stored' AND batch != '' AND table = 'records'")
	if emitted != uint64(len(want[row.RecordsTable])) || stored != emitted {
		t.Fatalf("emitted %d, stored %d, want %d", emitted, stored, len(want[row.RecordsTable]))
	}
}

// TestGrowingTree passes again and again over a job that is still being written.
func TestGrowingTree(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	j := newJob(t, dir, 2, 16<<10)
	for range 4 {
		j.steps(32)
		once(t, dir, "parquet:"+target, all())
	}
	j.steps(32)
	j.end()
	once(t, dir, "parquet:"+target, all())
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	got, want := dump(t, target), dump(t, plain)
	if len(got[row.StepsTable]) != len(want[row.StepsTable]) || !slices.Equal(got[row.RecordsTable], want[row.RecordsTable]) {
		t.Fatalf("%d steps and %d records, want %d and %d", len(got[row.StepsTable]), len(got[row.RecordsTable]), len(want[row.StepsTable]), len(want[row.RecordsTable]))
	}
}

// ingestProcess is `laggard ingest` as a process of its own, to be killed.
func ingestProcess() {
	sink, err := intake.OpenStore(context.Background(), os.Getenv("LAGGARD_TEST_STORE"), intake.StoreOptions{})
	if err == nil {
		o := all()
		o.Quantum, o.Ship.BatchRows = 4<<10, 300
		var r intake.Report
		r, err = intake.Once(context.Background(), os.Getenv("LAGGARD_TEST_INGEST"), sink, o)
		fmt.Println(r)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKilledPassIsFinishedByTheNext kills passes (SIGKILL) at growing times until
// one comes to its end.
func TestKilledPassIsFinishedByTheNext(t *testing.T) {
	dir, want := written(t, 2, 200, 32<<10)
	server := chtest.Start(t)
	db := server.Database()
	target := t.TempDir()
	for name, spec := range map[string]string{"parquet": "parquet:" + target, "clickhouse": server.Store(db)} {
		kills := 0
		for limit := 10 * time.Millisecond; ; limit = limit*3/2 + 3*time.Millisecond {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LAGGARD_TEST_INGEST="+dir, "LAGGARD_TEST_STORE="+spec)
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			timer.Stop()
			if err == nil {
				t.Logf("%s: %d kills, then: %s", name, kills, &out)
				break
			}
			if cmd.ProcessState.Exited() {
				t.Fatalf("%s: %v: %s", name, err, &out)
			}
			kills++
		}
		if kills == 0 {
			t.Fatal("no pass was killed")
		}
	}
	same(t, dump(t, target), want)
	for table, rows := range want {
		if got := server.Count("SELECT count() FROM " + db + "." + table); got != uint64(len(rows)) && table != row.RanksTable {
			t.Errorf("ClickHouse %s: %d rows, want %d", table, got, len(rows))
		}
	}
}

// TestLeasedIsLeftAlone: a directory that a live process ships is reported.
func TestLeasedIsLeftAlone(t *testing.T) {
	dir, _ := written(t, 3, 20, 1<<20)
	l, err := tail.TakeLease(filepath.Join(dir, "j1", "1"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := t.TempDir()
	r := once(t, dir, "parquet:"+target, all())
	if len(r.Leased) != 1 || !strings.HasSuffix(r.Leased[0], "/j1/1") || r.Ranks != 2 || !strings.Contains(r.String(), "left to the agent") {
		t.Fatalf("report: %s", r)
	}
	if steps := dump(t, target)[row.StepsTable]; len(steps) != 40 {
		t.Fatalf("%d steps stored, want 40", len(steps))
	}
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

// TestFollowerOverRestarts follows a growing job through restarts, with and
// without its state, and stores what one pass over the whole would.
func TestFollowerOverRestarts(t *testing.T) {
	dir, target, state := t.TempDir(), t.TempDir(), t.TempDir()
	j := newJob(t, dir, 2, 16<<10)
	for round := range 5 {
		o := all()
		o.State = state
		follow(t, dir, "parquet:"+target, o, func(fo *intake.Follower) {
			for range 2 {
				j.steps(17)
				syncAll(t, fo)
			}
			if round == 4 {
				j.end()
				syncAll(t, fo)
			}
			st := fo.State()
			if st.Ranks != 2 || st.Backlog != 0 || st.Unacknowledged != 0 {
				t.Fatalf("State() = %+v", st)
			}
			infos, err := segment.List(filepath.Join(dir, "j1", "0"))
			if err != nil {
				t.Fatal(err)
			}
			if len(infos) > 2 && !fo.Shipped(filepath.Join(dir, "j1", "0"), infos[0].Name) {
				t.Fatal("the oldest segment is not shipped")
			}
			if round < 4 && fo.Shipped(filepath.Join(dir, "j1", "0"), infos[len(infos)-1].Name) {
				t.Fatal("the newest segment, with a step open in it, is shipped")
			}
		})
		if round == 2 { // the state directory is a cache
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	same(t, dump(t, target), dump(t, plain))
	if r := once(t, dir, "parquet:"+target, all()); r.Stored() != 0 {
		t.Fatalf("a pass after the follower: %s", r)
	}
}

// TestTwoFollowersOnOneTree store each row once; each rank is handed over to the
// process whose own it is.
func TestTwoFollowersOnOneTree(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	j := newJob(t, dir, 4, 16<<10)
	j.steps(20)
	follow(t, dir, "parquet:"+target, all(), func(a *intake.Follower) {
		syncAll(t, a)
		if st := a.State(); st.Ranks != 4 {
			t.Fatalf("State() = %+v", st)
		}
		o := all()
		o.Own = func(_ string, rank int) bool { return rank >= 2 }
		follow(t, dir, "parquet:"+target, o, func(b *intake.Follower) {
			for a.State().Ranks != 2 || b.State().Ranks != 2 {
				a.Hint()
				b.Hint()
				<-time.After(10 * time.Millisecond)
			}
			var wait sync.WaitGroup
			for range 5 {
				j.steps(20)
				wait.Add(2)
				go func() { defer wait.Done(); syncAll(t, a) }()
				go func() { defer wait.Done(); syncAll(t, b) }()
				wait.Wait()
			}
			j.end()
			syncAll(t, b)
		})
		for a.State().Ranks != 4 { // b is gone: its ranks come back
			a.Hint()
			<-time.After(10 * time.Millisecond)
		}
		syncAll(t, a)
	})
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	same(t, dump(t, target), dump(t, plain))
}

// TestErrorsNameObjectCauseRemedy is what a person sees.
func TestErrorsNameObjectCauseRemedy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for spec, words := range map[string][]string{
		"":                   {"parquet:DIR", "clickhouse://"},
		"postgres://h/d":     {"postgres://", "clickhouse://"},
		file:                 {file, "directory"},
		"clickhouse://u:p@h": {"password", "environment"},
	} {
		_, err := intake.OpenStore(t.Context(), spec, intake.StoreOptions{})
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("OpenStore(%q): %v; want a word on %q", spec, err, word)
			}
		}
	}
	empty, target := t.TempDir(), "parquet:"+t.TempDir()
	if _, err := intake.Once(t.Context(), empty, store(t, target), all()); !errors.Is(err, intake.ErrNothing) || !strings.Contains(err.Error(), empty) {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := intake.Once(t.Context(), filepath.Join(empty, "no"), store(t, target), all()); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("missing directory: %v", err)
	}
	dir, _ := written(t, 1, 5, 1<<20)
	if _, err := intake.Once(t.Context(), dir, store(t, "clickhouse://127.0.0.1:1/x"), all()); err == nil || !strings.Contains(err.Error(), "start the server") {
		t.Errorf("a server that is not there: %v", err)
	}
}

// TestGarbage: lines of nobody, a torn last line and a file of noise are counted,
// and the rest is stored.
func TestGarbage(t *testing.T) {
	dir, want := written(t, 1, 50, 1<<20)
	path := filepath.Join(dir, "j1", "0")
	for name, text := range map[string]string{"1753900000": "\x00\xff noise\n{\"a\":1}\nnot json\n{\"kind\":\"St", "1753900001": "", "1753900002": strings.Repeat("x", 100)} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	target := t.TempDir()
	r := once(t, dir, "parquet:"+target, all())
	same(t, dump(t, target), want)
	if r.Losses[record.TornLine].Events != 1 {
		t.Fatalf("report: %s", r)
	}
}

// shared returns the folder of a real trace, unpacked.
func shared(t *testing.T, name string) string {
	t.Helper()
	archive := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	f, err := os.Open(archive)
	if err != nil {
		t.Logf("RUN WITHOUT THE REAL TRACES: %v", err)
		return ""
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealTrace ingests a recorded job of another program's files into both stores.
func TestRealTrace(t *testing.T) {
	dir := shared(t, "ST")
	if dir == "" {
		return
	}
	target := t.TempDir()
	server := chtest.Start(t)
	db := server.Database()
	once(t, dir, "parquet:"+target, intake.Options{})
	once(t, dir, server.Store(db), intake.Options{})
	got := dump(t, target)
	if len(got[row.StepsTable]) != 8*32 {
		t.Fatalf("%d steps, want %d", len(got[row.StepsTable]), 8*32)
	}
	for table, rows := range got {
		if n := server.Count("SELECT count() FROM " + db + "." + table); n != uint64(len(rows)) && table != row.RanksTable {
			t.Errorf("%s: %d rows in ClickHouse, %d in Parquet", table, n, len(rows))
		}
	}
}
