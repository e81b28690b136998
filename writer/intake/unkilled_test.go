package intake_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
)

// TestTwoAgentsOnOneTree store each row once; each rank is handed over to the
// process whose own it is.
func TestTwoAgentsOnOneTree(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	j := newJob(t, dir, 4, 16<<10)
	j.steps(20)
	follow(t, dir, "parquet:"+target, all(), func(a *intake.Follower) {
		syncAll(t, a)
		if st := a.State(); st.Ranks != 4 {
			t.Fatalf("State() = %+v", st)
		}

		o := all()
		o.Own = func(r record.RankID) bool { return r.Rank >= 2 }
		follow(t, dir, "parquet:"+target, o, func(b *intake.Follower) {
			for a.State().Ranks != 2 || b.State().Ranks != 2 {
				a.Hint()
				b.Hint()
				<-time.After(10 * time.Millisecond)
			}

			var wait sync.WaitGroup
			for range 5 {
				j.steps(20)
				wait.Add(2)
				go func() { defer wait.Done(); syncAll(t, a) }()
				go func() { defer wait.Done(); syncAll(t, b) }()
				wait.Wait()
			}

			j.end()
			syncAll(t, b)
		})
		for a.State().Ranks != 4 { // b is gone: its ranks come back
			a.Hint()
			<-time.After(10 * time.Millisecond)
		}

		syncAll(t, a)
	})
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	same(t, dump(t, target), dump(t, plain))
}

// followProcess is an agent's follower as a process of its own, to be killed. It
// says on stdout how many batches the store has acknowledged.
func followProcess() {
	sink, err := intake.OpenStore(os.Getenv("LAGGARD_TEST_STORE"), clickhouse.Options{})
	if err == nil {
		o := all()
		o.State = os.Getenv("LAGGARD_TEST_STATE")
		o.Ship.Flush, o.Ship.BatchRows, o.Quantum = 20*time.Millisecond, 50, 2<<10
		var f *intake.Follower
		if f, err = intake.NewFollower(os.Getenv("LAGGARD_TEST_FOLLOW"), sink, o); err == nil {
			go func() {
				for said := uint64(0); ; <-time.After(2 * time.Millisecond) {
					if n := f.Stats().Batches; n != said {
						said = n
						fmt.Println(n)
					}
				}
			}()
			err = f.Run(context.Background())
		}
	}

	fmt.Println(err)
	os.Exit(1)
}

// kill starts a follower process, lets f write, and kills it (SIGKILL) a moment
// after it has begun to ship. It reports whether it had stored anything.
func kill(t *testing.T, dir, spec, state string, after time.Duration, f func()) (stored bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAGGARD_TEST_FOLLOW="+dir, "LAGGARD_TEST_STORE="+spec, "LAGGARD_TEST_STATE="+state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	f()
	said := make(chan bool, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		said <- err == nil && line != "0\n"
	}()
	select {
	case stored = <-said:
	case <-time.After(2 * time.Second): // what was written closes no step
	}

	<-time.After(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return stored
}

// killed writes a job in rounds, with a follower killed in each, and compares what
// the last one makes of it with a pass that nobody killed.
func killed(t *testing.T, j *job, rounds int, write func(round int), keepState bool) {
	t.Helper()
	target, state := t.TempDir(), t.TempDir()
	stored := 0
	for round := range rounds {
		if kill(t, j.dir, "parquet:"+target, state, time.Duration(round*7)*time.Millisecond, func() { write(round) }) {
			stored++
		}

		if !keepState {
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
		}
	}

	if stored == 0 {
		t.Fatal("the test shows nothing: no follower had stored anything when it was killed")
	}

	j.end()
	o := all()
	o.State = state
	follow(t, j.dir, "parquet:"+target, o, func(fo *intake.Follower) { syncAll(t, fo) })
	plain := t.TempDir()
	once(t, j.dir, "parquet:"+plain, all())
	want := dump(t, plain)
	same(t, dump(t, target), want)
	t.Logf("%d of %d followers had stored something when they were killed; %d steps, %d records", stored, rounds, len(want[row.StepsTable]), len(want[row.RecordsTable]))
}

// TestKilledInMidStep: followers are killed while a step is half written.
func TestKilledInMidStep(t *testing.T) {
	j := newJob(t, t.TempDir(), 2, 16<<10)
	killed(t, j, 5, func(round int) {
		if round > 0 {
			j.finish()
		}

		j.steps(20)
		j.begin()
		j.flush()
		if round == 4 {
			j.finish()
		}
	}, true)
}

// TestEmptiedStateDirectory: each follower begins without the state of the one
// before, which was killed.
func TestEmptiedStateDirectory(t *testing.T) {
	j := newJob(t, t.TempDir(), 2, 16<<10)
	killed(t, j, 4, func(int) { j.steps(30) }, false)
}

// TestDeviceRecordsTenSecondsLate: device lines stand ten steps behind the host's,
// longer than anything waits for them, and followers are killed meanwhile.
func TestDeviceRecordsTenSecondsLate(t *testing.T) {
	j := newJob(t, t.TempDir(), 2, 16<<10)
	j.late = 10
	killed(t, j, 4, func(int) { j.steps(25) }, true)
}

// TestRankRestartedInMidBatch: ranks die and begin again five steps before, while
// rows of their first process are on their way in one batch with those of the second.
func TestRankRestartedInMidBatch(t *testing.T) {
	j := newJob(t, t.TempDir(), 2, 16<<10)
	killed(t, j, 4, func(round int) {
		j.steps(12)
		j.begin() // it dies within a step
		j.restart(round+1, 5)
		j.steps(24) // so long that the follower, too, takes the first process for dead
	}, true)
}
