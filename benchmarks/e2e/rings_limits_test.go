package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/agent"
)

// manyRings makes the test binary a trainer whose threads record so many ranges each, in
// 20 bursts; it ends when its standard input does.
const manyRings = "LAGGARD_TEST_MANY_RINGS"

func init() {
	text := os.Getenv(manyRings)
	if text == "" {
		return
	}

	var threads, n int
	if _, err := fmt.Sscanf(text, "%d %d", &threads, &n); err != nil {
		panic(err)
	}

	if err := emitOn(threads, n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

func emitOn(threads, n int) error {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		return err
	}

	all := make([]*recorder.Thread, threads)
	for i := range all {
		all[i] = r.Thread()
	}

	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for range 20 {
		for range n / 20 {
			for _, t := range all {
				fp := t.Begin(record.FP, recorder.Attr{})
				fp.End()
			}
		}

		<-pace.C
	}

	fmt.Fprintln(os.Stderr, "recorded")
	io.Copy(io.Discard, os.Stdin)
	r.Close()
	return r.Err()
}

// limited starts an agent that may open so many files.
func (s *site) limited(descriptors int, args ...string) *running {
	s.t.Helper()
	return s.startCommand(exec.Command("/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), program}, s.agentArguments(args...)...)...))
}

// ringed starts a trainer with rings; end ends it.
func (s *site) ringed(rank, world, rings, n int) (r *running, end func() error) {
	s.t.Helper()
	c := exec.Command(trainer)
	in, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}

	r = s.startCommand(c, fmt.Sprintf("%s=%d %d", manyRings, rings, n), "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank),
		"WORLD_SIZE="+strconv.Itoa(world), "LAGGARD_JOB=j1", "NODE_NAME=node-0")
	return r, in.Close
}

// exits waits until the process has ended, and returns its exit code.
func (r *running) exits() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("%v: still running after %v\n%s", r.command.Args[1:], patience, r.words)
	}

	return r.command.ProcessState.ExitCode()
}

// TestRingsWithFewDescriptors: an agent of 64 descriptors drains 8 living ranks with two
// rings each in turns: each record is stored once, and the health endpoints answer all
// the while.
func TestRingsWithFewDescriptors(t *testing.T) {
	t.Parallel()
	const ranks, each = 8, 240
	s := newSite(t, "")
	agent := s.limited(64, "--records", "all", "--until-idle", "500ms")
	var trainers []*running
	var ends []func() error
	for rank := range ranks {
		r, end := s.ringed(rank, ranks, 2, each)
		trainers, ends = append(trainers, r), append(ends, end)
	}

	for _, r := range trainers {
		r.says(`(recorded)`)
		if code, text := agent.get("/healthz"); code != http.StatusOK {
			t.Errorf("/healthz: %d %s", code, text)
		}
	}

	agent.until("every record of living ranks", func(m map[string]float64) bool {
		return m[`laggard_records_drained_total{kind="FP"}`] == ranks*2*each
	})
	for i, r := range trainers {
		if err := ends[i](); err != nil {
			t.Fatal(err)
		}

		r.wait()
	}

	agent.wait()
	if strings.Contains(agent.words.String(), "too many open files") {
		t.Errorf("the agent ran out of descriptors:\n%s", agent.words)
	}

	if stored := storedOnce(t, s.store); stored["FP"] != ranks*2*each {
		t.Errorf("%d records stored of %d\n%s", stored["FP"], ranks*2*each, agent.words)
	}
}

// TestLeftRingsAreSaid: a process with more rings than the agent may open files makes it
// unready, and its exit is not 0; the next agent stores every record.
func TestLeftRingsAreSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	trainer, end := s.ringed(0, 1, 60, 20)
	trainer.says(`(recorded)`)
	agent := s.limited(64)
	agent.untilReady(http.StatusServiceUnavailable, "ring folder", "descriptors")
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if code := agent.exits(); code == 0 || !strings.Contains(agent.words.String(), "leave rings in "+s.rings) {
		t.Errorf("exit %d with a folder that was not read:\n%s", code, agent.words)
	}

	if err := end(); err != nil {
		t.Fatal(err)
	}

	trainer.wait()
	again := s.agent("--records", "all", "--until-idle", "100ms")
	again.wait()
	if stored := storedOnce(t, s.store); stored["FP"] != 60*20 {
		t.Errorf("%d records stored of 1,200 by the next agent", stored["FP"])
	}
}

// exhausted makes the test binary a process that serves health and has no descriptor
// left, until its standard input ends.
const exhausted = "LAGGARD_TEST_EXHAUSTED"

func init() {
	if os.Getenv(exhausted) == "" {
		return
	}

	if err := serveExhausted(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

func serveExhausted() error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}

	l, err := agent.ListenProbes("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}

	for err == nil {
		_, err = unix.Open(os.DevNull, unix.O_RDONLY, 0)
	}

	if !errors.Is(err, unix.EMFILE) {
		return err
	}

	fmt.Fprintf(os.Stderr, "msg=\"serving metrics\" address=%s\n", l.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return l.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
}

// TestHealthWithoutDescriptors: the health endpoints answer again and again in a process
// that can open nothing any more.
func TestHealthWithoutDescriptors(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	c := exec.Command(trainer)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	r := s.startCommand(c, exhausted+"=1")
	for range 20 {
		if code, text := r.get("/healthz"); code != http.StatusOK || text != "ok" {
			t.Fatalf("%d %s", code, text)
		}
	}

	in.Close()
	r.wait()
}
