package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// shared is a site as in a pod: agent and trainers are several users of one group, and
// the volumes are that group's.
type shared struct {
	*site
	users *users
}

func newShared(t *testing.T) *shared {
	t.Helper()
	u := newUsers(t)
	s := &shared{site: newSite(t, ""), users: u}
	for _, dir := range []string{s.rings, s.dir, strings.TrimPrefix(s.store, "parquet:")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Chown(dir, 0, agentUser); err != nil {
			t.Fatal(err)
		}

		if err := os.Chmod(dir, 0o777|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Chmod(filepath.Dir(filepath.Dir(s.dir)), 0o755); err != nil { // the test's own
		t.Fatal(err)
	}

	return s
}

// as is a command of a user of the group.
func (s *shared) as(uid int, program string, args ...string) *exec.Cmd {
	return s.users.of(s.t.Context(), uid, agentUser, program, args...)
}

// agent starts the agent as its own user.
func (s *shared) agent(args ...string) *running {
	s.t.Helper()
	return s.startCommand(s.as(agentUser, program, s.agentArguments(append([]string{"--records", "all"}, args...)...)...))
}

// trains has a user record 20 ranges of a rank, and live on until the function is called.
func (s *shared) trains(uid int, job string, rank int) (end func()) {
	s.t.Helper()
	c := s.as(uid, trainer)
	in, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}

	r := s.startCommand(c, manyRings+"=1 20", fmt.Sprintf("RANK=%d", rank), "LOCAL_RANK=0", "WORLD_SIZE=2", "LAGGARD_JOB="+job)
	r.says(`(recorded)`)
	return func() {
		in.Close()
		r.wait()
	}
}

func (s *shared) stored(job string, rank int) uint64 {
	s.t.Helper()
	return storedOf(s.t, s.store, job, rank)["FP"]
}

// TestRingsOfOtherUsers: an agent drains its own, root's and --trust-uid's rings, and
// nobody else's; whoever is not trusted is counted, and said once.
func TestRingsOfOtherUsers(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	var ends []func()
	ends = append(ends, s.trains(0, "good", 0), s.trains(trainerUser, "good", 1), s.trains(stranger, "good", 0), s.trains(stranger, "good", 0))
	agent := s.agent("--until-idle", "300ms")
	m := agent.until("three folders refused", func(m map[string]float64) bool {
		return m[`laggard_ring_folders_refused_total{reason="foreign-owner"}`] == 3 && m[`laggard_records_drained_total{kind="FP"}`] == 20
	})
	if m["laggard_recorders"] != 1 {
		t.Errorf("%v recorders are drained", m["laggard_recorders"])
	}

	agent.untilReady(http.StatusOK) // whoever is not trusted does not make the agent unready

	for _, end := range ends {
		end()
	}

	agent.wait()
	if zero, one := s.stored("good", 0), s.stored("good", 1); zero != 20 || one != 0 {
		t.Errorf("%d records of root's rank 0 and %d of uid 1000's rank 1 stored, want 20 and 0", zero, one)
	}

	for _, uid := range []int{trainerUser, stranger} {
		if n := strings.Count(agent.words.String(), fmt.Sprintf("not drained\" uid=%d ", uid)); n != 1 {
			t.Errorf("uid %d was said %d times:\n%s", uid, n, agent.words)
		}
	}

	agent = s.agent("--until-idle", "300ms", "--trust-uid", fmt.Sprint(trainerUser))
	agent.wait()
	if zero, one := s.stored("good", 0), s.stored("good", 1); zero != 20 || one != 20 {
		t.Errorf("with --trust-uid 1000: %d records of rank 0 and %d of rank 1 stored, want 20 of each", zero, one)
	}
}

// TestRingsOfTheJobsOwner: who owns a job's directory since before the agent may record
// that job, and no other. What is made in the rings' folder, or later, gives nobody a
// right, nor does a note that sends records elsewhere.
func TestRingsOfTheJobsOwner(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	own := func(path string, uid int) {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Chown(path, uid, agentUser); err != nil {
			t.Fatal(err)
		}

		if err := os.Chmod(path, 0o2775); err != nil {
			t.Fatal(err)
		}
	}
	own(filepath.Join(s.dir, "theirs"), trainerUser)
	own(filepath.Join(s.rings, "good"), stranger)
	if err := os.Symlink(filepath.Join(s.dir, "theirs"), filepath.Join(s.dir, "good")); err != nil {
		t.Fatal(err)
	}

	ends := []func(){s.trains(trainerUser, "theirs", 0), s.trains(trainerUser, "good", 0), s.trains(stranger, "good", 0)}
	folders, err := filepath.Glob(filepath.Join(s.rings, "????????????????"))
	if err != nil || len(folders) != 3 {
		t.Fatalf("%v, %v", folders, err)
	}

	for _, f := range folders { // each says that its records go to theirs/0
		note := filepath.Join(f, "agent.state")
		if err := os.WriteFile(note, []byte(`{"home":{"job":"theirs","rank":7},"done":{}}`), 0o666); err != nil {
			t.Fatal(err)
		}

		if err := os.Chown(note, trainerUser, agentUser); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Remove(filepath.Join(s.dir, "good")); err != nil {
		t.Fatal(err)
	}

	agent := s.agent()
	refused := func(n float64) {
		t.Helper()
		agent.until("refusals", func(m map[string]float64) bool {
			return m[`laggard_ring_folders_refused_total{reason="foreign-owner"}`] == n && m[`laggard_records_drained_total{kind="FP"}`] == 20
		})
	}
	refused(2)
	own(filepath.Join(s.dir, "late"), stranger)
	ends = append(ends, s.trains(stranger, "late", 0))
	refused(3)
	for _, end := range ends {
		end()
	}

	agent.until("the end of the one process", func(m map[string]float64) bool { return m["laggard_recorders"] == 0 })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	all := storedOnce(t, s.store)
	if theirs := s.stored("theirs", 0); all["FP"] != 20 || theirs != 20 {
		t.Errorf("%d records stored, %d of them of theirs/0; want 20 of it\n%s", all["FP"], theirs, agent.words)
	}
}

// TestTwoProcessesClaimOneRank: each is an incarnation of its own, and it is said.
func TestTwoProcessesClaimOneRank(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	first, end := s.ringed(0, 1, 1, 20)
	second, end2 := s.ringed(0, 1, 1, 20)
	first.says(`(recorded)`)
	second.says(`(recorded)`)
	agent := s.agent("--records", "all", "--until-idle", "300ms")
	agent.says(`(two living processes claim one rank).* job=j1 rank=0`)
	agent.until("the rank", func(m map[string]float64) bool { return m["laggard_ranks_claimed_twice"] == 1 })
	end()
	end2()
	first.wait()
	second.wait()
	agent.wait()
	if n := storedOnce(t, s.store)["FP"]; n != 40 { // each under its own incarnation: none is there twice
		t.Errorf("%d records stored, want 40", n)
	}

	if n := strings.Count(agent.words.String(), "claim one rank"); n != 1 {
		t.Errorf("said %d times:\n%s", n, agent.words)
	}
}

// flood makes n folders of a trusted user that can't be read, and n that hold nothing of
// ours.
func flood(t *testing.T, s *shared, n int) {
	t.Helper()
	for i := range n {
		dir := filepath.Join(s.rings, fmt.Sprintf("%016x", i+1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}

		if i%2 == 0 { // a folder of ours without a recorder in it
			if err := os.Chmod(dir, 0o770); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(filepath.Join(dir, "process"), []byte("nothing"), 0o660); err != nil {
				t.Fatal(err)
			}

			if err := os.Chmod(filepath.Join(dir, "process"), 0o660); err != nil {
				t.Fatal(err)
			}

			if err := os.Chown(filepath.Join(dir, "process"), trainerUser, agentUser); err != nil {
				t.Fatal(err)
			}
		}

		if err := os.Chown(dir, trainerUser, agentUser); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTenThousandFolders: a trusted user's ten thousand folders that can't be read cost
// little and are said in a line a minute, make the agent unready, and do not keep
// another user's records from the store.
func TestTenThousandFolders(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	flood(t, s, 10_000)
	end := s.trains(0, "good", 0)
	agent := s.agent("--trust-uid", fmt.Sprint(trainerUser))
	agent.until("all of them refused and the honest process drained", func(m map[string]float64) bool {
		return m[`laggard_ring_folders_refused_total{reason="unreadable"}`] == 5000 && m[`laggard_ring_folders_refused_total{reason="not-a-ring"}`] == 5000 &&
			m[`laggard_records_drained_total{kind="FP"}`] == 20
	})
	agent.untilReady(http.StatusServiceUnavailable, "5000 ring folders of uid 1000 can't be read")

	const window = 5 * time.Second
	for began := time.Now(); ; { // tries get rarer: from 45 % of a processor to nothing
		before := chtest.ProcessorTime(t, agent.command.Process.Pid)
		<-time.After(window) // what a process uses in a time is asked after that time
		used := chtest.ProcessorTime(t, agent.command.Process.Pid) - before
		if used < window/20 {
			t.Logf("the agent used %v of %v", used, window)
			break
		}

		if time.Since(began) > patience {
			t.Fatalf("the agent used %v of %v on folders that it can't read", used, window)
		}
	}

	end()
	agent.until("the end", func(m map[string]float64) bool { return m["laggard_recorders"] == 0 })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if code := agent.exits(); code != 1 {
		t.Errorf("exit %d with 5000 folders that could not be read", code)
	}

	if lines := strings.Count(agent.words.String(), "level=WARN msg=drain"); lines > 3 {
		t.Errorf("%d lines:\n%s", lines, agent.words)
	}

	if n := s.stored("good", 0); n != 20 {
		t.Errorf("%d records stored of 20", n)
	}
}
