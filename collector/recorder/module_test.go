package recorder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// trainer is a program of another module that records.
const trainer = `package main

import (
	"fmt"
	"os"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
)

func main() {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		panic(err)
	}
	t := r.Thread()
	for n := range int64(100) {
		step := t.Step(n, 0)
		forward := t.Begin(record.FP, recorder.Attr{})
		forward.End()
		step.End()
	}
	t.Close()
	lost, err := r.Lost(), r.Err()
	r.Close()
	fmt.Println(lost == [record.KindCount]uint64{}, err)
}
`

// TestFromAnotherModule builds a program of another module with the recorder, as one that
// ran go get, and finds its rings.
func TestFromAnotherModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}

	const module = "github.com/laggard-dev/laggard"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": trainer,
		"go.mod":  "module example.org/train\n\ngo 1.26\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
		"go.sum":  string(sums),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	rings, err := os.MkdirTemp("/dev/shm", "laggard-module-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(rings) })
	c := exec.Command("go", "run", "-mod=mod", ".")
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off", "LAGGARD_RUN="+rings, "LAGGARD_JOB=j1", "RANK=0", "WORLD_SIZE=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "true <nil>") {
		t.Fatalf("%v\n%s", err, out)
	}

	found, err := filepath.Glob(filepath.Join(rings, "*", "ring-*"))
	if err != nil || len(found) == 0 {
		t.Errorf("no ring in %s: %v", rings, err)
	}
}
