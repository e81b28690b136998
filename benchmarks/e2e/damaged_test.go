package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/segment"
)

// watchesDamaged looks at the directory again and again: watch says once what it left
// out, counts it, and ends with analyze's verdict.
func watchesDamaged(t *testing.T, dir, path string, want *verdict.Verdict) {
	t.Helper()
	var said bytes.Buffer
	live, err := source.OpenLive(dir, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	// The damaged rank's last step is finished at the end only: the others wait for it.
	w, err := watch.New(watch.Options{Source: live, Lag: 20 * time.Minute, Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 3 {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	if n := strings.Count(said.String(), "file is damaged"); n != 1 || !strings.Contains(said.String(), path) {
		t.Errorf("watch said %d times what it left out:\n%s", n, said.String())
	}

	rec := httptest.NewRecorder()
	handlerOf(w).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(rec.Body.String(), fmt.Sprintf("laggard_watch_damaged_files{job=%q} 1", want.Job)) {
		t.Error("the metrics don't count the damaged file")
	}

	s := w.Status()
	if got := s.Jobs[want.Job].Verdict; got.Coverage != want.Coverage || got.Steps.Analyzed != want.Steps.Analyzed || !cmp.Equal(got.Nodes, want.Nodes) {
		t.Errorf("watch: coverage %v of %d steps, %+v; analyze: %v of %d, %+v", got.Coverage, got.Steps.Analyzed, got.Nodes, want.Coverage, want.Steps.Analyzed, want.Nodes)
	}
}

// TestDamagedCompressedSegment: one .zst of one rank that can't be read to its end is
// left out from there on, counted and said, by analyze, ingest and audit alike; the
// rest of the job is judged and stored, and the books close.
func TestDamagedCompressedSegment(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"flipped":   func(b []byte) []byte { b[len(b)*2/3] ^= 0x55; b[len(b)*2/3+1] ^= 0xaa; return b },
		"cut":       func(b []byte) []byte { return b[:len(b)*2/3] },
		"no-zstd":   func(b []byte) []byte { return []byte(strings.Repeat("no zstd\n", 100)) },
		"cut-early": func(b []byte) []byte { return b[:2] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "7", "--ranks", "16", "--steps", "120", dir); r.code != 0 {
				t.Fatalf("simulate: %+v", r)
			}

			before := laggard(t, "analyze", dir, "-o", "json")
			ranks, err := segment.Walk(dir)
			if err != nil {
				t.Fatal(err)
			}

			infos, err := segment.List(ranks[3].Path)
			if err != nil {
				t.Fatal(err)
			}

			path, err := segment.Compress(filepath.Join(ranks[3].Path, infos[0].Name))
			if err != nil {
				t.Fatal(err)
			}

			whole, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(whole), 0o644)
			}

			if err != nil {
				t.Fatal(err)
			}

			r := laggard(t, "analyze", dir, "-o", "json")
			var v verdict.Verdict
			if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != before.code || !v.Decided {
				t.Errorf("analyze: exit code %d, %v: %s%s", r.code, err, r.out, r.err)
			}

			if !strings.Contains(r.out+r.err, "compressed files that are damaged: 1") || !strings.Contains(r.out+r.err, path) {
				t.Errorf("analyze does not say what it left out: %s%s", r.out, r.err)
			}

			watchesDamaged(t, dir, path, &v)
			store := "parquet:" + filepath.Join(t.TempDir(), "store")
			if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 || !strings.Contains(r.out, "lost (corrupt): 1 times") {
				t.Errorf("ingest: %+v", r)
			}

			if got := audited(t, 0, dir, store); len(got.Damaged) != 1 || !strings.Contains(got.Damaged[0], path) {
				t.Errorf("audit: damaged %v", got.Damaged)
			}
		})
	}
}

// unterminated is the length of the line in TestUnterminatedLine.
const unterminated = 3 << 30

// TestUnterminatedLine: a line of 3 GB without an end, in a closed .zst that is the
// rank's newest file, is counted as lost with its bytes, by one pass and by an agent.
func TestUnterminatedLine(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "profiling")
	path := filepath.Join(dir, "j1", "0", "1753000000.zst")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}

	fmt.Fprintln(z, `{"kind":"Step","step":1,"start":1753000000000000001,"dur":5,"ring":1,"seq":0}`)
	part := []byte(strings.Repeat("x", 1<<20))
	for n := 0; n < unterminated; n += len(part) {
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	want := fmt.Sprintf("lost (torn-line): 1 times, %d bytes", unterminated)
	if r := laggard(t, "ingest", dir, "--to", "parquet:"+t.TempDir()); r.code != 0 || !strings.Contains(r.out, want) || strings.Contains(r.out, "left for the next pass") {
		t.Errorf("ingest: %+v", r)
	}

	s := newSite(t, "")
	s.dir = dir
	agent := s.agent()
	agent.until("the lost line", func(m map[string]float64) bool { return m[`laggard_reading_losses_total{reason="torn-line"}`] == 1 })
}

// TestImplausibleLoss: a loss line that claims 2^64-1 records, or more than any writer
// can lose, is refused and counted; what it claims is in no sum.
func TestImplausibleLoss(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	dir := filepath.Join(t.TempDir(), "job")
	if r := laggard(t, "simulate", "--scenario", "healthy", "--seed", "7", "--ranks", "8", "--steps", "60", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	infos, err := segment.List(ranks[0].Path)
	if err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(filepath.Join(ranks[0].Path, infos[0].Name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	for _, n := range []uint64{1<<64 - 1, 1 << 63, 1 << 50, 7} {
		fmt.Fprintf(f, `{"loss":{"ring":1,"kind":"Communication","reason":"ring-full","count":%d}}`+"\n", n)
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	if r := laggard(t, "analyze", dir); r.code != 0 || !strings.Contains(r.out+r.err, "3 loss lines claim") || !strings.Contains(r.out+r.err, "7 records never arrived") {
		t.Errorf("analyze: %+v", r)
	}

	for _, store := range []string{"parquet:" + filepath.Join(t.TempDir(), "store"), server.Store(server.Database())} {
		if r := laggard(t, "ingest", dir, "--to", store, "--state", t.TempDir()); r.code != 0 || !strings.Contains(r.out, "lost (implausible): 3 times") {
			t.Errorf("ingest: %+v", r)
		}

		got := audited(t, 0, dir, store)
		if got.Dropped["ring-full"] != 7 || got.Dropped["implausible"] != 3 {
			t.Errorf("dropped %v", got.Dropped)
		}
	}
}
