package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/segment"
)

// emitterSteps makes the test binary a trainer that records so many steps, each of
// one Step, one FP, one DataLoader and emitterCalls Communication ranges.
const (
	emitterSteps = "LAGGARD_TEST_EMITTER"
	emitterCalls = 97
	perStep      = emitterCalls + 3
)

func init() {
	if text := os.Getenv(emitterSteps); text != "" {
		steps, err := strconv.Atoi(text)
		if err == nil {
			err = emitSteps(steps)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// emitSteps records 12,500 ranges a second: more than twice a busy rank, and little
// enough for an agent under the race detector on a busy machine.
func emitSteps(steps int) error {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		return err
	}
	defer r.Close()
	t := r.Thread()
	defer t.Close()
	op := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 1<<20, record.DtypeCode("bf16"))
	pace := time.NewTicker(40 * time.Millisecond)
	defer pace.Stop()
	for step := range steps {
		if step%5 == 4 {
			<-pace.C
		}
		whole := t.Step(int64(step), 0)
		load := t.Begin(record.DataLoader, recorder.Attr{})
		load.End()
		forward := t.Begin(record.FP, recorder.Attr{})
		forward.End()
		for range emitterCalls {
			c := t.Begin(record.Communication, op)
			c.End()
		}
		whole.End()
	}
	if lost := r.Lost(); lost != ([record.KindCount]uint64{}) || r.Err() != nil {
		return fmt.Errorf("ranges without a ring, by kind: %v; %w", lost, cmp.Or(r.Err(), errors.New("recording is on")))
	}
	return nil
}

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

func (s *site) start(env []string, args ...string) *running {
	s.t.Helper()
	return s.running(s.command(env, args...))
}

// command is the test binary as one of its parts.
func (s *site) command(env []string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	s.ours(c, env...)
	return c
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
	return s.running(s.agentCommand(args...))
}

func (s *site) agentCommand(args ...string) *exec.Cmd {
	base := []string{"agent", "--dir", s.dir, "--store", s.store, "--node", "node-0", "--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0"}
	return s.command([]string{asLaggard + "=1"}, append(base, args...)...)
}

// emitter starts a trainer of one rank.
func (s *site) emitter(rank, world, steps int) *running {
	s.t.Helper()
	return s.emitterOf("j1", rank, world, steps)
}

// emitterOf starts a trainer of one rank of a job.
func (s *site) emitterOf(job string, rank, world, steps int, env ...string) *running {
	s.t.Helper()
	return s.start(append([]string{
		emitterSteps + "=" + strconv.Itoa(steps), "RANK=" + strconv.Itoa(rank), "LOCAL_RANK=" + strconv.Itoa(rank),
		"WORLD_SIZE=" + strconv.Itoa(world), "LAGGARD_JOB=" + job, "NODE_NAME=node-0",
	}, env...))
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

// metrics asks the agent for its metrics, by name and labels.
func (r *running) metrics() map[string]float64 {
	r.t.Helper()
	address := r.says(`serving metrics" address=(\S+)`)
	reply, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer reply.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
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

// TestAgentMillionRecords: emitted = stored for a million records through ring,
// segments and the real server, by count and by sequence number.
func TestAgentMillionRecords(t *testing.T) {
	const ranks, steps = 4, 2500 // × 100 records
	server := chtest.Start(t)
	database := server.Database()
	s := newSite(t, server.Store(database))
	agent := s.agent("--records", "all", "--until-idle", "1s")
	for rank := range ranks {
		defer s.emitter(rank, ranks, steps).wait()
	}
	agent.wait()
	table := database + ".records"
	const emitted = ranks * steps * perStep
	if got := server.Count("SELECT count() FROM " + table); got != emitted {
		t.Errorf("stored %d records, emitted %d", got, emitted)
	}
	if got := server.Count("SELECT uniqExact(segment, offset) FROM " + table); got != emitted {
		t.Errorf("%d distinct rows, want %d", got, emitted)
	}
	// Each ring's sequence numbers are 0 … n-1, each once.
	bad := server.Count("SELECT count() FROM (SELECT rank, ring, count() AS n, uniqExact(seq) AS u, min(seq) AS a, max(seq) AS b FROM " + table +
		" GROUP BY rank, ring HAVING n != u OR a != 0 OR b != n - 1)")
	if bad != 0 {
		t.Errorf("%d rings with gaps or repetitions in their sequence", bad)
	}
	if got := server.Count("SELECT count() FROM " + database + ".steps"); got != ranks*steps {
		t.Errorf("%d steps stored, want %d", got, ranks*steps)
	}
	if got := server.Count("SELECT sum(calls) FROM " + database + ".communications"); got != ranks*steps*emitterCalls {
		t.Errorf("communications count %d calls, want %d", got, ranks*steps*emitterCalls)
	}
}

// TestAgentLeavesWithEverythingShipped: SIGTERM to trainers and agent together.
func TestAgentLeavesWithEverythingShipped(t *testing.T) {
	s := newSite(t, "")
	agent := s.agent("--records", "all", "--grace", "20s")
	s.emitter(0, 1, 300).wait()
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	agent.wait()
	r := laggard(t, "ingest", s.dir, "--to", s.store, "--records", "all")
	if r.code != 0 || !strings.Contains(r.out, fmt.Sprintf("records        0 stored, %d found", 300*perStep)) {
		t.Fatalf("after the agent left, ingest says: %+v", r)
	}
}

// TestAgentCap: under load no segment is above its size, the tree stays under the
// cap, other files are untouched, and what aged is counted.
func TestAgentCap(t *testing.T) {
	const limit, size = 12_000_000, 1 << 20
	s := newSite(t, "")
	notes := filepath.Join(s.dir, "j1", "0", "notes.txt")
	if err := os.MkdirAll(filepath.Dir(notes), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(notes, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	agent := s.agent("--cap", "12MB", "--segment-size", "1MiB")
	const ranks, steps = 2, 1500
	var emitters []*running
	for rank := range ranks {
		emitters = append(emitters, s.emitter(rank, ranks, steps))
	}
	seen := map[string]int64{} // segment → its size when it was last seen
	look := func() (total int64) {
		for rank := range ranks {
			infos, err := segment.List(filepath.Join(s.dir, "j1", strconv.Itoa(rank)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for _, i := range infos {
				if i.Size > size {
					t.Errorf("segment %s has %d bytes, limit %d", i.Name, i.Size, size)
				}
				seen[fmt.Sprint(rank, "/", i.Name)] = i.Size
				total += i.Size
			}
		}
		return total
	}
	for _, e := range emitters {
		for running := true; running; {
			select {
			case err := <-e.done:
				if err != nil {
					t.Fatalf("emitter: %v\n%s", err, e.words)
				}
				running = false
			case <-time.After(20 * time.Millisecond):
			}
			if total := look(); total > limit {
				t.Errorf("the tree has %d bytes, cap %d", total, limit)
			}
		}
	}
	m := agent.until("aged segments and everything drained", func(m map[string]float64) bool {
		return m["laggard_recorders"] == 0 && m[`laggard_segments_aged_total{shipped="true"}`]+m[`laggard_segments_aged_total{shipped="false"}`] > 0
	})
	if m["laggard_tree_bytes"] > limit {
		t.Errorf("laggard_tree_bytes %v, cap %d", m["laggard_tree_bytes"], limit)
	}
	if b, err := os.ReadFile(notes); err != nil || string(b) != "mine" {
		t.Errorf("a file that isn't ours: %q, %v", b, err)
	}
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	agent.wait()
}

// TestAgentTaskdFormat: the files hold TaskD's lines and nothing else, and the store
// gets every step from them.
func TestAgentTaskdFormat(t *testing.T) {
	const steps = 50
	s := newSite(t, "")
	agent := s.agent("--format", "taskd", "--records", "all", "--until-idle", "1s")
	s.emitter(0, 1, steps).wait()
	agent.wait()
	dir := filepath.Join(s.dir, "j1", "0")
	infos, err := segment.List(dir)
	if err != nil || len(infos) == 0 {
		t.Fatalf("segments %v, %v", infos, err)
	}
	for _, i := range infos {
		b, err := os.ReadFile(filepath.Join(dir, i.Name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if !bytes.HasPrefix(line, []byte(`{"Kind":1,"Flag":`)) {
				t.Fatalf("line that isn't TaskD's: %s", line)
			}
		}
	}
	r := laggard(t, "ingest", s.dir, "--to", s.store, "--records", "all")
	var stored, found int
	m := regexp.MustCompile(`records +(\d+) stored, (\d+) found`).FindStringSubmatch(r.out)
	if r.code != 0 || m == nil {
		t.Fatalf("ingest after the agent: %+v", r)
	}
	stored, _ = strconv.Atoi(m[1])
	found, _ = strconv.Atoi(m[2])
	if stored+found != steps*perStep || found < (steps-2)*perStep {
		t.Errorf("%d records found and %d added after the agent left, want %d in all, most of them found", found, stored, steps*perStep)
	}
}
