package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestMissingRanks takes half of a job's rank folders away, the culprit's and its host's
// among them: the half that is left is half of the measurements whoever tells the world's
// size, and nobody calls it healthy.
func TestMissingRanks(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"laggard", "taskd"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--ranks", "64", "--steps", "240", "--seed", "3", "--format", format, dir); r.code != 0 {
				t.Fatalf("simulate: %+v", r)
			}

			jobs, err := filepath.Glob(filepath.Join(dir, "*", "0"))
			if err != nil || len(jobs) != 1 {
				t.Fatalf("jobs in %s: %v, %v", dir, jobs, err)
			}

			for rank := range 64 {
				if rank%4 >= 2 { // 27, the slow one, is among them; 61 is the highest that stays
					if err := os.RemoveAll(filepath.Join(filepath.Dir(jobs[0]), strconv.Itoa(rank))); err != nil {
						t.Fatal(err)
					}
				}
			}

			// With what tells the size of the world, then with less and less of it.
			missing(t, dir, 64, 0.5, "")
			remove(t, filepath.Join(dir, topology.FileName))
			missing(t, dir, 64, 0.5, "")
			if format == "laggard" {
				return
			}

			groups, err := filepath.Glob(filepath.Join(filepath.Dir(jobs[0]), "*", topology.ParallelGroupFile))
			if err != nil {
				t.Fatal(err)
			}

			remove(t, groups...)
			missing(t, dir, 62, 0.5161, verdict.FromRanks)
			if r := laggard(t, "analyze", dir); !strings.Contains(r.out, "Nothing told the number of ranks") {
				t.Errorf("analyze does not say how ranks were counted:\n%s", r.out)
			}
		})
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

// missing analyzes a job of which half is gone.
func missing(t *testing.T, dir string, world int, coverage float64, from string) {
	t.Helper()
	r := laggard(t, "analyze", dir, "-o", "json")
	var v verdict.Verdict
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}

	if v.WorldSize != world || v.Coverage != coverage || v.WorldSizeFrom != from {
		t.Errorf("world %d (%q), coverage %v; want %d (%q), %v", v.WorldSize, v.WorldSizeFrom, v.Coverage, world, from, coverage)
	}

	if culprit := v.Exit(0.01) == verdict.ExitDegraded; v.Healthy || !culprit && r.code != 4 {
		t.Errorf("exit code %d, healthy %v: %+v", r.code, v.Healthy, v)
	}
}

// TestMissingRanksCheapCulprit: a culprit that costs too little to matter makes no half
// of a job healthy.
func TestMissingRanksCheapCulprit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--ranks", "64", "--steps", "240", "--seed", "3", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	for _, want := range []struct {
		impact string
		code   int
	}{{"0.99", 0}, {"0.01", 3}} {
		if r := laggard(t, "analyze", dir, "--min-impact", want.impact); r.code != want.code {
			t.Fatalf("analyze of all ranks with --min-impact %s: %+v", want.impact, r)
		}
	}

	for rank := range 64 {
		if rank%4 < 2 {
			if err := os.RemoveAll(filepath.Join(dir, "sim-compute-1.5-3", strconv.Itoa(rank))); err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, want := range []struct {
		impact string
		code   int
	}{{"0.99", 4}, {"0.01", 3}} {
		if r := laggard(t, "analyze", dir, "--min-impact", want.impact); r.code != want.code {
			t.Errorf("analyze of half of the ranks with --min-impact %s: %+v", want.impact, r)
		}
	}
}
