package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// simulated writes a job with a slow node that everybody may read.
func simulated(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command(program, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "16", dir).CombinedOutput(); err != nil {
		t.Fatalf("simulate: %v\n%s", err, out)
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, map[bool]os.FileMode{true: 0o755, false: 0o644}[e.IsDir()])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// podOf returns the only pod template of an overlay's object.
func podOf(t *testing.T, dir, kind string) corev1.PodTemplateSpec {
	t.Helper()
	for _, d := range built(t, dir) {
		if d.kind.Kind == kind {
			return pods(d.value)[0]
		}
	}
	t.Fatalf("%s has no %s", dir, kind)
	return corev1.PodTemplateSpec{}
}

// TestBatchRuns: the CronJob's containers, one after the other, as processes with
// their user: files into Parquet, and a verdict from there as an exit code.
func TestBatchRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	template := podOf(t, "overlays/batch-files", "CronJob")
	p := newPod(t, template, nil)
	simulated(t, p.volumes["profiling"])
	ingest, analyze := template.Spec.InitContainers[0], template.Spec.Containers[0]
	if out, err := p.command(ctx, ingest, *ingest.SecurityContext.RunAsUser, p.arguments(ingest)...).CombinedOutput(); err != nil {
		t.Fatalf("ingest: %v\n%s", err, out)
	}
	out, err := p.command(ctx, analyze, *analyze.SecurityContext.RunAsUser, p.arguments(analyze)...).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), `"state":"degraded"`) {
		t.Errorf("analyze: %v, want exit code 3 and a degraded node\n%s", err, out)
	}
}

// TestWatchRuns: the watcher's container as a process with its user, over a store that
// another one filled and an API server that is recorded: the node condition comes, and
// SIGTERM ends it well.
func TestWatchRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	told := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // the test looks at what came
		told <- r.Method + " " + r.URL.Path + " " + string(b)
	}))
	defer api.Close()
	template := podOf(t, "overlays/watch", "Deployment")
	p := newPod(t, template, nil)
	files := t.TempDir()
	simulated(t, files)
	watch := template.Spec.Containers[0]
	fill := p.command(ctx, watch, *watch.SecurityContext.RunAsUser, program, "ingest", files, "--to", "parquet:"+p.store, "--state", p.volumes["state"]+"/ingest")
	if err := os.Chmod(filepath.Dir(files), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(files, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := fill.CombinedOutput(); err != nil {
		t.Fatalf("ingest: %v\n%s", err, out)
	}
	c := p.command(ctx, watch, *watch.SecurityContext.RunAsUser, append(p.arguments(watch), "--kubernetes-server="+api.URL, "--every=100ms", "--forget=100000h")...)
	said := &words{address: make(chan string, 1)}
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- c.Wait() }()
	select {
	case got := <-told:
		if !strings.HasPrefix(got, "PATCH /api/v1/nodes/node-") || !strings.Contains(got, `"type":"TrainingDegraded"`) || !strings.Contains(got, `"status":"True"`) {
			t.Errorf("the API server was told %s", got)
		}
	case err := <-left:
		t.Fatalf("watch left: %v\n%s", err, said.text.String())
	case <-ctx.Done():
		t.Fatal("the API server was told nothing")
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-left; err != nil {
		t.Errorf("watch: %v\n%s", err, said.text.String())
	}
	if entries, err := os.ReadDir(p.volumes["state"]); err != nil || len(entries) < 3 {
		t.Errorf("the state has %v, %v", fmt.Sprint(entries), err)
	}
}
