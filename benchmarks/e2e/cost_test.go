package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// explained is what explain --what-if -o json says.
type explained struct {
	Verdict verdict.Verdict `json:"verdict"`
	WhatIf  struct {
		Repaired map[string]float64 `json:"repaired"`
		Together float64            `json:"together"`
		Fidelity float64            `json:"fidelity"`
	} `json:"what_if"`
}

// simulatedFiles writes a job of the simulator.
func simulatedFiles(t *testing.T, scenario string, seed uint64, ranks int) (dir string, truth simulate.Truth) {
	t.Helper()
	cfg, err := simulate.Sized(scenario, seed, ranks)
	if err != nil {
		t.Fatal(err)
	}

	dir = t.TempDir()
	if truth, err = simulate.Write(dir, cfg); err != nil {
		t.Fatal(err)
	}

	return dir, truth
}

func whatIf(t *testing.T, dir string) explained {
	t.Helper()
	r := laggard(t, "explain", "--what-if", "-o", "json", dir)
	var x explained
	if err := json.Unmarshal([]byte(r.out), &x); err != nil {
		t.Fatalf("explain --what-if: %v\n%s%s", err, r.out, r.err)
	}

	return x
}

// TestCost_ReplayOfRangesAgrees holds the cost from per-step rows to the replay of
// the raw ranges: within 0.5 % of step time, or 15 % of it. LAGGARD_COSTS=all adds jobs.
func TestCost_ReplayOfRangesAgrees(t *testing.T) {
	t.Parallel()
	type job struct {
		scenario string
		seed     uint64
		ranks    int
	}
	jobs := []job{
		{"compute-1.2", 11, 16}, {"backward-1.2", 5, 16}, {"thermal-ramp", 7, 16}, {"two-culprits", 13, 16}, {"dataloader", 3, 16},
		{"host-delay", 4, 16}, {"slow-from-start", 6, 16}, {"clock-skew", 5, 16}, {"compute-1.10", 21, 16},
	}
	if os.Getenv("LAGGARD_COSTS") == "all" { // with more ranks, and other factors and seeds of the same
		for _, j := range jobs {
			jobs = append(jobs, job{j.scenario, j.seed, 32})
		}

		jobs = append(jobs, job{"compute-1.05", 9, 32}, job{"compute-1.5", 3, 32}, job{"compute-2", 5, 32}, job{"host-delay", 7, 32})
	}

	jobs = append(jobs, job{"whole-host", 5014, 0}, job{"whole-host", 5108, 16}) // loaders, and a host: a stage without peers
	for _, tt := range jobs {
		dir, truth := simulatedFiles(t, tt.scenario, tt.seed, tt.ranks)
		x := whatIf(t, dir)
		said, replayed := x.Verdict.JobImpact, x.WhatIf.Together
		t.Logf("%s, seed %d: costs %.4f, said %.4f, the ranges say %.4f, fidelity %.3f", tt.scenario, tt.seed, truth.Impact, said, replayed, x.WhatIf.Fidelity)
		if off := max(said-replayed, replayed-said); off > max(0.005, 0.15*said) {
			t.Errorf("%s, seed %d: the rows say %.4f, the ranges %.4f", tt.scenario, tt.seed, said, replayed)
		}

		if off := max(truth.Impact-replayed, replayed-truth.Impact); off > max(0.005, 0.15*truth.Impact) {
			t.Errorf("%s, seed %d: costs %.4f, the ranges say %.4f", tt.scenario, tt.seed, truth.Impact, replayed)
		}
	}
}

