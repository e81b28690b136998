package source

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	goparquet "github.com/parquet-go/parquet-go"

	"github.com/laggard-dev/laggard/analyzer/feed"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
)

// fill stores made-up rows of ranks × steps in a Parquet store, a batch of a few
// ranks at a time, and returns what was stored.
func fill(t testing.TB, dir, job string, ranks, steps int) []row.Step {
	t.Helper()
	sink, err := parquet.Open(dir)
	if err != nil {
		t.Fatal(err)
	}

	if err := sink.Create(context.Background()); err != nil {
		t.Fatal(err)
	}

	random := rand.New(rand.NewPCG(3, uint64(ranks)))
	var all []row.Step
	store := func(rows *row.Rows) {
		for _, b := range ship.Cut(rows) {
			if err := sink.Insert(context.Background(), b); err != nil {
				t.Fatal(err)
			}
		}

		*rows = row.Rows{}
	}
	var rows row.Rows
	for r := range ranks {
		node := "node-" + strconv.Itoa(r/8)
		rows.Ranks = append(rows.Ranks, row.Rank{
			Job: job, Rank: uint32(r), Incarnation: uint64(r) + 7, WorldSize: uint32(ranks), Node: node, StartedNs: 1, Version: 1,
			Groups: []string{fmt.Sprintf("dp:dp0:%d:%d", r, ranks)}, GroupRanks: [][]uint32{{0, 1}}, BootID: "b", Writer: "test/1",
		})
		for s := range steps {
			fp := int64(500e6 * (1 + 0.02*random.NormFloat64()))
			rows.Steps = append(rows.Steps, row.Step{
				Job: job, Rank: uint32(r), Incarnation: uint64(r) + 7, Node: node, Step: uint64(s), StartNs: int64(s) * 1e9, StepNs: 1e9, FPNs: fp, FPCount: 1,
				CommNs: 9e8 - fp, ExposedNs: 9e8 - fp, CommTPNs: -1, CommPPNs: -1, CommDPNs: 9e8 - fp, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
				DataLoaderNs: 1e6, CheckpointNs: -1, SelfNs: 1e8 + fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1,
			})
		}

		if len(rows.Steps) >= 64<<10 || r == ranks-1 {
			if ranks < 1000 {
				all = append(all, rows.Steps...)
			}

			store(&rows)
		}
	}

	return all
}

func TestParquet_RowsComeBack(t *testing.T) {
	dir := t.TempDir()
	want := fill(t, dir, "a/b c", 20, 300)
	got, info, err := load(t, dir, "a/b c", Options{})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got.Steps); diff != "" {
		t.Errorf("steps differ:\n%.2000s", diff)
	}

	if len(got.Ranks) != 20 || got.Ranks[3].Groups[0] != "dp:dp0:3:20" || len(got.Ranks[3].GroupRanks) != 1 {
		t.Errorf("ranks %+v, info %+v", got.Ranks[3], info)
	}
}

// TestParquet_JobsByContent: a job's folder may not tell its name.
func TestParquet_JobsByContent(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 300)
	for _, job := range []string{"plain", "with/slash and %", "", long} {
		fill(t, dir, job, 1, 2)
	}

	s, err := Open(t.Context(), "parquet:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}

	jobs, err := s.Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"", "plain", "with/slash and %", long}, jobs); diff != "" {
		t.Fatal(diff)
	}

	for _, job := range jobs[1:] {
		if r, _, err := load(t, dir, job, Options{}); err != nil || len(r.Steps) != 2 {
			t.Errorf("job %.20q: %d steps, error %v", job, len(r.Steps), err)
		}
	}
}

// TestParquet_LargeFilesInSpans cuts a file into spans and expects the same rows.
func TestParquet_LargeFilesInSpans(t *testing.T) {
	dir := t.TempDir()
	want := fill(t, dir, "j", 3, 2000)
	files, err := layout.Files(layout.Folder(dir, row.StepsTable, "j"))
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range files {
		for _, cut := range []bool{false, true} {
			if cut { // row groups that end in the middle of spans
				if err := goparquet.WriteFile(path, want, goparquet.MaxRowsPerRowGroup(1000)); err != nil {
					t.Fatal(err)
				}
			}

			var got []row.Step
			for from := int64(0); from < 6000; from += 777 {
				rows, err := readSpan(span{path: path, from: from, to: min(from+777, 6000)}, stepColumns, "j", nil)
				if err != nil {
					t.Fatal(err)
				}

				got = append(got, rows...)
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("spans give other rows:\n%.2000s", diff)
			}
		}

		if _, err := readSpan(span{path: path, from: 5999, to: 6001}, stepColumns, "j", nil); err == nil {
			t.Error("a span behind the file's end is no error")
		}
	}
}

// TestParquet_RowGroupOfAnotherTool reads a row group of more than Arrow's million rows, in parts.
func TestParquet_RowGroupOfAnotherTool(t *testing.T) {
	type step struct {
		Rank    uint32 `parquet:"rank"`
		Step    uint64 `parquet:"step"`
		StartNs int64  `parquet:"start_ns"`
	}

	rows := make([]step, 1<<20+1)
	for i := range rows {
		rows[i] = step{Rank: 3, Step: uint64(i), StartNs: int64(i) * 1000}
	}

	dir := t.TempDir()
	path := filepath.Join(layout.Folder(dir, row.StepsTable, "j"), "other.parquet")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := goparquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}

	if spans, err := spansOf([]string{path}); err != nil || len(spans) != 9 {
		t.Fatalf("spans %v, %v; want 9", spans, err)
	}

	s, err := Open(t.Context(), "parquet:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}

	next := int64(0)
	_, err = s.Load(t.Context(), "j", func(r *row.Rows) {
		for i := range r.Steps {
			if got := r.Steps[i]; got.Job != "j" || got.Rank != 3 || got.Step != uint64(next) || got.StartNs != next*1000 {
				t.Fatalf("row %d is %+v", next, got)
			}

			next++
		}
	}, Options{Workers: 2})
	if err != nil || next != int64(len(rows)) {
		t.Fatalf("%d of %d rows, %v", next, len(rows), err)
	}
}

