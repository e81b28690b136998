package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/watch"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/agent"
)

// checkVerdictRows wants every change in the table of verdicts once, and a
// degraded node among them.
func checkVerdictRows(t *testing.T, store string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, row.VerdictsTable, "job=*", "*"+layout.Suffix))
	if err != nil {
		t.Fatal(err)
	}

	type key struct {
		at                   int64
		node, group, finding string
	}
	seen := map[key]bool{}
	degraded := false
	for _, f := range files {
		err := layout.Read(f, func(rows []struct {
			AtNs    int64  `parquet:"at_ns"`
			Node    string `parquet:"node"`
			Group   string `parquet:"group"`
			Finding string `parquet:"finding"`
			State   string `parquet:"state"`
			Body    string `parquet:"body"`
		}) error {
			for _, r := range rows {
				k := key{r.AtNs, r.Node, r.Group, r.Finding}
				if seen[k] {
					t.Errorf("%+v is stored twice", k)
				}

				seen[k] = true
				if r.Node != "" && r.State == verdict.Degraded {
					var n verdict.Node
					if err := json.Unmarshal([]byte(r.Body), &n); err != nil || n.Node != r.Node {
						t.Errorf("body of %s: %q: %v", r.Node, r.Body, err)
					}

					degraded = true
				}
			}

			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}

	if !degraded {
		t.Errorf("no degraded node in %d files of the table of verdicts", len(files))
	}
}

// TestWatch_OnceByThresholds: the share of step time that counts is the thresholds', in
// the verdict and in the exit code alike.
func TestWatch_OnceByThresholds(t *testing.T) {
	t.Parallel()
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	for _, tt := range []struct {
		file string
		code int
	}{{`{"min_impact": 0.9}`, verdict.ExitHealthy}, {`{"min_impact": 0.001}`, verdict.ExitDegraded}} {
		path := filepath.Join(t.TempDir(), "thresholds.json")
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}

		r := laggard(t, "watch", dir, "--once", "--thresholds", path, "-o", "json")
		var v verdict.Verdict
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Fatalf("%v: %s%s", err, r.out, r.err)
		}

		if r.code != tt.code || v.Healthy != (tt.code == verdict.ExitHealthy) || len(v.Nodes) != 1 || v.Nodes[0].State != verdict.Degraded {
			t.Errorf("%s: exit code %d, healthy %v, nodes %+v", tt.file, r.code, v.Healthy, v.Nodes)
		}
	}
}

// TestWatch_Once gives analyze's exit code and verdict, and the metrics of it.
func TestWatch_Once(t *testing.T) {
	t.Parallel()
	dir, _, want := watchedJob(t, "compute-1.5", 31)
	r := laggard(t, "watch", dir, "--once", "-o", "json")
	if r.code != verdict.ExitDegraded {
		t.Fatalf("watch --once: exit code %d, want %d\n%s", r.code, verdict.ExitDegraded, r.err)
	}

	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}

	if got["source"] != dir {
		t.Fatalf("source %v, want %v", got["source"], dir)
	}

	delete(got, "source")
	if a, b := text(t, got), text(t, want); a != b {
		t.Fatalf("watch --once says\n%s\nanalyze\n%s", a, b)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// handlerOf answers for a watcher as the command does.
func handlerOf(w *watch.Watcher) http.Handler {
	return agent.Handler(func(counter, gauge agent.Emit) { w.Metrics(counter, gauge, nil) }, http.HandlerFunc(w.Ready))
}

// TestWatch_Metrics scrapes a watcher that has found something.
func TestWatch_Metrics(t *testing.T) {
	t.Parallel()
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	w, live := watched(t, dir, "", "")
	defer live.Close()
	defer w.Close()
	handler := handlerOf(w)
	get := func(path string) (int, string) {
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		return r.Code, r.Body.String()
	}
	if code, body := get("/readyz"); code != 503 {
		t.Fatalf("/readyz before a look: %d %s", code, body)
	}

	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	if code, _ := get("/readyz"); code != 200 {
		t.Fatalf("/readyz: %d", code)
	}

	_, body := get("/metrics")
	for _, want := range []string{
		`laggard_node_degraded{cause="`, `state="degraded"} 1`, "laggard_node_slowdown{", "laggard_job_impact{", "laggard_watch_steps_total{",
		"laggard_watch_lag_seconds{", "laggard_watch_jobs 1", `laggard_watch_looks_total{result="ok"} 1`, "laggard_job_healthy{",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s in\n%s", want, body)
		}
	}
}
