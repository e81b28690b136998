package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// TestSources_GiveTheSameRows reads AR-1 from its files, from a Parquet store and
// from a real ClickHouse server that were filled with `ingest`'s own code.
func TestSources_GiveTheSameRows(t *testing.T) {
	dir := trace(t, "AR-1")
	server := chtest.Start(t)
	specs := map[string]string{parquetScheme: "parquet:" + t.TempDir(), clickHouseScheme: server.Store(server.Database())}
	want, wantInfo, err := load(t, dir, "", Options{})
	if err != nil {
		t.Fatal(err)
	}

	if len(want.Ranks) != 16 || len(want.Steps) != 16*21 || len(want.Communications) == 0 {
		t.Fatalf("files gave %d ranks, %d steps, %d communications", len(want.Ranks), len(want.Steps), len(want.Communications))
	}

	for kind, spec := range specs {
		sink, err := intake.OpenStore(spec, clickhouse.Options{})
		if err != nil {
			t.Fatal(err)
		}

		if _, err := intake.Once(t.Context(), dir, sink, intake.Options{}); err != nil {
			t.Fatalf("ingest into %s: %v", kind, err)
		}

		if c, ok := sink.(interface{ Close() error }); ok {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}

		got, info, err := load(t, spec, "", Options{})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}

		if info.Job != wantInfo.Job || info.Steps != wantInfo.Steps {
			t.Errorf("%s: %+v, want the counts of %+v", kind, info, wantInfo)
		}

		if kind == clickHouseScheme {
			if n := inRanges(t, spec, wantInfo.Job, 60); n != wantInfo.Steps {
				t.Errorf("by small ranges of ranks %d steps come, want %d", n, wantInfo.Steps)
			}
		}

		sorted(want)
		sorted(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s gives other rows than the files:\n%.3000s", kind, diff)
		}

		if a, b := frameOf(t, want), frameOf(t, got); !cmp.Equal(a, b, frameComparer) {
			t.Errorf("%s gives another frame than the files:\n%.3000s", kind, cmp.Diff(a, b, frameComparer))
		}
	}
}

