package drain_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// gone reports whether every ring folder was drained and removed.
func gone(run string) bool {
	left, err := os.ReadDir(run)
	return err == nil && len(left) == 0
}

// left lists what is in a run directory, for the words of a failed test.
func left(run string) string {
	out, _ := exec.Command("find", run, "-printf", "%P %s bytes, %TT\n").CombinedOutput()
	return string(out)
}

// patience is for a machine that others use as well.
const patience = 3 * time.Minute

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// settle lets an agent finish what is left and stops it.
func settle(t *testing.T, run, dir string, env ...string) {
	t.Helper()
	if gone(run) {
		return // the one before did it all
	}

	began := time.Now()
	a, up := startedAgent(t, run, dir, env...)
	<-up
	t.Logf("the next agent drains %v after its start", time.Since(began))
	defer func() {
		if t.Failed() {
			t.Logf("left:\n%s", left(run))
			a.Process.Kill()
		}
	}()
	until(t, "the folders to be drained", func() bool { return gone(run) })
	stop(t, a)
}

func stop(t *testing.T, a *exec.Cmd) {
	t.Helper()
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	a.Wait() // it may be so young that it does not catch the signal yet
}

// chosen is one of these numbers, drawn, or all of them where LAGGARD_KILLS asks for many.
func chosen(r *rand.Rand, all ...int) []int {
	if ringtest.Kills(0) > 0 {
		return all
	}

	k := r.IntN(len(all))
	return all[k : k+1]
}

// TestKilledAgentAtEveryPoint is R2: it kills the agent after each step of draining, the
// first time it gets there or some times later, while a trainer overflows its
// rings, is killed in a range, or leaves in order. With LAGGARD_KILLS it does both.
func TestKilledAgentAtEveryPoint(t *testing.T) {
	seed := ringtest.Seed()
	t.Logf("LAGGARD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	for _, point := range labels(t) {
		for _, n := range chosen(random, 1, 3) {
			t.Run(fmt.Sprintf("%s:%d", point, n), func(t *testing.T) {
				t.Parallel()
				run, dir := ringtest.Shared(t), t.TempDir()
				const emitted = 60000 // more than the rings hold
				runs(t, trainer(t, run, "burst", strconv.Itoa(emitted), "0"))
				dies(t, run, startAgent(t, run, dir, fmt.Sprintf("%s:%d", point, n)))
				settle(t, run, dir)
				c := read(t, dir)
				c.exact(t, 1, emitted)
				if c.lost() == 0 {
					t.Error("the rings did not overflow: nothing is shown about losses")
				}
			})
		}
	}
}

// dies waits until the agent was killed, or has drained everything: it does not come by
// its point that often.
func dies(t *testing.T, run string, a *exec.Cmd) {
	t.Helper()
	died := make(chan error, 1)
	go func() { died <- a.Wait() }()
	ended := false
	until(t, "the agent to die or to finish", func() bool {
		select {
		case <-died:
			ended = true
		default:
		}

		return ended || gone(run)
	})
	if !ended {
		a.Process.Signal(syscall.SIGTERM)
		<-died
	}
}

