package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// job is a training job of eight nodes that has been simulated whole, and of which the
// watcher sees so many steps. node-1 is slow from step 75 to step 180, and node-6 for
// a moment after that.
type job struct {
	t      *testing.T
	whole  string
	dir    string // the source
	began  int64  // unix seconds
	offset map[string]int64
}

const (
	jobName   = "training"
	slowNode  = "node-1"
	whileSlow = 150 // steps: the fault is known
	allSteps  = 1 << 30
)

// newJob makes a job that ended this minute. change may alter its scenario.
func newJob(t *testing.T, scenario string, change func(config map[string]any)) *job {
	t.Helper()
	j := &job{t: t, whole: t.TempDir(), dir: owned(t), offset: map[string]int64{}}
	j.simulate("--scenario", scenario, "--seed", "3", "--ranks", "16")
	b, err := os.ReadFile(filepath.Join(j.whole, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	config["job"] = jobName
	config["shape"].(map[string]any)["ranks_per_node"] = 2
	config["steps"], config["first_step"] = 330, 0
	config["model"].(map[string]any)["seconds"] = 1
	j.began = time.Now().Add(-8 * time.Minute).Unix()
	config["start_unix"] = j.began
	change(config)
	if b, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	j.whole = t.TempDir()
	file := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	j.simulate("--scenario-file", file)
	return j
}

// slowJob is the job whose node is slow for a while.
func slowJob(t *testing.T) *job {
	return newJob(t, "compute-1.5", func(config map[string]any) {
		fault := config["faults"].([]any)[0].(map[string]any)
		fault["node"], fault["locals"], fault["from"], fault["to"] = 1, []any{0}, 75, 180
		moment := maps.Clone(fault)
		moment["node"], moment["from"], moment["to"] = 6, 240, 252
		config["faults"] = []any{fault, moment}
	})
}

func (j *job) simulate(args ...string) {
	j.t.Helper()
	if out, err := exec.Command(program, append(append([]string{"simulate"}, args...), j.whole)...).CombinedOutput(); err != nil {
		j.t.Fatalf("simulate: %v\n%s", err, out)
	}
}

// show lets the source have the steps up to that one.
func (j *job) show(last int) {
	j.t.Helper()
	files, err := filepath.Glob(filepath.Join(j.whole, jobName, "*", "*"))
	if err != nil || len(files) == 0 {
		j.t.Fatalf("segments: %v, %v", files, err)
	}
	for _, file := range files {
		j.showFile(file, last)
	}
	b, err := os.ReadFile(filepath.Join(j.whole, "topology.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(j.dir, jobName, "topology.json"), b, 0o644)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) showFile(file string, last int) {
	j.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		j.t.Fatal(err)
	}
	from := j.offset[file]
	to := from
	for line := range bytes.Lines(b[from:]) {
		var r struct{ Step int }
		if err := json.Unmarshal(line, &r); err != nil {
			j.t.Fatalf("%s: %v", file, err)
		}
		if r.Step > last {
			break
		}
		to += int64(len(line))
	}
	j.offset[file] = to
	name := filepath.Join(j.dir, jobName, filepath.Base(filepath.Dir(file)), filepath.Base(file))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		j.t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := f.Write(b[from:to]); err != nil {
		j.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		j.t.Fatal(err)
	}
}

// watching are the flags with which a test sees minutes in seconds.
func (j *job) watching(more ...string) []string {
	return append([]string{"watch", j.dir, "--kubernetes", "--dry-run=false", "--metrics=", "--every=100ms", "--hold=1s"}, more...)
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("node-", i))
	}
	return all
}