// inRanges loads a job of a ClickHouse store by queries of a few rows each, and
// returns the number of steps.
func inRanges(t *testing.T, spec, job string, rowsEach uint64) int {
	t.Helper()
	s, err := Open(t.Context(), spec, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.(stored).tables.(*database).rows = rowsEach
	calls := 0
	info, err := s.Load(t.Context(), job, new(row.Rows).Add, Options{Progress: func(done, total int) {
		if calls++; done != calls || total < 8 {
			t.Errorf("progress %d of %d at call %d", done, total, calls)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}

	return info.Steps
}

func sorted(r *row.Rows) {
	key := func(a, b string) int { return strings.Compare(a, b) }
	slices.SortFunc(r.Ranks, func(a, b row.Rank) int {
		return key(fmt.Sprintf("%08d %d", a.Rank, a.Incarnation), fmt.Sprintf("%08d %d", b.Rank, b.Incarnation))
	})
	slices.SortFunc(r.Steps, func(a, b row.Step) int {
		return key(fmt.Sprintf("%08d %d %08d %d", a.Rank, a.Incarnation, a.Step, a.Repeat), fmt.Sprintf("%08d %d %08d %d", b.Rank, b.Incarnation, b.Step, b.Repeat))
	})
	slices.SortFunc(r.Communications, func(a, b row.Communication) int {
		return key(fmt.Sprintf("%08d %d %08d %d %s %s", a.Rank, a.Incarnation, a.StepFrom, a.Repeat, a.Group, a.Op), fmt.Sprintf("%08d %d %08d %d %s %s", b.Rank, b.Incarnation, b.StepFrom, b.Repeat, b.Group, b.Op))
	})
}

func frameOf(t *testing.T, r *row.Rows) *frame.Frame {
	t.Helper()
	var b feed.History
	b.Add(r)
	f, err := b.Frame(nil)
	if err != nil {
		t.Fatal(err)
	}

	return f
}

// frameComparer compares frames with all that is in them; NaN equals NaN.
var frameComparer = cmp.Options{cmp.Exporter(func(reflect.Type) bool { return true }), cmp.Comparer(func(a, b float32) bool {
	return a == b || a != a && b != b
})}

func TestFiles_AnyLevelOfTheTree(t *testing.T) {
	dir := trace(t, "ST")
	for _, spec := range []string{dir, filepath.Join(dir, "st-job"), filepath.Join(dir, "st-job", "3")} {
		r, info, err := load(t, spec, "", Options{Workers: 1})
		if err != nil {
			t.Fatalf("load %s: %v", spec, err)
		}

		want := 8 * 32
		if filepath.Base(spec) == "3" {
			want = 32
		}

		if len(r.Steps) != want || info.Job != "st-job" || info.Topology == nil || len(info.Topology.Groups) == 0 {
			t.Errorf("%s: %d steps (want %d), %+v", spec, len(r.Steps), want, info)
		}
	}
}

func TestFiles_GivenTopologyWinsAndIsChecked(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "j", "0", "1753000000"), stepLines("j", 0, 3))
	write(t, filepath.Join(dir, "j", "1", "1753000000"), stepLines("j", 1, 3))
	file := filepath.Join(t.TempDir(), "layout.json")
	write(t, file, `{"world_size":2,"nodes":{"a":[0],"b":[1]},"groups":[{"name":"dp0","dim":"dp","ranks":[0,1]}]}`)
	r, info, err := load(t, dir, "", Options{Topology: file})
	if err != nil {
		t.Fatal(err)
	}

	if len(info.Topology.Groups) != 1 || len(r.Ranks) != 2 || r.Ranks[0].Node != "node-0" {
		t.Errorf("info %+v, ranks %+v: want the given groups, and the node of the identity line", info, r.Ranks)
	}

	for name, want := range map[string]string{"/nowhere.json": "check the path given with --topology", file + "2": "did you mean"} {
		write(t, file+"2", `{"world_sice":2}`)
		if _, _, err := load(t, dir, "", Options{Topology: name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("topology %s: error %v, want %q in it", name, err, want)
		}
	}
}

func TestFiles_CountWhatWasNotUnderstood(t *testing.T) {
	dir := t.TempDir()
	lines := stepLines("j", 0, 5)
	write(t, filepath.Join(dir, "j", "0", "1753000000"), lines+"what is this?\n{\"alien\":1}\n"+`{"kind":"Step","step":9,"sta`)
	r, info, err := load(t, dir, "", Options{})
	if err != nil {
		t.Fatal(err)
	}

	if len(r.Steps) == 0 || info.Unknown != 2 || info.Torn != 1 {
		t.Errorf("%d steps, %+v; want steps, 2 unknown lines and 1 torn", len(r.Steps), info)
	}

	notes := strings.Join(info.Notes, "\n")
	for _, want := range []string{"2 of 13 lines were not understood", "what is this?", "a crash or damage cut short"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
}

// A topology whose world is too small for the ranks that were recorded is told.
func TestTopology_OfAnotherJob(t *testing.T) {
	dir := t.TempDir()
	for _, rank := range []int{0, 5} {
		write(t, filepath.Join(dir, "j", fmt.Sprint(rank), "1753000000"), stepLines("j", rank, 5))
	}

	file := filepath.Join(t.TempDir(), "t.json")
	for world, want := range map[int]bool{4: true, 6: false} {
		write(t, file, fmt.Sprintf(`{"world_size":%d}`, world))
		_, info, err := load(t, dir, "", Options{Topology: file})
		if err != nil {
			t.Fatal(err)
		}

		if told := strings.Contains(strings.Join(info.Notes, "\n"), "and rank 5 was recorded"); told != want {
			t.Errorf("world_size %d: told %v, notes %q", world, told, info.Notes)
		}
	}
}

// TestErrors_NameObjectCauseAndWhatToDo is one case per way a source can be wrong.
func TestErrors_NameObjectCauseAndWhatToDo(t *testing.T) {
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	mkdir := func(path string) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(at("empty"))
	write(t, at("file"), "x")
	mkdir(at("noranks", "job", "sub"))
	write(t, at("garbage", "j", "0", "1753000000"), "\x00\x01\x02\nnot json\n")
	write(t, at("garbage", "j", "1", "1753000000"), "{}\n")
	write(t, at("hollow", "j", "0", "1753000000"), "")
	write(t, at("torn", "j", "0", "1753000000"), `{"meta":{"format":"laggard/1","job":"j"`)
	write(t, at("torn", "j", "1", "1753000000"), "")
	write(t, at("late", "j", "0", "1753000000"), `{"kind":"Step","step":1,"start":9000000000000000000,"dur":2,"ring":1,"seq":0}`+"\n")
	mkdir(at("unnamed", "j", "0"))
	write(t, at("nostep", "j", "0", "1753000000"), `{"kind":"FP","start":1,"dur":2,"ring":1,"seq":0}`+"\n")
	write(t, at("two", "a", "0", "1753000000"), stepLines("a", 0, 3))
	write(t, at("two", "b", "0", "1753000000"), stepLines("b", 0, 3))
	write(t, at("store", "steps", "job=j", "x.parquet"), "PAR1 this is no Parquet file PAR1")
	mkdir(at("hollowstore", "steps"))
	closed := "clickhouse://u@127.0.0.1:1/db"

	for _, c := range []struct {
		name, spec, job string
		want            []string
	}{
		{"no name", "", "", []string{"no name given", "parquet:DIR"}},
		{"missing directory", at("nowhere"), "", []string{at("nowhere"), "no such directory", "check the path"}},
		{"a file", at("file"), "", []string{at("file"), "a file, not a directory"}},
		{"empty directory", at("empty"), "", []string{at("empty"), "is empty", "profiling directory"}},
		{"no rank directories", at("noranks"), "", []string{at("noranks"), "no rank directory", "<job>/<rank>/<unix seconds>"}},
		{"garbage files", at("garbage"), "", []string{"job j", "none of 3 lines in 2 files was understood", "no files of laggard's or TaskD's"}},
		{"empty files", at("hollow"), "", []string{"nothing stands in its 1 files", "wait"}},
		{"a torn line only", at("torn"), "", []string{"no line in its 2 files is complete", "1 end in the middle", "killed"}},
		{"times that can't be right", at("late"), "", []string{"1 lines in 1 files, 1 of them with a time", "more than 10 years", "clock"}},
		{"no segments", at("unnamed"), "", []string{"hold no segment", "is the recorder on"}},
		{"no step", at("nostep"), "", []string{"no step in it", "kind Step"}},
		{"several jobs", at("two"), "", []string{"holds 2 jobs: a, b", "--job"}},
		{"wrong job", at("two"), "c", []string{"holds no job c", "a, b"}},
		{"unknown scheme", "mysql://root:secret@h/db", "", []string{"mysql://root@h/db", "unknown kind", "clickhouse://"}},
		{"no parquet directory", "parquet:", "", []string{"no directory given"}},
		{"missing store", "parquet:" + at("nostore"), "", []string{at("nostore"), "no such directory"}},
		{"not a store", "parquet:" + at("two"), "", []string{at("two"), "laggard ingest SOURCE --to parquet:"}},
		{"store without jobs", "parquet:" + at("hollowstore"), "", []string{at("hollowstore"), "laggard ingest"}},
		{"damaged file", at("store"), "", []string{"x.parquet", "damaged", "move it away"}},
		{"connection refused", closed, "", []string{"clickhouse://u@127.0.0.1:1/db", "connection refused", "is the server up"}},
		{"password in URL", "clickhouse://u:secret@h/db", "", []string{"LAGGARD_CLICKHOUSE_PASSWORD"}},
		{"wrong parameter", "clickhouse://u@h/db?tls=yes", "", []string{`tls="yes"`, "secure=true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := load(t, c.spec, c.job, Options{})
			if err == nil {
				t.Fatal("no error")
			}

			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}

			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error tells a password: %v", err)
			}
		})
	}

	if _, _, err := load(t, at("two"), "", Options{}); err == nil || !strings.HasPrefix(err.Error(), at("two")+" holds 2 jobs: a, b; choose") {
		t.Errorf("several jobs: %v, want both named", err)
	}
}

func TestErrors_OfClickHouse(t *testing.T) {
	server := chtest.StartWith(t, chtest.Options{Password: "s3cret"})
	for _, c := range []struct {
		name, password, database string
		want                     []string
	}{
		{"wrong password", "wrong", "default", []string{"refused user default", "LAGGARD_CLICKHOUSE_PASSWORD"}},
		{"unknown database", "s3cret", "nowhere", []string{"no database nowhere", "laggard schema apply"}},
		{"missing tables", "s3cret", "default", []string{"a table of laggard's is missing", "laggard ingest"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("LAGGARD_CLICKHOUSE_PASSWORD", c.password)
			_, _, err := load(t, "clickhouse://"+server.Addr()+"/"+c.database, "", Options{})
			if err == nil {
				t.Fatal("no error")
			}

			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}

			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "wrong") && c.password == "wrong" {
				t.Errorf("error tells the password: %v", err)
			}
		})
	}
}