// TestKilledAgentWhoseSegmentsAge: what the killed agent wrote last is seen before others
// of the rank write, for then its segments may be aged: no loss is told twice, and none
// that was not told is taken for told. It is killed at each point once, with LAGGARD_KILLS
// the first four times that it gets there.
func TestKilledAgentWhoseSegmentsAge(t *testing.T) {
	seed := ringtest.Seed()
	t.Logf("LAGGARD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 4))
	for _, point := range []string{"noted", "line-appended", "flushed", "settled"} {
		for _, n := range chosen(random, 1, 2, 3, 4) {
			t.Run(fmt.Sprintf("%s:%d", point, n), func(t *testing.T) {
				t.Parallel()
				run, dir, aged := ringtest.Shared(t), t.TempDir(), t.TempDir()
				const emitted, later, others = 60000, 1000, 3
				burst := func(n int) {
					cmd := trainer(t, run, "burst", strconv.Itoa(n), "0")
					cmd.Env = append(cmd.Env, "LAGGARD_JOB=j")
					runs(t, cmd)
				}
				burst(emitted)
				dies(t, run, startAgent(t, run, dir, fmt.Sprintf("%s:%d", point, n)))
				for range others { // some of them are drained before the first one
					burst(later)
				}

				settle(t, run, dir, "LAGGARD_TEST_AGED="+aged)
				c := read(t, aged)
				c.add(t, dir)
				c.exact(t, 1+others, emitted+others*later)
				if c.lost() == 0 {
					t.Error("the rings did not overflow: nothing is shown about losses")
				}
			})
		}
	}
}

// labels returns the crash points that the package's source has: a new one is killed
// at as well.
func labels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	seen := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range regexp.MustCompile(`crashPoint\("([a-z-]+)"\)`).FindAllSubmatch(source, -1) {
			seen[string(m[1])] = true
		}
	}

	if len(seen) < 11 {
		t.Fatalf("crash points in the source: %v", seen)
	}

	return slices.Sorted(maps.Keys(seen))
}

// TestKilledAgentAtRandom is R3, and R4 over many cycles: it kills the agent again and again while trainers record,
// overflow and come and go. LAGGARD_KILLS sets how often.
func TestKilledAgentAtRandom(t *testing.T) {
	n, seed := ringtest.Kills(40), ringtest.Seed()
	t.Logf("%d kills with LAGGARD_SEED=%d", n, seed)
	random := rand.New(rand.NewPCG(seed, 2))
	run, dir := ringtest.Shared(t), t.TempDir()
	ended, emitted := 0, uint64(0)
	finished := make(chan error, n)
	running := 0
	for i := range n {
		if i%5 == 0 {
			count := 1000 + random.IntN(9000)
			if i%20 == 0 { // more than the rings hold
				count *= 10
			}

			cmd := trainer(t, run, "burst", strconv.Itoa(count), strconv.Itoa(100+random.IntN(2000)))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			go func() { finished <- cmd.Wait() }()
			running++
			ended, emitted = ended+1, emitted+uint64(count)
		}

		a, up := startedAgent(t, run, dir)
		<-up
		timer := time.NewTimer(time.Duration(random.IntN(60)) * time.Millisecond)
		<-timer.C
		a.Process.Kill()
		a.Wait()
	}

	for range running {
		if err := <-finished; err != nil {
			t.Fatal(err)
		}
	}

	settle(t, run, dir)
	c := read(t, dir)
	c.exact(t, ended, emitted)
	t.Logf("%d records of %d processes: %d stored, %d counted as dropped in %d loss lines", emitted, ended, c.stored(), c.lost(), len(c.losses))
}

// TestBothKilled is R4: it kills trainer and agent in either order.
func TestBothKilled(t *testing.T) {
	for _, first := range []string{"trainer", "agent"} {
		t.Run(first, func(t *testing.T) {
			run, dir := ringtest.Shared(t), t.TempDir()
			cmd := trainer(t, run, "kill", dir+"/ack", "2", "100")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			a := startAgent(t, run, dir, "")
			until(t, "the first records", func() bool { return read(t, dir).stored() > 500 })
			kill := []*exec.Cmd{cmd, a}
			if first == "agent" {
				kill[0], kill[1] = a, cmd
			}

			for _, c := range kill {
				c.Process.Kill()
				c.Wait()
			}

			os.Remove(dir + "/ack")
			settle(t, run, dir)
			c := read(t, dir)
			if len(c.ends) != 1 || c.ends[0].How != "killed" || c.twice != 0 || c.gaps != 0 {
				t.Fatalf("ends %+v, %d twice, %d missing", c.ends, c.twice, c.gaps)
			}

			var emitted uint64
			for _, n := range c.ends[0].Emitted {
				emitted += n
			}

			c.exact(t, 1, emitted)
		})
	}
}
