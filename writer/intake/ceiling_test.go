//go:build !race

package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// The load of TestMemoryCeiling: records a second that are written, and that the sink
// takes at most.
const (
	offeredRate = 100_000
	takenRate   = offeredRate / 2
)

// slow is a sink that takes takenRate rows a second.
type slow struct{ *clickhouse.Sink }

func (s slow) Insert(ctx context.Context, b *ship.Batch) error {
	took := time.NewTimer(time.Duration(b.Len()) * time.Second / takenRate)
	defer took.Stop()
	if err := s.Sink.Insert(ctx, b); err != nil {
		return err
	}

	select {
	case <-took.C:
	case <-ctx.Done():
	}

	return nil
}

func init() {
	if os.Getenv("LAGGARD_TEST_CEILING") != "" {
		ceilingProcess()
	}
}

// ceilingProcess is an agent's follower, of all records into a slow sink, as a process
// of its own, until its standard input ends.
func ceilingProcess() {
	store, err := clickhouse.Open(os.Getenv("LAGGARD_TEST_STORE"), clickhouse.Options{})
	if err == nil {
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = os.Stdin.Read(make([]byte, 1))
			stop()
		}()
		o := all()
		o.State, o.Grace = os.Getenv("LAGGARD_TEST_STATE"), time.Millisecond
		o.Ship.Memory = ship.DefaultMemory
		var f *intake.Follower
		if f, err = intake.NewFollower(os.Getenv("LAGGARD_TEST_CEILING"), slow{store}, o); err == nil {
			err = f.Run(ctx)
		}
	}

	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

// TestMemoryCeiling is R26: a follower that is offered twice what the sink takes, and
// then a sink that stands still (SIGSTOP) and comes back, stays under its ceiling (64
// MiB) and 32 MiB in memory that is its own. LAGGARD_CEILING_SECONDS is how long each of
// the three lasts, 2 in the suite; with it the memory must not grow, either. Under the
// race detector a process takes memory of the detector's.
func TestMemoryCeiling(t *testing.T) {
	seconds, text := 2, os.Getenv("LAGGARD_CEILING_SECONDS")
	if text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LAGGARD_CEILING_SECONDS: %v", err)
		}
	}

	server := chtest.Start(t)
	db := server.Database()
	dir := t.TempDir()
	j := newJob(t, dir, 4, 10<<20)
	follower := exec.Command(os.Args[0])
	follower.Env = append(os.Environ(), "LAGGARD_TEST_CEILING="+dir, "LAGGARD_TEST_STORE="+server.Store(db), "LAGGARD_TEST_STATE="+t.TempDir())
	var words bytes.Buffer
	follower.Stderr = &words
	end, err := follower.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}

	defer follower.Process.Kill()

	// Three stretches: twice the rate, standing still, twice the rate.
	most := make([][]int64, 3) // KiB
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	written := j.busyStep(250) + j.busyStep(250) + j.busyStep(250)
	j.flush()
	stored := func() int {
		if server.Count("SELECT count() FROM system.tables WHERE database = '"+db+"' AND name = 'records'") == 0 {
			return 0
		}

		return int(server.Count("SELECT count() FROM " + db + ".records"))
	}
	for wait := time.Now(); stored() == 0; <-time.After(100 * time.Millisecond) { // it is up
		if time.Since(wait) > time.Minute {
			t.Fatal("the follower stores nothing")
		}
	}

	before := stored()
	began := time.Now()
	for stretch := range most {
		switch stretch {
		case 1:
			server.Signal(syscall.SIGSTOP)
		case 2:
			server.Signal(syscall.SIGCONT)
		}

		for until := time.Duration(stretch+1) * time.Duration(seconds) * time.Second; ; <-tick.C {
			for due := int(time.Since(began).Seconds() * offeredRate); written < due; {
				written += j.busyStep(250)
			}

			j.flush()
			most[stretch] = append(most[stretch], ownMemory(t, follower.Process.Pid))
			if time.Since(began) >= until { // once at least, however long the stretch before took
				break
			}
		}
	}

	taken := stored() - before
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}

	if err := follower.Wait(); err != nil {
		t.Fatalf("follower: %v\n%s", err, words.Bytes())
	}

	t.Logf("%d records written, %d stored; MiB at most: %d while twice as many come as are taken, %d while none is, %d afterwards",
		written, taken, slices.Max(most[0])>>10, slices.Max(most[1])>>10, slices.Max(most[2])>>10)
	if written-taken < ship.DefaultMemory/200 {
		t.Errorf("%d records were written and %d stored: that is no load", written, taken)
	}

	const ceiling = ship.DefaultMemory + 32<<20
	if got := slices.Max(slices.Concat(most...)); got<<10 > ceiling {
		t.Errorf("the follower took %d MiB, want %d at most", got>>10, ceiling>>20)
	}

	if text == "" {
		return // on a busy machine two seconds are not enough to have grown
	}

	last := most[2][len(most[2])/2:]
	rest := slices.Concat(most[0], most[1], most[2][:len(most[2])/2])
	if slices.Max(last) > slices.Max(rest)+8<<10 {
		t.Errorf("the follower still grows: from %d to %d MiB", slices.Max(rest)>>10, slices.Max(last)>>10)
	}
}

// busyStep writes a step of 10 ms with n collectives of every rank, and returns how
// many records that are.
func (j *job) busyStep(n int) int {
	for _, r := range j.ranks {
		start := base + int64(r.step)*10_000_000
		for k := range int64(n) {
			c := record.New(record.Communication)
			c.Step, c.Start, c.Dur, c.Exposed = int64(r.step), start+k*30_000, 20_000+k, 10_000
			c.Op, c.Group, c.Count, c.Dtype, c.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
			j.add(r, c, 2)
		}

		s := record.New(record.Step)
		s.Step, s.Start, s.Dur = int64(r.step), start, 9_900_000
		j.add(r, s, 1)
		r.step++
	}

	return len(j.ranks) * (n + 1)
}

// ownMemory is what a process has in memory that is no file's, in KiB.
func ownMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	var n int64
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("RssAnon of %d: %v", pid, err)
	}

	return n
}
