package e2e

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// site is a place where an agent and trainers run.
type site struct {
	t                 *testing.T
	rings, dir, store string
}

func newSite(t *testing.T, store string) *site {
	t.Helper()
	rings, err := os.MkdirTemp("/dev/shm", "laggard-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(rings) })
	dir := filepath.Join(t.TempDir(), "profiling")
	if store == "" {
		store = "parquet:" + filepath.Join(t.TempDir(), "store")
	}

	return &site{t, rings, dir, store}
}

// running is a process that a test waits for.
type running struct {
	t       *testing.T
	command *exec.Cmd
	words   *words
	done    chan error
}

// words collects what a process says and lets a test wait for a part of it.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *words) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		w.mu.Lock()
		w.text.WriteString(lines.Text() + "\n")
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

// start starts laggard.
func (s *site) start(args ...string) *running {
	s.t.Helper()
	return s.startCommand(exec.Command(program, args...))
}

// trainer starts what env makes of the test binary.
func (s *site) trainer(env ...string) *running {
	s.t.Helper()
	return s.startCommand(exec.Command(trainer), env...)
}

// startCommand starts a program with the site's rings and this environment.
func (s *site) startCommand(c *exec.Cmd, env ...string) *running {
	s.t.Helper()
	s.ours(c, env...)
	return s.running(c)
}

// ours gives a command the site's rings and this environment.
func (s *site) ours(c *exec.Cmd, env ...string) {
	c.Env = append(append(os.Environ(), "LAGGARD_RUN="+s.rings), env...)
}

// running starts a command.
func (s *site) running(c *exec.Cmd) *running {
	s.t.Helper()
	stderr, err := c.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}

	r := &running{s.t, c, &words{news: make(chan struct{}, 1)}, make(chan error, 1)}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}

	go func() {
		r.words.read(stderr)
		r.done <- c.Wait()
	}()
	s.t.Cleanup(func() { c.Process.Kill() })
	return r
}

// agent starts an agent; what is not in args is set for a test.
func (s *site) agent(args ...string) *running {
	s.t.Helper()
	return s.start(s.agentArguments(args...)...)
}

func (s *site) agentArguments(args ...string) []string {
	return append([]string{
		"agent", "--dir", s.dir, "--store", s.store, "--node", "node-0", "--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0",
	}, args...)
}

// emitter starts a trainer of one rank.
func (s *site) emitter(rank, world, steps int) *running {
	s.t.Helper()
	return s.emitterOf("j1", rank, world, steps)
}

// emitterOf starts a trainer of one rank of a job.
func (s *site) emitterOf(job string, rank, world, steps int, env ...string) *running {
	s.t.Helper()
	return s.trainer(append([]string{
		emitterSteps + "=" + strconv.Itoa(steps), "RANK=" + strconv.Itoa(rank), "LOCAL_RANK=" + strconv.Itoa(rank),
		"WORLD_SIZE=" + strconv.Itoa(world), "LAGGARD_JOB=" + job, "NODE_NAME=node-0",
	}, env...)...)
}

// patience bounds every wait of these tests.
const patience = 3 * time.Minute

// wait returns when the process has ended, and fails the test when not well.
func (r *running) wait() {
	r.t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Fatalf("%v: %v\n%s", r.command.Args[1:], err, r.words)
		}
	case <-time.After(patience):
		r.t.Fatalf("%v: still running after %v\n%s", r.command.Args[1:], patience, r.words)
	}
}

// says waits until the process has said what the pattern matches and returns the
// first group.
func (r *running) says(pattern string) string {
	r.t.Helper()
	expression := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		if m := expression.FindStringSubmatch(r.words.String()); m != nil {
			return m[1]
		}

		select {
		case <-r.words.news:
		case <-deadline:
			r.t.Fatalf("%v did not say %s:\n%s", r.command.Args[1:], pattern, r.words)
		}
	}
}

// get asks the agent for a path and returns the status and the words of its answer. No connection
// stays open: some agents have few descriptors.
func (r *running) get(path string) (status int, text string) {
	r.t.Helper()
	address := r.says(`serving metrics" address=(\S+)`)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}

	request.Close = true
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", path, err, r.words)
	}
	defer reply.Body.Close()
	b, err := io.ReadAll(reply.Body)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", path, err, r.words)
	}

	return reply.StatusCode, string(b)
}

// metrics asks the agent for its metrics, by name and labels.
func (r *running) metrics() map[string]float64 {
	r.t.Helper()
	_, text := r.get("/metrics")
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			values[name] = v
		}
	}

	return values
}

// until asks for the metrics until they are as ok wants them.
func (r *running) until(what string, ok func(map[string]float64) bool) map[string]float64 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		m := r.metrics()
		if ok(m) {
			return m
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("metrics never showed %s: %v\n%s", what, m, r.words)
		}
	}
}
