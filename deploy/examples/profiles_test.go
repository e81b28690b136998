package examples

import (
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
// healthy job nobody. `make profiles` runs it; LAGGARD_PROFILES=all adds faults, and repeats
// each job as often as LAGGARD_PROFILES_RUNS says.
func TestProfiles(t *testing.T) {
	wanted := os.Getenv("LAGGARD_PROFILES")
	if wanted == "" {
		t.Skip("whole jobs under a profiler: make profiles runs them")
	}
	laggard := binary(t)
	jobs := []profiled{{"compute", nil, "[node-1 degraded compute]"}, {"healthy", []string{"--healthy"}, "[]"}}
	if wanted == "all" {
		jobs = append(jobs, profiled{"dataloader", []string{"--fault", "dataloader"}, "[node-1 degraded dataloader]"})
	}
	runs := 1
	if n, err := strconv.Atoi(os.Getenv("LAGGARD_PROFILES_RUNS")); err == nil {
		runs = n
	}
	for _, job := range jobs {
		for i := range runs {
			t.Run(fmt.Sprintf("%s-%d", job.name, i), func(t *testing.T) { job.run(t, laggard) })
		}
	}
}

// profiled is a job and what its verdict must be.
type profiled struct {
	name  string
	fault []string
	want  string
}

func (p profiled) run(t *testing.T, laggard string) {
	out := filepath.Join(t.TempDir(), "out")
	traces := filepath.Join(out, "traces")
	layout := topologyOf(t)
	c := exec.CommandContext(t.Context(), "bash", append(append([]string{filepath.Join("pytorch", "run.sh")}, p.fault...), "--", "--steps", "45", "--profile", traces)...)
	c.Env = append(os.Environ(), "LAGGARD="+laggard, "OUT="+out, "PYTHON=/usr/bin/python3", "NO_COLOR=1")
	said, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == verdict.ExitDegraded) {
		t.Fatalf("run the job: %v\n%s", err, said)
	}
	recorded := verdictOf(t, laggard, filepath.Join(out, "store"))
	fromTraces := verdictOf(t, laggard, traces, "--topology", layout)
	t.Logf("recorder %s, %d steps; traces %s, %d steps", named(recorded), recorded.Steps.Analyzed, named(fromTraces), fromTraces.Steps.Analyzed)
	if got := named(recorded); got != p.want {
		t.Errorf("the recorder's verdict is %s, want %s\n%s", got, p.want, said)
	}
	if got := named(fromTraces); got != p.want && got != named(unattributed(recorded)) {
		t.Errorf("the traces' verdict is %s, the recorder's %s", got, named(recorded))
	}
	if !fromTraces.Decided || fromTraces.Steps.Analyzed < 28 {
		t.Errorf("traces: decided %v by %d steps", fromTraces.Decided, fromTraces.Steps.Analyzed)
	}
}

// topologyOf writes which rank runs on which node: gloo's traces don't say.
func topologyOf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.json")
	if err := os.WriteFile(path, []byte(`{"world_size":4,"nodes":{"node-0":[0,1],"node-1":[2,3]}}`), 0o600); err != nil {
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

// unattributed is a verdict of which nobody knows the causes.
func unattributed(v *verdict.Verdict) *verdict.Verdict {
	out := verdict.New(v.Job)
	for _, n := range v.Nodes {
		n.Cause = verdict.Unattributed
		out.Nodes = append(out.Nodes, n)
	}
	return out
}
