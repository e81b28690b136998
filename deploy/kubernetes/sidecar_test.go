package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pod is a pod without a cluster: its containers are processes with their users
// and groups, its volumes folders with the modes and the group that the kubelet
// gives an emptyDir.
type pod struct {
	t       *testing.T
	spec    corev1.PodSpec
	labels  map[string]string
	volumes map[string]string // name → folder
	store   string
}

// newPod makes the volumes. What the kubelet does for fsGroup: the group, and
// g+rwxs.
func newPod(t *testing.T, template corev1.PodTemplateSpec, labels map[string]string) *pod {
	t.Helper()
	home, err := os.MkdirTemp("", "laggard-pod-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}

	p := &pod{t: t, spec: template.Spec, labels: labels, volumes: map[string]string{}, store: filepath.Join(home, "store")}
	group := int(*template.Spec.SecurityContext.FSGroup)
	folder := func(path string) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}

		if os.Getuid() == 0 {
			if err := os.Chown(path, 0, group); err != nil {
				t.Fatal(err)
			}
		}

		if err := os.Chmod(path, 0o777|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range p.spec.Volumes {
		path := filepath.Join(home, v.Name)
		if v.EmptyDir != nil && v.EmptyDir.Medium == "Memory" {
			if path, err = os.MkdirTemp("/dev/shm", "laggard-pod-"); err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { os.RemoveAll(path) })
		}

		folder(path)
		p.volumes[v.Name] = path
	}

	folder(p.store)
	return p
}

// configMapVolume fills a volume as the kubelet does: behind two symbolic links.
func (p *pod) configMapVolume(name string, data map[string]string) {
	p.t.Helper()
	dir := p.volumes[name]
	if err := os.Mkdir(filepath.Join(dir, "..2026"), 0o755); err != nil {
		p.t.Fatal(err)
	}

	if err := os.Symlink("..2026", filepath.Join(dir, "..data")); err != nil {
		p.t.Fatal(err)
	}

	for key, text := range data {
		if err := os.WriteFile(filepath.Join(dir, "..2026", key), []byte(text), 0o644); err != nil {
			p.t.Fatal(err)
		}

		if err := os.Symlink("..data/"+key, filepath.Join(dir, key)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// inside maps the paths of a container to those of the volumes it mounts.
func (p *pod) inside(c corev1.Container, text string) string {
	for _, m := range c.VolumeMounts {
		text = regexp.MustCompile(regexp.QuoteMeta(m.MountPath)+`\b`).ReplaceAllString(text, p.volumes[m.Name])
	}

	return text
}

// environment is what the kubelet makes of env.
func (p *pod) environment(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		value := expansion.ReplaceAllStringFunc(e.Value, func(s string) string { return values[s[2:len(s)-1]] })
		if from := e.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil:
				value = p.field(from.FieldRef.FieldPath)
			case e.Name == "LAGGARD_STORE":
				value = "parquet:" + p.store
			default: // optional, and not there
				continue
			}
		}

		values[e.Name] = p.inside(c, value)
	}

	return values
}

func (p *pod) field(path string) string {
	if m := regexp.MustCompile(`^metadata\.labels\['(.*)'\]$`).FindStringSubmatch(path); m != nil {
		return p.labels[m[1]]
	}

	value, ok := map[string]string{"spec.nodeName": "node-7", "metadata.name": "training-0-abcde", "metadata.namespace": "research"}[path]
	if !ok {
		p.t.Fatalf("fieldPath %s", path)
	}

	return value
}

// command is a container as a process: its user and group, no capabilities.
func (p *pod) command(ctx context.Context, c corev1.Container, uid int64, argv ...string) *exec.Cmd {
	p.t.Helper()
	if os.Getuid() == 0 {
		gid := *c.SecurityContext.RunAsGroup
		argv = append([]string{"setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(gid), "--groups", fmt.Sprint(*p.spec.SecurityContext.FSGroup),
			"--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"}, argv...)
	} else {
		p.t.Logf("NOT ROOT: %s runs as uid %d, not as %d: rings shared by group are not shown here", c.Name, os.Getuid(), uid)
	}

	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	for k, v := range p.environment(c) {
		cmd.Env = append(cmd.Env, k+"="+v)
	}

	cmd.Dir = "/"
	return cmd
}

func (p *pod) arguments(c corev1.Container) []string {
	argv := []string{program}
	values := p.environment(c)
	for _, a := range c.Args {
		a = expansion.ReplaceAllStringFunc(a, func(s string) string { return values[s[2:len(s)-1]] })
		switch {
		case strings.HasPrefix(a, "--metrics="):
			a = "--metrics=127.0.0.1:0" // others have this machine's ports
		case strings.HasPrefix(a, "--grace="):
			a = "--grace=" + patience.String() // the machine may be busier than a node
		}

		if !strings.Contains(a, p.store) { // expanded already
			a = p.inside(c, a)
		}

		argv = append(argv, a)
	}

	return argv
}