// TestErrors_UnreadableDirectory runs itself as nobody when it is root, who may
// read everything.
func TestErrors_UnreadableDirectory(t *testing.T) {
	const variable = "LAGGARD_TEST_UNREADABLE"
	if dir := os.Getenv(variable); dir != "" {
		_, err := Open(t.Context(), dir, Options{})
		fmt.Println("ERROR:", err)
		return
	}

	base, err := os.MkdirTemp("", "laggard-unreadable-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := filepath.Join(base, "profiling")
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}

	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
	}

	// The test binary lies where nobody may not look: run a copy.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}

	binary := filepath.Join(base, "test")
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestErrors_UnreadableDirectory$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), variable+"="+dir)
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run as nobody: %v\n%s", err, out)
	}

	for _, want := range []string{"ERROR: open source " + dir, "no permission to read it", "run as its owner"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"/data/x": "/data/x", "parquet:/data": "parquet:/data", "clickhouse://u@h:9000/db": "clickhouse://u@h:9000/db",
		"clickhouse://u:p@h:9000/db?password_file=/x": "clickhouse://u@h:9000/db", "clickhouse://%zz": "clickhouse://…",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestInOrder(t *testing.T) {
	t.Run("order", func(t *testing.T) {
		next := 0
		err := inOrder(t.Context(), 500, 7, func(_ context.Context, i int) (int, error) { return i * i, nil }, func(i, v int) error {
			if i != next || v != i*i {
				return fmt.Errorf("got %d: %d, want %d", i, v, next)
			}

			next++
			return nil
		})
		if err != nil || next != 500 {
			t.Fatalf("%d consumed, error %v", next, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if err := inOrder(t.Context(), 0, 4, func(context.Context, int) (int, error) { return 0, nil }, func(int, int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
	boom := errors.New("boom")
	t.Run("producer fails", func(t *testing.T) {
		err := inOrder(t.Context(), 100, 4, func(_ context.Context, i int) (int, error) {
			if i == 30 {
				return 0, boom
			}

			return i, nil
		}, func(int, int) error { return nil })
		if !errors.Is(err, boom) {
			t.Fatalf("error %v, want boom", err)
		}
	})
	t.Run("consumer fails", func(t *testing.T) {
		var made atomic.Int64
		err := inOrder(t.Context(), 10_000, 4, func(context.Context, int) (int, error) { made.Add(1); return 0, nil }, func(i, _ int) error {
			if i == 3 {
				return boom
			}

			return nil
		})
		if !errors.Is(err, boom) || made.Load() > 100 {
			t.Fatalf("error %v after %d produced, want boom soon", err, made.Load())
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := inOrder(ctx, 1000, 4, func(context.Context, int) (int, error) { return 0, nil }, func(i, _ int) error {
			if i == 5 {
				cancel()
			}

			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want cancelled", err)
		}
	})
}

// TestFiles_LateRangesHaveNoWriter: TaskD's lines tell of no loss. What is left out because its step was over is not by the
// account of a writer.
func TestFiles_LateRangesHaveNoWriter(t *testing.T) {
	var late, lost Info
	late.notes(rollup.Counts{Lost: []record.Loss{{Reason: rollup.LateRange, Count: 19}}})
	lost.notes(rollup.Counts{Lost: []record.Loss{{Reason: "ring-full", Count: 7}}})
	if got := strings.Join(late.Notes, "\n"); strings.Contains(got, "never arrived") || !strings.Contains(got, "19 ranges began when their step was over") {
		t.Errorf("of late ranges: %q", got)
	}

	if got := strings.Join(lost.Notes, "\n"); !strings.Contains(got, "7 records never arrived") {
		t.Errorf("of lost records: %q", got)
	}
}
