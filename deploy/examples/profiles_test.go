package examples

import (
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
// healthy job nobody. `make profiles` runs it; LAGGARD_PROFILES=all adds faults, and repeats
// each job as often as LAGGARD_PROFILES_RUNS says; LAGGARD_PROFILES_PYTHON is another Python with torch.
func TestProfiles(t *testing.T) {
	wanted := os.Getenv("LAGGARD_PROFILES")
	if wanted == "" {
		t.Skip("whole jobs under a profiler: make profiles runs them")
	}

	laggard := binary(t)
	jobs := []profiled{
		{name: "compute", nodes: 2, want: "[node-1 degraded compute]"},
		{name: "healthy", nodes: 2, fault: []string{"--healthy"}, want: "[]"},
	}
	if wanted == "all" {
		jobs = append(jobs,
			profiled{name: "dataloader", nodes: 2, fault: []string{"--fault", "dataloader"}, want: "[node-1 degraded dataloader]"},
			profiled{name: "compute-8", nodes: 4, want: "[node-1 degraded compute]"},
			profiled{name: "healthy-8", nodes: 4, fault: []string{"--healthy"}, want: "[]"},
			profiled{name: "link", nodes: 3, fault: []string{"--fault", "link"}, want: "[node-1 degraded communication]", blind: true})
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

// profiled is a job of nodes with two ranks each, and what its verdict must be.
type profiled struct {
	name  string
	nodes int
	fault []string
	want  string
	// blind: the traces don't show it. Gloo's ranges name no communicator, so one slow link among
	// several is not to be seen in them; then nobody may be named.
	blind bool
}

func (p profiled) run(t *testing.T, laggard string) {
	out := filepath.Join(t.TempDir(), "out")
	traces := filepath.Join(out, "traces")
	layout := topologyOf(t, p.nodes)
	args := append([]string{filepath.Join("pytorch", "run.sh")}, p.fault...)
	args = append(args, "--nodes", strconv.Itoa(p.nodes), "--", "--profile", traces)
	switch {
	case p.blind: // the wires slow down at step 60 of 140
		args = append(args, "--profile-from", "45")
	case p.nodes > 2: // more ranks than cores hide the slow one: more of both
		args = append(args, "--steps", "80", "--slow-extra", "12")
	default:
		args = append(args, "--steps", "45")
	}

	c := exec.CommandContext(t.Context(), "bash", args...)
	c.Env = append(os.Environ(), "LAGGARD="+laggard, "OUT="+out, "PYTHON="+cmp.Or(os.Getenv("LAGGARD_PROFILES_PYTHON"), "/usr/bin/python3"), "NO_COLOR=1")
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

	if p.blind {
		if got := named(fromTraces); got != "[]" || len(fromTraces.Links) > 0 {
			t.Errorf("the traces' verdict is %s, links %v, of what they don't show", got, fromTraces.Links)
		}
	} else if got := named(fromTraces); got != p.want && got != named(unattributed(recorded)) {
		t.Errorf("the traces' verdict is %s, the recorder's %s", got, named(recorded))
	}

	if !fromTraces.Decided || fromTraces.Steps.Analyzed < 28 {
		t.Errorf("traces: decided %v by %d steps", fromTraces.Decided, fromTraces.Steps.Analyzed)
	}
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

// unattributed is a verdict of which nobody knows the causes.
func unattributed(v *verdict.Verdict) *verdict.Verdict {
	out := verdict.New(v.Job)
	for _, n := range v.Nodes {
		n.Cause = verdict.Unattributed
		out.Nodes = append(out.Nodes, n)
	}

	return out
}
