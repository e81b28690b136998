package recorder_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
)

// trainerVar makes the test binary a trainer: the path of its acks, its threads, and
// the window of records that may be undrained.
const trainerVar = "LAGGARD_TEST_TRAINER"

func TestMain(m *testing.M) {
	if s := os.Getenv(trainerVar); s != "" {
		if err := train(strings.Fields(s)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(inOwnRings(m))
}

// inOwnRings runs the tests with a ring directory of their own, for the example has none.
func inOwnRings(m *testing.M) int {
	rings, err := os.MkdirTemp("/dev/shm", "laggard-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(rings)
	os.Setenv("LAGGARD_RUN", rings)
	return m.Run()
}

// train records on many threads until somebody ends it.
func train(args []string) error {
	acks, err := ringtest.OpenAcks(args[0])
	if err != nil {
		return err
	}

	threads, errThreads := strconv.Atoi(args[1])
	window, errWindow := strconv.ParseUint(args[2], 10, 64)
	r, errOpen := recorder.Open(recorder.Options{Meta: record.Meta{Job: "kill"}})
	if err := errors.Join(errThreads, errWindow, errOpen); err != nil {
		return err
	}

	for i := range threads {
		go emit(r, acks, i, window)
	}

	fmt.Println("up")
	select {}
}

func emit(r *recorder.Recorder, acks *ringtest.Acks, thread int, window uint64) {
	th, name := r.Thread(), r.Intern("t"+strconv.Itoa(thread))
	begun, ended, stored := acks.Begun(thread), acks.Ended(thread), acks.Stored(thread)
	nap := time.NewTicker(100 * time.Microsecond)
	for i := uint64(0); ; i++ {
		for i-stored.Load() >= window {
			<-nap.C // the ring would overflow
		}

		kind := record.Communication
		if i%8 == 3 {
			kind = record.Other
		}

		x := th.Begin(kind, recorder.Attr{Text: name, Value: int64(i)})
		begun.Store(i + 1)
		if i%64 == 63 {
			<-nap.C // what a hang looks like
		}

		x.End()
		ended.Store(i + 1)
	}
}

// TestKilledTrainer, R1: what is said of C trainers in package native, for Go.
func TestKilledTrainer(t *testing.T) {
	n, seed := ringtest.Kills(24), ringtest.Seed()
	t.Logf("%d kills with LAGGARD_SEED=%d", n, seed)
	random := rand.New(rand.NewPCG(seed, 2))
	var sum ringtest.Tally
	for i := range n {
		threads := []int{1, 8, 64}[i%3]
		sum.Add(kill(t, threads, time.Duration(random.Int64N(int64(6+threads)*1e6))))
		if t.Failed() {
			t.Fatalf("after %d kills", i+1)
		}
	}

	t.Logf("%d records stored, %d open ranges named, %d threads died inside a range; nothing acknowledged is missing", sum.Stored, sum.Open, sum.Inside)
}

func kill(t *testing.T, threads int, after time.Duration) ringtest.Tally {
	t.Helper()
	run := ringtest.Shared(t)
	defer os.RemoveAll(filepath.Dir(run))
	acks := ringtest.NewAcks(t, run)
	defer acks.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAGGARD_RUN="+run, "LAGGARD_TRACE=on",
		fmt.Sprintf("%s=%s %d %d", trainerVar, acks.Path, threads, ringtest.Window(threads)))
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

	var w *ringtest.Memory
	d, err := drain.New(drain.Options{RunDir: run, Open: func(m record.Meta) (drain.Writer, error) {
		if w == nil {
			w = &ringtest.Memory{Meta: m}
		}

		return w, nil
	}})
	if err != nil {
		t.Fatal(err)
	}

	killed := make(chan error, 1)
	time.AfterFunc(after, func() {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // killed: the error is the point
		killed <- err
	})
	for gone := false; !gone || !d.Idle(); {
		select {
		case err := <-killed:
			if err != nil {
				t.Fatal(err)
			}

			gone = true
		default:
		}

		if _, err := d.Pass(); err != nil {
			t.Fatal(err)
		}

		if w != nil {
			acks.Acknowledge(w)
		}
	}

	return ringtest.CheckKilled(t, w, acks, threads, false)
}
