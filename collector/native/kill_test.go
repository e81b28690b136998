package native_test

import (
	"bufio"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// TestKilledTrainer, R1: kills a recording C program with 1, 8 and 64 threads at
// random instants and checks that what a call had returned from is there, once,
// and that the range each thread died in is named. Every fourth trainer floods its
// rings: there what is missing must be counted. LAGGARD_KILLS sets how often (10000
// is the long form), LAGGARD_SEED repeats a run.
func TestKilledTrainer(t *testing.T) {
	n, seed := ringtest.Kills(60), ringtest.Seed()
	t.Logf("%d kills with LAGGARD_SEED=%d", n, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var kept, flooded ringtest.Tally
	for i := range n {
		threads := []int{1, 8, 64}[i%3]
		// Making 64 rings takes a while: later, so that some are killed after it.
		after := time.Duration(random.Int64N(int64(6+threads) * 1e6))
		pace := []int{0, 101, 20}[random.IntN(3)]
		if i%4 == 3 {
			flooded.Add(kill(t, threads, pace, after, true))
		} else {
			kept.Add(kill(t, threads, pace, after, false))
		}

		if t.Failed() {
			t.Fatalf("after %d kills", i+1)
		}
	}

	t.Logf("%d records stored, %d open ranges named, %d threads died inside a range; nothing acknowledged is missing", kept.Stored, kept.Open, kept.Inside)
	t.Logf("rings flooded: %d records stored, %d counted as dropped, %d open ranges named, %d threads died inside a range", flooded.Stored, flooded.Dropped, flooded.Open, flooded.Inside)
}

// kill runs the driver, draining it, kills it after a while, drains the rest, and
// checks.
func kill(t *testing.T, threads, pace int, after time.Duration, flood bool) ringtest.Tally {
	t.Helper()
	run := ringtest.Shared(t)
	defer os.RemoveAll(filepath.Dir(run))
	acks := ringtest.NewAcks(t, run)
	defer acks.Close()
	window := ringtest.Window(threads)
	if flood {
		window = 0
	}

	cmd := command(t, ringtest.Driver(t), run, "kill", acks.Path, strconv.Itoa(threads), strconv.Itoa(pace), strconv.Itoa(window))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	killed := make(chan error, 1)
	time.AfterFunc(after, func() { killed <- cmd.Process.Kill() })
	c := ringtest.NewDrain(t, run)
	for done := false; !done; {
		select {
		case err := <-killed:
			if err != nil {
				t.Fatal(err)
			}

			done = true
		default:
			if _, err := c.Pass(); err != nil {
				t.Fatal(err)
			}

			for _, w := range c.Writers {
				acks.Acknowledge(w)
			}
		}
	}

	wait(cmd)
	c.Finish(t)
	return ringtest.CheckKilled(t, c.Killed(t), acks, threads, flood)
}

func wait(cmd *exec.Cmd) { _ = cmd.Wait() } // killed: the error is the point

// TestKilledAtEveryInstruction, R1, R28: kills a trainer after each instruction of
// one range, from before begin to after end, in the light ring, the bulk ring and in
// one that is full. The short form takes every ninth instruction, another ninth each
// time.
func TestKilledAtEveryInstruction(t *testing.T) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	first, stride := int(ringtest.Seed()%9), 9
	if ringtest.Kills(0) > 1000 {
		first, stride = 0, 1
	}

	for _, c := range []struct {
		name   string
		before int
		flood  bool
	}{{"bulk", 8, false}, {"light", 3, false}, {"full", 1024*8 + 3, true}} {
		var sum ringtest.Tally
		steps, kills := first, 0
		for more := true; more && !t.Failed(); steps += stride {
			var one ringtest.Tally
			one, more = killAt(t, c.before, steps, c.flood)
			sum.Add(one)
			kills++
		}

		t.Logf("%s: killed %d times within %d instructions: open %d times, inside %d times", c.name, kills, steps-stride, sum.Open, sum.Inside)
		if steps < 100 || sum.Inside == 0 || sum.Open == 0 {
			t.Errorf("%s: %d instructions, inside %d, open %d", c.name, steps, sum.Inside, sum.Open)
		}
	}
}

// killAt kills the driver so many instructions after its stop. False: it came to the
// end before that.
func killAt(t *testing.T, before, steps int, flood bool) (ringtest.Tally, bool) {
	t.Helper()
	run := ringtest.Shared(t)
	defer os.RemoveAll(filepath.Dir(run))
	acks := ringtest.NewAcks(t, run)
	defer acks.Close()
	cmd := command(t, ringtest.Driver(t), run, "steps", acks.Path, strconv.Itoa(before))
	cmd.Env = append(cmd.Env, "LAGGARD_CLOCK=monotonic") // always the same way through the clock
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	pid, more := cmd.Process.Pid, true
	stopped := func(step func(int, int) error) bool {
		var s unix.WaitStatus
		err := step(pid, 0)
		if err == nil {
			_, err = wait4(pid, &s)
		}

		if err != nil {
			t.Fatal(err)
		}

		return s.Stopped()
	}
	var s unix.WaitStatus
	if _, err := wait4(pid, &s); err != nil { // exec
		t.Fatal(err)
	}

	if !stopped(unix.PtraceCont) {
		t.Fatal("the driver ended early")
	}

	single := func(pid, _ int) error { return unix.PtraceSingleStep(pid) }
	for range steps {
		if more = more && stopped(single) && acks.Ended(0).Load() <= uint64(before); !more {
			break
		}
	}

	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}

	wait(cmd)
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	return ringtest.CheckKilled(t, c.Killed(t), acks, 1, flood), more
}

func wait4(pid int, s *unix.WaitStatus) (int, error) {
	for {
		n, err := unix.Wait4(pid, s, unix.WALL, nil)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

var _ drain.Writer = (*ringtest.Memory)(nil)
