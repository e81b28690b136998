package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestOverlappingRuns records two runs of one job name at the same time, each rank's two
// files side by side: both are named with what to do, nothing is judged, and nobody is
// accused, from files, from a store, by watch and by the replay. A second process of one
// rank alone is a finding, and the job is judged as before.
func TestOverlappingRuns(t *testing.T) {
	t.Parallel()
	dir, cfg, _ := watchedJob(t, "compute-1.5", 31)
	alone := decided(t, verdict.ExitDegraded, dir)
	other := cfg
	other.Seed++
	second := filepath.Join(t.TempDir(), "job")
	if _, err := simulate.Write(second, other); err != nil {
		t.Fatal(err)
	}

	add := func(rank segment.RankDir) (incarnations []string) {
		t.Helper()
		list, err := segment.List(filepath.Join(second, cfg.Job, filepath.Base(rank.Path)))
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range list {
			text, err := os.ReadFile(filepath.Join(second, cfg.Job, filepath.Base(rank.Path), s.Name))
			if err == nil {
				err = os.WriteFile(filepath.Join(rank.Path, "9"+s.Name), text, 0o644)
			}

			if err != nil {
				t.Fatal(err)
			}
		}

		here, err := segment.List(rank.Path)
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range here {
			incarnations = append(incarnations, incarnationOf(t, filepath.Join(rank.Path, s.Name)))
		}

		return incarnations
	}
	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	add(ranks[len(ranks)-1])
	one := decided(t, verdict.ExitDegraded, dir)
	if len(one.Nodes) != 1 || one.Nodes[0].Node != alone.Nodes[0].Node || len(overlaps(one)) != 1 || len(overlaps(one)[0].Ranks) != 1 {
		t.Errorf("with a second process of one rank: %+v, %+v", one.Nodes, one.Findings)
	}

	var names []string
	for _, rank := range ranks[:len(ranks)-1] {
		if got := add(rank); names == nil {
			names = got
		}
	}

	v := decided(t, verdict.ExitUndecided, dir)
	if v.Healthy || len(v.Nodes)+len(v.Links)+len(v.Events) > 0 || v.JobImpact != 0 || len(v.Findings) != 1 {
		t.Errorf("of two runs: %+v", v)
	}

	for _, f := range overlaps(v) {
		for _, want := range append(names, "Give each run a job name of its own") {
			if !strings.Contains(f.Detail, want) {
				t.Errorf("%q doesn't say %q", f.Detail, want)
			}
		}

		if len(f.Ranks) != len(ranks) {
			t.Errorf("ranks %v of %d", f.Ranks, len(ranks))
		}
	}

	store := "parquet:" + t.TempDir()
	if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 {
		t.Fatalf("ingest: %s%s", r.out, r.err)
	}

	same(t, "the store", v, decided(t, verdict.ExitUndecided, store))
	r := laggard(t, "watch", dir, "--once", "-o", "json")
	var watched verdict.Verdict
	if err := json.Unmarshal([]byte(r.out), &watched); err != nil || r.code != verdict.ExitUndecided {
		t.Fatalf("watch: exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}

	same(t, "watch", v, &watched)
	for _, args := range [][]string{{"analyze"}, {"analyze", "-o", "html"}, {"explain", "--what-if"}} {
		r := laggard(t, append(args, dir)...)
		if !strings.Contains(r.out, "Two runs are recorded under one job name.") || strings.Contains(r.out, "What if") {
			t.Errorf("%v: %s%s", args, r.out[:min(len(r.out), 3000)], r.err)
		}
	}
}

// overlaps are the findings of that kind.
func overlaps(v *verdict.Verdict) (some []verdict.Finding) {
	for _, f := range v.Findings {
		if f.Kind == verdict.OverlappingRuns {
			some = append(some, f)
		}
	}

	return some
}

// incarnationOf reads a segment's first line.
func incarnationOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	line, _, _ := strings.Cut(string(text), "\n")
	var first struct {
		Meta struct {
			Incarnation string `json:"incarnation"`
		} `json:"meta"`
	}
	if err := json.Unmarshal([]byte(line), &first); err != nil || first.Meta.Incarnation == "" {
		t.Fatalf("%s begins with %q: %v", path, line, err)
	}

	return first.Meta.Incarnation
}