// TestCost_EveryOutputSaysTheSame compares what is said of one job's cost: JSON,
// table, page, words, what-if, metrics, the stored verdict and the webhook, from
// files and from a store.
func TestCost_EveryOutputSaysTheSame(t *testing.T) {
	t.Parallel()
	dir, _ := simulatedFiles(t, "compute-1.5", 3, 32)
	v := decided(t, verdict.ExitDegraded, dir)
	n := v.Nodes[0]
	if len(v.Nodes) != 1 || n.JobImpact != v.JobImpact || v.JobImpact < 0.02 || v.JobImpactMax != 0 {
		t.Fatalf("one culprit: %+v, all together %.4f", v.Nodes, v.JobImpact)
	}

	if n.SinceTime == "" || n.DetectedTime == "" || v.Steps.FirstTime == "" || v.Steps.LastTime == "" {
		t.Errorf("times of %+v, steps %+v", n, v.Steps)
	}

	figure := fmt.Sprintf("%.1f", 100*v.JobImpact)
	if v.JobImpact > 0.0995 {
		figure = fmt.Sprintf("%.0f", 100*v.JobImpact)
	}

	figure = strings.TrimSuffix(figure, ".0") + "%"
	for name, args := range map[string][]string{"table": {"analyze"}, "page": {"analyze", "-o", "html"}, "words": {"explain"}, "what-if": {"explain", "--what-if"}} {
		r := laggard(t, append(args, dir)...)
		if !strings.Contains(r.out, figure) {
			t.Errorf("%s doesn't say %s:\n%s", name, figure, r.out[:min(len(r.out), 3000)])
		}

		if !strings.Contains(r.out, "by laggard "+version) {
			t.Errorf("%s doesn't say which version made it", name)
		}
	}

	if r := laggard(t, "explain", "--what-if", dir); !strings.Contains(r.out, "the job would save "+figure+" of its time") {
		t.Errorf("what-if doesn't begin with the verdict's cost %s:\n%s", figure, r.out)
	}

	store := t.TempDir()
	if r := laggard(t, "ingest", dir, "--to", "parquet:"+store); r.code != 0 {
		t.Fatalf("ingest: %s%s", r.out, r.err)
	}

	if s := decided(t, verdict.ExitDegraded, "parquet:"+store); s.JobImpact != v.JobImpact {
		t.Errorf("cost from the store %.4f, from files %.4f", s.JobImpact, v.JobImpact)
	}

	if r := laggard(t, "watch", dir, "--once", "--to", "parquet:"+store); r.code != verdict.ExitDegraded {
		t.Fatalf("watch --once: %d\n%s%s", r.code, r.out, r.err)
	}

	w, live := watched(t, dir, "", "")
	defer live.Close()
	defer w.Close()
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	s := w.Status()
	seen := s.Jobs[v.Job].Verdict
	if seen.JobImpact != v.JobImpact {
		t.Errorf("watch says %.4f, analyze %.4f", seen.JobImpact, v.JobImpact)
	}

	rec := httptest.NewRecorder()
	handlerOf(w).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(rec.Body.String(), fmt.Sprintf("laggard_job_impact{job=%q} %v", v.Job, v.JobImpact)) {
		t.Errorf("metrics lack a job_impact of %v", v.JobImpact)
	}

	if ppm := storedImpact(t, store, n.Node); max(ppm-v.JobImpact, v.JobImpact-ppm) > 1e-6 {
		t.Errorf("the stored verdict says %.6f, the JSON %.4f", ppm, v.JobImpact)
	}

	var page bytes.Buffer
	if err := report.JSON(&page, seen); err != nil || !strings.Contains(page.String(), `"job_impact"`) {
		t.Errorf("JSON of watch: %v", err)
	}

	if got := posted(t, dir, v.Steps.Last); got.JobImpact != v.JobImpact || got.Nodes[0].JobImpact != n.JobImpact {
		t.Errorf("the webhook got %.4f and %.4f, want %.4f", got.JobImpact, got.Nodes[0].JobImpact, v.JobImpact)
	}
}

// storedImpact is the last impact that the table of verdicts has of a node.
func storedImpact(t *testing.T, store, node string) (impact float64) {
	t.Helper()
	each(t, store, row.VerdictsTable, func(r *row.Verdict) {
		if r.Node == node && r.State == verdict.Degraded {
			impact = float64(r.ImpactPPM) / 1e6
		}
	})
	return impact
}
