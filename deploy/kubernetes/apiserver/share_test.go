package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// store is a current ClickHouse server (schemas/clickhouse/chtest), until the test ends.
func store(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Glob(filepath.Join(cache, "laggard", "chdb-*", "node_modules", "@chdb", "lib-linux-*", "libchdb.so"))
	if err != nil || len(library) == 0 {
		t.Fatalf("libchdb.so is not installed under %s: run `.ci/parts kubernetes`", cache)
	}
	engine := filepath.Join(t.TempDir(), "chdbd")
	build := exec.Command("go", "build", "-o", engine, "./schemas/clickhouse/chtest/chdbd")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build chdbd: %v\n%s", err, out)
	}
	c := exec.Command(engine, "-lib", library[0], "-dir", t.TempDir())
	stdin, err := c.StdinPipe() // it ends with it
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		stdin.Close()
		c.Wait()
	})
	var web, native int
	if _, err := fmt.Fscan(stdout, &web, &native); err != nil {
		t.Fatalf("start chdbd: %v", err)
	}
	return fmt.Sprintf("clickhouse://127.0.0.1:%d/default", native)
}

// message is one that a watcher posted.
type message struct{ watcher, job, key string }

// messages takes what watchers post, each on a path of its name.
type messages struct {
	mu  sync.Mutex
	all []message
}

func (m *messages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var v struct{ Job string }
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, message{strings.TrimPrefix(r.URL.Path, "/"), v.Job, r.Header.Get("Laggard-Message")})
}

// of are the keys that a watcher posted of a job.
func (m *messages) of(watcher, job string) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if one.watcher == watcher && one.job == job {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// repeated is how many messages had the key of one before.
func (m *messages) repeated() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, one := range m.all {
		if seen[one.key] {
			n++
		}
		seen[one.key] = true
	}
	return n
}

// sharing is what the watchers of a test have in common.
type sharing struct {
	t        *testing.T
	s        *server
	overlay  []*unstructured.Unstructured
	job      *job
	store    string
	url      string // of messages
	messages messages
}

// sharer is a watcher that shares jobs.
type sharer struct {
	*pod
	name string
}

const lease = "20s"

// start starts a watcher with the arguments of the overlay's container.
func (c *sharing) start(name string) sharer {
	c.t.Helper()
	args := c.s.container(c.t, objectOf(c.t, c.overlay, "Deployment"), c.job.dir, owned(c.t))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAME)", name)
	}
	args = append(args, "--to="+c.store, "--lease="+lease, "--metrics=127.0.0.1:0", "--webhook="+c.url+"/"+name)
	return sharer{newPod(c.t, c.s, account(c.t, c.s, "laggard", "laggard-watch"), args...).begin(), name}
}

var (
	served   = regexp.MustCompile(`serving metrics" address="?([0-9.:]+)`)
	followed = regexp.MustCompile(`(?m)^laggard_job_healthy\{job="([^"]+)"\}`)
)

// metrics is the text of the watcher's metrics, "" before it serves any.
func (w sharer) metrics() string {
	m := served.FindStringSubmatch(w.said.String())
	if m == nil {
		return ""
	}
	r, err := http.Get("http://" + m[1] + "/metrics")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// jobs are those that the watcher follows.
func (w sharer) jobs() (jobs []string) {
	for _, m := range followed.FindAllStringSubmatch(w.metrics(), -1) {
		jobs = append(jobs, m[1])
	}
	slices.Sort(jobs)
	return jobs
}

// follows waits until the watcher follows exactly these.
func (w sharer) follows(jobs ...string) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("%s follows %q", w.name, jobs), func() (bool, string) {
		now := w.jobs()
		return slices.Equal(now, jobs), fmt.Sprintf("%q", now)
	})
}

