package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestReadme runs every command of README.md but make's, which CI itself runs: in
// an empty folder, with a simulated job in place of the profiling directory, a
// real server in place of the user's, and a small script in place of training.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	home := t.TempDir()
	server := chtest.Start(t)
	profiling := filepath.Join(home, "profiling")
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "16", profiling); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	entries, err := filepath.Glob(filepath.Join(profiling, "sim-*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("simulated job: %v, %v", entries, err)
	}

	for name, script := range map[string]string{
		"laggard":  "#!/bin/sh\nexec " + program + " \"$@\"\n",
		"train.py": "import laggard\nfor n in range(3):\n    with laggard.step(n):\n        with laggard.span('FP'):\n            pass\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	rings, err := os.MkdirTemp("/dev/shm", "laggard-readme-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(rings) })
	place := strings.NewReplacer(
		"/user/cluster-info/profiling", profiling, "--job JOB", "--job "+filepath.Base(entries[0]),
		"clickhouse://laggard@clickhouse:9000/laggard", server.Store(server.Database()),
		" traces/", " "+profilesOf(t, "dlrm-8rank"), " run_ascend/", " "+profilesOf(t, "ascend/level0"),
		" cluster_analysis_output/", " "+profilesOf(t, "ascend/cluster_analysis_output"),
		" nsys/", " "+profilesOf(t, "nsys/mfu_2gpu_before.sqlite"), " flight/", " "+profilesOf(t, "flight"), " nccl-inspector/", " "+profilesOf(t, "inspector"),
		"/data/laggard", filepath.Join(home, "store"), "/opt/laggard", filepath.Join(home, "recorders"),
		// The agent of the README stays; this one leaves when the script has.
		"laggard agent", "laggard agent --ring-dir "+rings+" --dir "+filepath.Join(home, "own")+" --metrics 127.0.0.1:0 --listen 127.0.0.1:0 --until-idle 1s",
	)
	ran := 0
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], "make ") {
			continue
		}

		ran++
		c := exec.Command("bash", "-c", "set -u\n"+degradedIsFine(place.Replace(block[1]))+"\nwait\n")
		c.Dir = home
		c.Env = append(os.Environ(), "LAGGARD_RUN="+rings, "NO_COLOR=1", "PATH=/usr/bin:"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("README block:\n%s\n%v\n%s", block[1], err, out)
		}
	}

	if ran < 3 {
		t.Errorf("%d blocks of commands found in README.md, want 3 at least", ran)
	}
}

// profilesOf is a folder of real profiles.
func profilesOf(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "writer", "profiles", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}

	return dir
}

// degradedIsFine makes each line of a block end it, unless its exit code is 0 or,
// for a verdict on the simulated job, 3, or on profiles of one step 4.
func degradedIsFine(block string) string {
	var b strings.Builder
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if command, _, _ := strings.Cut(line, "#"); !strings.HasSuffix(strings.TrimSpace(command), "&") && strings.TrimSpace(command) != "" {
			line = command + ` || { code=$?; [ $code = 3 ] || [ $code = 4 ] || exit $code; }`
		}

		b.WriteString(line + "\n")
	}

	return b.String()
}