// TestParquet_OlderFiles lack columns: what is missing was not recorded.
func TestParquet_OlderFiles(t *testing.T) {
	type old struct {
		Job    string `parquet:"job"`
		Rank   uint32 `parquet:"rank"`
		Step   uint64 `parquet:"step"`
		StepNs int64  `parquet:"step_ns"`
		Node   string `parquet:"node"`
		Alien  string `parquet:"alien"`
	}
	dir := t.TempDir()
	path := filepath.Join(layout.Folder(dir, row.StepsTable, "j"), "old.parquet")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := goparquet.WriteFile(path, []old{{"j", 3, 7, 9e9, "n", "x"}}); err != nil {
		t.Fatal(err)
	}

	r, info, err := load(t, dir, "", Options{})
	if err != nil {
		t.Fatal(err)
	}

	want := row.Step{
		Job: "j", Rank: 3, Step: 7, StepNs: 9e9, Node: "n", FPNs: -1, CommNs: -1, ExposedNs: -1, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1,
		CommEPNs: -1, CommOtherNs: -1, DataLoaderNs: -1, CheckpointNs: -1, SelfNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1,
	}
	if diff := cmp.Diff([]row.Step{want}, r.Steps); diff != "" || len(r.Ranks) != 0 {
		t.Errorf("info %+v\n%s", info, diff)
	}

	type foreign struct {
		Rank *uint32 `parquet:"rank,optional"`
	}
	if err := goparquet.WriteFile(path, []foreign{{nil}}); err != nil {
		t.Fatal(err)
	}

	if _, _, err := load(t, dir, "", Options{}); err == nil || !strings.Contains(err.Error(), "column rank is optional") {
		t.Errorf("optional column: error %v", err)
	}

	if err := goparquet.WriteFile(path, []struct {
		Rank string `parquet:"rank"`
	}{{"3"}}); err != nil {
		t.Fatal(err)
	}

	if _, _, err := load(t, dir, "", Options{}); err == nil || !strings.Contains(err.Error(), "column rank: is of another type") {
		t.Errorf("column of texts: error %v", err)
	}

	if err := goparquet.WriteFile(path, []struct {
		Node int64 `parquet:"node"`
	}{{3}}); err != nil {
		t.Fatal(err)
	}

	if _, _, err := load(t, dir, "", Options{}); err == nil || !strings.Contains(err.Error(), "column node: is of another type") {
		t.Errorf("column of numbers: error %v", err)
	}
}

// TestParquet_Encodings: integers are the same in whatever way another tool has put them down.
func TestParquet_Encodings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(layout.Folder(dir, row.StepsTable, "j"), "x.parquet")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	type foreign struct {
		Rank   int32  `parquet:"rank"`
		Step   uint64 `parquet:"step,dict"`
		Start  int64  `parquet:"start_ns,plain"`
		StepNs int64  `parquet:"step_ns,delta"`
		FPNs   int32  `parquet:"fp_ns,dict"`
	}
	var all []foreign
	for i := range 3000 { // more than are read at once
		all = append(all, foreign{Rank: 2, Step: uint64(i), Start: int64(1e18) + int64(i), StepNs: int64(100 + i), FPNs: int32(i % 3)})
	}

	if err := goparquet.WriteFile(path, all); err != nil {
		t.Fatal(err)
	}

	r, _, err := load(t, dir, "", Options{})
	if err != nil || len(r.Steps) != len(all) {
		t.Fatalf("%d steps, error %v", len(r.Steps), err)
	}

	for i, s := range r.Steps {
		if w := all[i]; s.Rank != 2 || s.Step != w.Step || s.StartNs != w.Start || s.StepNs != w.StepNs || s.FPNs != int64(w.FPNs) {
			t.Fatalf("step %d: %+v, want %+v", i, s, w)
		}
	}
}

// FuzzReadSpan: a damaged file is an error, never a panic.
func FuzzReadSpan(f *testing.F) {
	dir := f.TempDir()
	fill(f, dir, "j", 1, 3)
	files, err := layout.Files(layout.Folder(dir, row.StepsTable, "j"))
	if err != nil {
		f.Fatal(err)
	}

	good, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("PAR1PAR1"))
	for _, at := range []int{len(good) / 3, len(good) - 40, len(good) - 9} {
		bad := append([]byte{}, good...)
		bad[at] ^= 0x55
		f.Add(bad)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}

		_, _ = guarded(path, func() ([]row.Step, error) { return readSpan(span{path: path, to: wholeFile}, stepColumns, "j", nil) })
		_, _ = guarded(path, func() ([]row.Rank, error) { return readRanks(path, "j") })
	})
}

// BenchmarkParquet loads ranks × steps into a frame.
func BenchmarkParquet(b *testing.B) {
	for _, size := range [][2]int{{100, 1000}, {1000, 1000}, {10000, 1000}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			dir := b.TempDir()
			fill(b, dir, "j", size[0], size[1])
			b.ReportAllocs()
			for b.Loop() {
				s, err := Open(b.Context(), dir, Options{})
				if err != nil {
					b.Fatal(err)
				}

				if _, err := s.Load(b.Context(), "j", new(feed.History).Add, Options{}); err != nil {
					b.Fatal(err)
				}
			}

			b.ReportMetric(float64(size[0]*size[1]*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
