package kubernetes_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

	// What it tells a cluster is shown on a real API server, in apiserver/.
	out, err := p.command(ctx, analyze, *analyze.SecurityContext.RunAsUser, append(p.arguments(analyze), "--dry-run=true")...).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), `"state":"degraded"`) {
		t.Errorf("analyze: %v, want exit code 3 and a degraded node\n%s", err, out)
	}
}