// words collects a process's stderr and tells when the metrics' address is there.
type words struct {
	text    bytes.Buffer
	address chan string
	told    bool
}

var serving = regexp.MustCompile(`msg="serving metrics" address=(\S+)`)

func (w *words) Write(b []byte) (int, error) {
	w.text.Write(b)
	if m := serving.FindSubmatch(w.text.Bytes()); m != nil && !w.told {
		w.told = true
		w.address <- string(m[1])
	}

	return len(b), nil
}

// trainer is a training process for the sidecar: steps with what a step holds.
const trainer = `
import laggard
for n in range(64):
    with laggard.step(n):
        with laggard.span("FP"):
            pass
        with laggard.communication("allreduce", group="dp0", count=8, dtype="bf16"):
            pass
assert not laggard.failures(), laggard.failures()
`

// TestSidecarRuns: the containers of the example Job, as processes: install, the
// agent until it is ready, a trainer of another user (root, as most are, but with
// the group that the example gives it), SIGTERM. The store then holds each step.
func TestSidecarRuns(t *testing.T) {
	for _, uid := range []int64{0, 1000} {
		t.Run(fmt.Sprintf("trainer_uid_%d", uid), func(t *testing.T) { runSidecar(t, uid) })
	}
}

// patience bounds one wait, on a machine as busy as can be.
const patience = 5 * time.Minute

func runSidecar(t *testing.T, uid int64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	template := pods(load(t, "examples/job.yaml")[0].value)[0]
	p := newPod(t, template, map[string]string{"batch.kubernetes.io/job-name": "training"})
	p.configMapVolume("laggard-switch", map[string]string{"profilingSwitch": `{"CommunicationOperator":"off","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`})
	install, agent, train := sidecarOf(t, load(t, "examples/job.yaml")[0], template)
	if out, err := p.command(ctx, install, *install.SecurityContext.RunAsUser, p.arguments(install)...).CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}

	a := p.command(ctx, agent, *agent.SecurityContext.RunAsUser, p.arguments(agent)...)
	said := &words{address: make(chan string, 1)}
	a.Stderr = said
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}

	left := make(chan error, 1)
	go func() { left <- a.Wait() }()
	defer func() {
		cancel()
		if _, ok := <-left; ok {
			close(left)
		}
	}()
	var address string
	select {
	case address = <-said.address:
	case err := <-left:
		close(left)
		t.Fatalf("agent left: %v\n%s", err, said.text.String())
	}

	until(ctx, t, "http://"+address+"/readyz/rings", func(body string) bool { return body == "rings: ok\n" })

	python := "/usr/bin/python3" // the one on PATH may belong to root alone
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}

	c := p.command(ctx, train, uid, python, "-c", trainer)
	c.Env = append(c.Env, "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3")
	const first = "laggard: recording rank 3 of job training → agent on node-7\n"
	if out, err := c.CombinedOutput(); err != nil || string(out) != first {
		t.Fatalf("trainer: %v\n%s", err, out)
	}

	body := until(ctx, t, "http://"+address+"/metrics", func(body string) bool {
		return metric(body, `laggard_records_drained_total{kind="Step"}`) == 64 && metric(body, "laggard_recorders") == 0
	})
	if n := metric(body, `laggard_records_drained_total{kind="Communication"}`); n > 64 {
		t.Errorf("%v communications of 64", n)
	}

	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	err := <-left
	close(left)
	if err != nil {
		t.Fatalf("agent: %v\n%s", err, said.text.String())
	}

	checkStored(ctx, t, p)
}

// checkStored: the Parquet store has what the files have, under the pod's names.
func checkStored(ctx context.Context, t *testing.T, p *pod) {
	t.Helper()
	files := p.volumes["laggard-segments"] + "/profiling"
	out, err := exec.CommandContext(ctx, program, "ingest", files, "--to", "parquet:"+p.store, "--state", t.TempDir()).CombinedOutput()
	m := regexp.MustCompile(`steps +(\d+) stored, (\d+) found`).FindSubmatch(out)
	if err != nil || m == nil || string(m[1]) != "0" || string(m[2]) != "64" {
		t.Errorf("the agent didn't store all 64 steps: %v\n%s", err, out)
	}

	segments, err := filepath.Glob(files + "/training/3/[0-9]*")
	if err != nil || len(segments) == 0 {
		t.Fatalf("no segment of job training, rank 3: %v", err)
	}

	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`"node":"node-7"`, `"pod":"training-0-abcde"`, `"world_size":8`} {
		if first, _, _ := bytes.Cut(b, []byte("\n")); !bytes.Contains(first, []byte(want)) {
			t.Errorf("the segment begins %s, without %s", first, want)
		}
	}
}

func metric(body, name string) float64 {
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}

	return -1
}

// until asks until the answer is as wanted.
func until(ctx context.Context, t *testing.T, url string, ok func(body string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := get(ctx, url)
		if ok(last) {
			return last
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s never was as wanted; last:\n%s", url, last)
		}
	}
}

func get(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}

	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return err.Error()
	}

	return string(b)
}
