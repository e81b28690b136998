// Package examples holds whole jobs that laggard watches: pytorch, an ordinary
// DDP script on 4 ranks, and dataparallel, the workers of `laggard demo`, whose
// recovery_test.go takes them through every recovery that MindCluster knows.
//
// Its tests run them for real and time what they do, so `make test` runs them
// alone, after everything else, the demos two at a time. Caveat: on a busy
// machine the machine's own contention is a straggler.
package examples

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// binary builds laggard and returns its path. LAGGARD_PROGRAM names one that is built.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("LAGGARD_PROGRAM"); path != "" {
		return path
	}

	path := filepath.Join(t.TempDir(), "laggard")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build laggard: %v\n%s", err, out)
	}

	return path
}

// run runs a command, holds its exit code, and returns what it said.
func run(t *testing.T, code int, env []string, name string, args ...string) string {
	t.Helper()
	out, got := runs(t, env, name, args...)
	if got != code {
		t.Fatalf("%s %v: exit code %d, want %d\n%s", name, args, got, code, out)
	}

	return out
}

// runs runs a command, and returns what it said and its exit code.
func runs(t *testing.T, env []string, name string, args ...string) (said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // it hangs, however busy the machine is
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}

	return string(out), c.ProcessState.ExitCode()
}

// demosAtOnce is how many demos run at a time: each takes less than a third of a core.
const demosAtOnce = 2

// TestDemo runs the demo once for each fault and once for none: it fails by itself
// when the verdict is wrong.
func TestDemo(t *testing.T) {
	laggard := binary(t)
	turns := make(chan struct{}, demosAtOnce)
	inTurn := func(t *testing.T) {
		t.Helper()
		t.Parallel()
		turns <- struct{}{}
		t.Cleanup(func() { <-turns })
	}
	for fault, steps := range map[string]string{"compute": "110", "dataloader": "90", "checkpoint": "90", "link": "160"} {
		t.Run(fault, func(t *testing.T) {
			inTurn(t)
			dir := t.TempDir()
			out := run(t, 0, nil, laggard, "demo", "--fault", fault, "--steps", steps, "--dir", dir)
			if !strings.Contains(out, "right: ") || !strings.Contains(out, filepath.Join(dir, "report.html")) {
				t.Fatalf("the demo said:\n%s", out)
			}

			if page, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || len(page) < 10_000 {
				t.Fatalf("report of %d bytes, %v", len(page), err)
			}
		})
	}

	t.Run("healthy", func(t *testing.T) {
		inTurn(t)
		for tries := 3; ; tries-- { // what else runs here may disturb the workers: undecided, and nobody is named
			out, code := runs(t, nil, laggard, "demo", "--healthy", "--steps", "90", "--dir", t.TempDir())
			if code == 4 && tries > 1 {
				t.Logf("the machine was busy:\n%s", out)
				continue
			}

			if code != 0 || !strings.Contains(out, "right: nobody was slowed and nobody is named") {
				t.Fatalf("the demo ended with %d and said:\n%s", code, out)
			}

			return
		}
	})
}

// TestPyTorch runs the example on real ranks under each fault: the slowed node is the
// only one named, with its cause; not slowed, nobody is. All five kinds are in the
// store, and the script knows nothing of laggard. LAGGARD_JOBS=all adds the faults that
// the demo's jobs have too, and the healthy job, which TestProfiles has as well.
func TestPyTorch(t *testing.T) {
	laggard := binary(t)
	script, err := os.ReadFile(filepath.Join("pytorch", "train.py"))
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(strings.ToLower(string(script)), "laggard") {
		t.Error("train.py speaks of laggard")
	}

	named := regexp.MustCompile(`(?m)^\s*(node-\d)\s+(?:degraded|suspect|intermittent)\s+(\w+)`)
	type job struct {
		name string
		args []string
		code int
		want string
	}
	jobs := []job{{"compute", nil, 3, "[node-1 compute]"}}
	if os.Getenv("LAGGARD_JOBS") == "all" {
		jobs = append(jobs, job{"healthy", []string{"--healthy"}, 0, "[]"})
		for fault, cause := range map[string]string{"dataloader": "dataloader", "checkpoint": "checkpoint", "link": "communication"} {
			jobs = append(jobs, job{fault, []string{"--fault", fault}, 3, "[node-1 " + cause + "]"})
		}
	}

	for _, tt := range jobs {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			said := run(t, tt.code, []string{"LAGGARD=" + laggard, "OUT=" + out, "PYTHON=/usr/bin/python3", "NO_COLOR=1"},
				"bash", append([]string{filepath.Join("pytorch", "run.sh")}, tt.args...)...)
			var nodes []string
			for _, m := range named.FindAllStringSubmatch(said, -1) {
				nodes = append(nodes, m[1]+" "+m[2])
			}

			if got := fmt.Sprint(nodes); got != tt.want {
				t.Errorf("named %s, want %s:\n%s", got, tt.want, said)
			}

			fiveKinds(t, filepath.Join(out, "profiling", "pytorch-example"))
		})
	}
}

// fiveKinds counts the kinds in what the agents wrote.
func fiveKinds(t *testing.T, job string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(job, "*", "[0-9]*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("segments of 4 ranks: %v, %v", files, err)
	}

	counts := map[string]int{}
	kind := regexp.MustCompile(`(?m)^\{"kind":"(\w+)"`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range kind.FindAllSubmatch(b, -1) {
			counts[string(m[1])]++
		}
	}

	t.Logf("kinds recorded: %v", counts)
	for _, k := range []string{"Step", "FP", "Communication", "SaveCheckpoint", "DataLoader"} {
		if counts[k] == 0 {
			t.Errorf("no record of kind %s: %v", k, counts)
		}
	}
}
