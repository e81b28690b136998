package examples

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestProfiles runs the example with PyTorch's own profiler beside laggard's recorder, in one run:
// from the traces alone the same nodes are named, in the same state and with the same cause; of a
// healthy job nobody. `make profiles` runs it on Debian's PyTorch; LAGGARD_PROFILES=all runs 20 jobs on
// LAGGARD_PROFILES_PYTHON, a current one, and writes what both said of each to LAGGARD_PROFILES_TABLE.
// The files of each job stay in LAGGARD_PROFILES_KEEP where that names a folder.
func TestProfiles(t *testing.T) {
	wanted := os.Getenv("LAGGARD_PROFILES")
	if wanted == "" {
		t.Skip("whole jobs under a profiler: make profiles runs them")
	}

	laggard := binary(t)
	few := []string{"--steps", "45"}
	jobs := []profiled{
		// Rank 3 does as much more that it shows in 45 steps, also where ranks share few busy cores.
		{name: "compute, 4 ranks", runs: 6, nodes: 2, work: []string{"--steps", "45", "--slow-extra", "20"}, want: "[node-1 degraded compute]"},
		{name: "healthy, 4 ranks", runs: 4, nodes: 2, fault: []string{"--healthy"}, work: few, want: "[]"},
	}
	if wanted == "all" {
		jobs = append(jobs,
			// More ranks than cores hide a slow one from each other: it is slower here.
			profiled{name: "compute, 8 ranks", runs: 4, nodes: 4, work: []string{"--steps", "45", "--slow-extra", "30"}, want: "[node-1 degraded compute]"},
			profiled{name: "healthy, 8 ranks", runs: 2, nodes: 4, fault: []string{"--healthy"}, work: few, want: "[]"},
			// The wires slow down at step 60 of 140: one trace has steps before and after, the other slow ones only,
			// and two of its four pairs are well.
			profiled{name: "link, 6 ranks", runs: 2, nodes: 3, fault: []string{"--fault", "link"}, work: []string{"--profile-from", "2", "--profile-steps", "120"}, want: "[node-1 degraded communication]"},
			profiled{name: "link, 8 ranks", runs: 2, nodes: 4, fault: []string{"--fault", "link"}, work: []string{"--profile-from", "70"}, want: "[node-1 degraded communication]"})
	}

	for _, job := range jobs {
		if wanted != "all" {
			job.runs = 1
		}

		for i := range job.runs {
			t.Run(fmt.Sprintf("%s, run %d", job.name, i+1), func(t *testing.T) { job.run(t, laggard) })
		}
	}
}

// profiled is a job of nodes with two ranks each, and what its verdict must be.
type profiled struct {
	name        string
	runs, nodes int
	fault, work []string // for run.sh, and for train.py
	want        string
}

func (p profiled) run(t *testing.T, laggard string) {
	out := filepath.Join(t.TempDir(), "out")
	if keep := os.Getenv("LAGGARD_PROFILES_KEEP"); keep != "" {
		out = filepath.Join(keep, filepath.Base(t.Name()))
	}

	traces := filepath.Join(out, "traces")
	layout := topologyOf(t, p.nodes)
	args := append([]string{filepath.Join("pytorch", "run.sh")}, p.fault...)
	args = append(args, "--nodes", strconv.Itoa(p.nodes), "--", "--profile", traces)
	c := exec.CommandContext(t.Context(), "bash", append(args, p.work...)...)
	c.Env = append(os.Environ(), "LAGGARD="+laggard, "OUT="+out, "PYTHON="+cmp.Or(os.Getenv("LAGGARD_PROFILES_PYTHON"), "/usr/bin/python3"), "NO_COLOR=1")
	said, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == verdict.ExitDegraded) {
		t.Fatalf("run the job: %v\n%s", err, said)
	}

	recorded := verdictOf(t, laggard, filepath.Join(out, "store"))
	fromTraces := verdictOf(t, laggard, traces, "--topology", layout)
	t.Logf("recorder %s, links %v, %d steps; traces %s, links %v, %d steps", named(recorded), links(recorded), recorded.Steps.Analyzed, named(fromTraces), links(fromTraces), fromTraces.Steps.Analyzed)
	if got := named(recorded); got != p.want {
		t.Errorf("the recorder's verdict is %s, want %s\n%s", got, p.want, said)
	}

	if got := named(fromTraces); got != named(recorded) && got != named(unattributed(recorded)) {
		t.Errorf("the traces' verdict is %s, the recorder's %s", got, named(recorded))
	}

	// A profiler without a schedule leaves the same, but for the steps' marks.
	if got := named(verdictOf(t, laggard, unmarked(t, traces), "--topology", layout)); got != named(fromTraces) {
		t.Errorf("the verdict of traces without marks is %s, with them %s", got, named(fromTraces))
	}

	if !fromTraces.Decided || fromTraces.Steps.Analyzed < 28 {
		t.Errorf("traces: decided %v by %d steps: %v", fromTraces.Decided, fromTraces.Steps.Analyzed, fromTraces.Findings)
	}

	if path := os.Getenv("LAGGARD_PROFILES_TABLE"); path != "" {
		line := fmt.Sprintf("| %s | %s | %s, %d steps | %s, %d steps |\n", p.name, p.want, named(recorded), recorded.Steps.Analyzed, named(fromTraces), fromTraces.Steps.Analyzed)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(line)
			err = errors.Join(err, f.Close())
		}

		if err != nil {
			t.Error(err)
		}
	}
}

// unmarked copies traces without the marks of steps: they are other annotations there.
func unmarked(t *testing.T, traces string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(traces, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d traces in %s: %v", len(files), traces, err)
	}

	for _, path := range files {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), bytes.ReplaceAll(text, []byte("ProfilerStep#"), []byte("unmarked#")), 0o600)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// topologyOf writes which rank runs on which node: gloo's traces don't say.
func topologyOf(t *testing.T, nodes int) string {
	t.Helper()
	var all struct {
		World int              `json:"world_size"`
		Nodes map[string][]int `json:"nodes"`
	}
	all.World, all.Nodes = 2*nodes, map[string][]int{}
	for n := range nodes {
		all.Nodes[fmt.Sprintf("node-%d", n)] = []int{2 * n, 2*n + 1}
	}

	b, err := json.Marshal(all)
	path := filepath.Join(t.TempDir(), "topology.json")
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	return path
}

// verdictOf analyzes a source.
func verdictOf(t *testing.T, laggard, source string, args ...string) *verdict.Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, laggard, append([]string{"analyze", source, "-o", "json"}, args...)...).Output()
	var v verdict.Verdict
	if bad := json.Unmarshal(out, &v); bad != nil {
		t.Fatalf("analyze %s: %v, %v\n%s", source, err, bad, out)
	}

	return &v
}

// named lists the culprits with state and cause.
func named(v *verdict.Verdict) string {
	all := []string{}
	for _, n := range v.Nodes {
		all = append(all, n.Node+" "+n.State+" "+n.Cause)
	}

	return fmt.Sprint(all)
}

// links lists the ranks of the groups that are slow: their names differ, from the recorder and from traces.
func links(v *verdict.Verdict) (all [][]int) {
	for _, l := range v.Links {
		all = append(all, l.Ranks)
	}

	return all
}

// unattributed is a verdict of which nobody knows the causes.
func unattributed(v *verdict.Verdict) *verdict.Verdict {
	out := verdict.New(v.Job)
	for _, n := range v.Nodes {
		n.Cause = verdict.Unattributed
		out.Nodes = append(out.Nodes, n)
	}

	return out
}