// healthy adds jobs to the source.
func (j *job) healthy(names ...string) {
	j.t.Helper()
	pattern := j.t.TempDir()
	if out, err := exec.Command(program, "simulate", "--scenario", "healthy", "--seed", "3", "--ranks", "8", pattern).CombinedOutput(); err != nil {
		j.t.Fatalf("simulate: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(pattern, "scenario.yaml"))
	if err != nil {
		j.t.Fatal(err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(b, &config); err != nil {
		j.t.Fatal(err)
	}
	config["steps"], config["first_step"], config["start_unix"] = 60, 0, j.began
	for _, name := range names {
		config["job"] = name
		if b, err = yaml.Marshal(config); err != nil {
			j.t.Fatal(err)
		}
		file, made := filepath.Join(j.t.TempDir(), "scenario.yaml"), j.t.TempDir()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			j.t.Fatal(err)
		}
		if out, err := exec.Command(program, "simulate", "--scenario-file", file, made).CombinedOutput(); err != nil {
			j.t.Fatalf("simulate: %v\n%s", err, out)
		}
		if err := os.CopyFS(filepath.Join(j.dir, name), os.DirFS(filepath.Join(made, name))); err != nil {
			j.t.Fatal(err)
		}
	}
}

// lease is that of a watcher.
func (c *sharing) lease(name string) *coordinationv1.Lease {
	c.t.Helper()
	list, err := c.s.client.CoordinationV1().Leases("laggard").List(c.t.Context(), metav1.ListOptions{LabelSelector: "laggard.io/share"})
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Annotations["laggard.io/watcher"] == name {
			return &list.Items[i]
		}
	}
	return nil
}

// TestShare: two watchers divide the jobs of a store by Leases, each job to one of them. One is
// killed, and the other has its jobs when its Lease has ended, and says nothing again that was
// said, or one message at most. A second watcher of a name in use gets nothing. One whose Lease
// was taken loses its jobs at once. Without the API server it goes on until its Lease ends, and
// then follows nothing; with the server it is back. One that leaves takes its Lease along.
func TestShare(t *testing.T) {
	s := shared
	c := &sharing{t: t, s: s, overlay: s.install(t, "overlays/watch-share"), job: slowJob(t), store: store(t)}
	receiver := httptest.NewServer(&c.messages)
	t.Cleanup(receiver.Close)
	c.url = receiver.URL
	_, from := s.audited(t, 0)
	c.job.show(whileSlow)
	all := []string{"job-1", "job-2", "job-3", "job-4", "job-5", jobName}
	c.job.healthy(all[:5]...)

	a := c.start("a")
	a.follows(all...)
	until(t, "a posts its messages", func() (bool, string) {
		return len(c.messages.of("a", jobName)) > 0 && len(c.messages.of("a", "job-5")) > 0, a.said.String()
	})
	b := c.start("b")
	until(t, "both have a part", func() (bool, string) {
		first, second := a.jobs(), b.jobs()
		both := slices.Sorted(maps.Keys(setOf(append(slices.Clone(first), second...))))
		return len(first) > 0 && len(second) > 0 && len(first)+len(second) == len(all) && slices.Equal(both, all), fmt.Sprintf("a %q b %q", first, second)
	})
	t.Logf("a follows %q, b %q", a.jobs(), b.jobs())

	gone, left := a, b
	if slices.Contains(b.jobs(), jobName) {
		gone, left = b, a
	}
	gone.end(syscall.SIGKILL)
	left.follows(all...)
	if n := c.messages.repeated(); n > 1 {
		t.Errorf("%d messages were repeated: %+v", n, c.messages.all)
	}
	before := len(c.messages.of(left.name, jobName))
	c.job.show(allSteps)
	until(t, "the other says what changes", func() (bool, string) { return len(c.messages.of(left.name, jobName)) > before, left.said.String() })
	if text := left.metrics(); !regexp.MustCompile(`laggard_watch_jobs_taken_total [1-9]`).MatchString(text) || !strings.Contains(text, "laggard_watch_changes_repeated_total ") {
		t.Errorf("takeovers are not counted:\n%s", text)
	}
	t.Logf("%d messages, %d repeated", len(c.messages.all), c.messages.repeated())
	if c.lease(gone.name) != nil {
		t.Errorf("the Lease of %s is left", gone.name)
	}

	second := c.start(left.name)
	second.hears("is held by " + left.name + "_.*give each watcher its own --share")
	if jobs := second.jobs(); len(jobs) != 0 {
		t.Errorf("a second watcher of a name follows %q", jobs)
	}
	left.follows(all...)
	second.end(syscall.SIGTERM)

	stolen := c.lease(left.name)
	stolen.Spec.HolderIdentity = ptr.To("thief")
	until(t, "the Lease is taken", func() (bool, string) {
		_, err := s.client.CoordinationV1().Leases("laggard").Update(t.Context(), stolen, metav1.UpdateOptions{})
		if err != nil { // renewed meanwhile
			stolen = c.lease(left.name)
			stolen.Spec.HolderIdentity = ptr.To("thief")
		}
		return err == nil, fmt.Sprint(err)
	})
	left.hears("is held by thief")
	left.follows()
	left.follows(all...) // the thief did not renew it
	if l := c.lease(left.name); l.Spec.LeaseTransitions == nil || *l.Spec.LeaseTransitions == 0 {
		t.Errorf("the Lease counts no transition: %+v", l.Spec)
	}

	s.restart(t, func() {
		left.hears("the API server is away: this watcher goes on with its jobs until its Lease ends")
		if jobs := left.jobs(); !slices.Equal(jobs, all) {
			t.Errorf("while its Lease holds it follows %q", jobs)
		}
		left.hears("no job is followed until this watcher has its Lease again")
		left.follows()
	})
	left.hears("the API server answers again")
	left.follows(all...)
	if n := c.messages.repeated(); n > 1 {
		t.Errorf("%d messages were repeated: %+v", n, c.messages.all)
	}

	if err := left.end(syscall.SIGTERM); err != nil {
		t.Errorf("watch: %v", err)
	}
	if l := c.lease(left.name); l != nil {
		t.Errorf("its Lease is left: %+v", l)
	}
	s.justRights(t, from, "watch-share")
}

func setOf(names []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}
