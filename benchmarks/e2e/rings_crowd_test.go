package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/drain"
)

// incarnationAt is where a process file says its incarnation, which names the folder
// (FORMAT.md, 2.1).
const incarnationAt = 40

// copied makes n folders of the only one there is, as somebody does who wants an agent's
// descriptors for himself: each with an incarnation of its own, a living process, and all
// of its records.
func (s *shared) copied(uid, n int) {
	s.t.Helper()
	folders, err := filepath.Glob(filepath.Join(s.rings, "????????????????"))
	if err != nil || len(folders) != 1 {
		s.t.Fatalf("%v, %v", folders, err)
	}

	entries, err := os.ReadDir(folders[0])
	if err != nil {
		s.t.Fatal(err)
	}

	for i := range n {
		dir := filepath.Join(s.rings, fmt.Sprintf("%016x", i+1))
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(folders[0], e.Name()))
			if err != nil {
				s.t.Fatal(err)
			}

			if e.Name() == "process" {
				binary.LittleEndian.PutUint64(b[incarnationAt:], uint64(i+1))
			}

			s.give(dir, e.Name(), uid, b)
		}

		if err := os.Chmod(dir, 0o770); err != nil { // not before: an agent must not see half of it
			s.t.Fatal(err)
		}
	}
}

// give makes a file of a user in a folder of his that the group can't read yet.
func (s *shared) give(dir, name string, uid int, b []byte) {
	s.t.Helper()
	path := filepath.Join(dir, name)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(path, b, 0o660)
	}

	for _, p := range []string{dir, path} {
		if err == nil {
			err = os.Chown(p, uid, agentUser)
		}
	}

	if err == nil {
		err = os.Chmod(path, 0o660) // whatever the umask
	}

	if err != nil {
		s.t.Fatal(err)
	}
}

// TestRingFoldersOfAUser: of one user's folders so many are held at once, whatever he makes;
// the others wait and are counted, another user's process has its place, and in the end
// every record of every folder is stored once.
func TestRingFoldersOfAUser(t *testing.T) {
	t.Parallel()
	const folders, each = drain.PerUser + 22, 20
	s := newShared(t)
	endCrowd := s.trains(trainerUser, "crowd", 0)
	s.copied(trainerUser, folders-1)
	endGood := s.trains(0, "good", 0)
	agent := s.agent("--trust-uid", fmt.Sprint(trainerUser))
	agent.until("the bound, and the other user's records", func(m map[string]float64) bool {
		if m["laggard_recorders"] > drain.PerUser+1 {
			t.Fatalf("%v folders are held at once", m["laggard_recorders"])
		}

		return m["laggard_recorders"] == drain.PerUser+1 && m["laggard_ring_folders_waiting"] == folders-drain.PerUser &&
			s.files("good", 0)
	})
	endGood()
	s.leave(agent, "--trust-uid", fmt.Sprint(trainerUser))
	// What a living process recorded outside of a step waits for one in the files.
	if r := laggard(t, "ingest", s.dir, "--to", s.store, "--records", "all"); r.code != 0 {
		t.Fatalf("ingest: %+v", r)
	}

	endCrowd()
	if crowd, good := s.stored("crowd", 0), s.stored("good", 0); crowd != folders*each || good != each {
		t.Errorf("%d records of the crowd and %d of the other user stored, want %d and %d\n%s", crowd, good, folders*each, each, agent.words)
	}

	storedOnce(t, s.store)
}

// leave ends an agent by SIGTERM. What it leaves to the next one, for its last turns are
// bounded in time, the next ones drain.
func (s *shared) leave(agent *running, args ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; agent = s.agent(args...) {
		agent.says(`serving (metrics)`)
		if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}

		if agent.exits() == 0 {
			return
		}

		if !strings.Contains(agent.words.String(), "for the next agent") || time.Now().After(deadline) {
			s.t.Fatalf("the agent leaves with an error:\n%s", agent.words)
		}
	}
}

// files reports whether a rank has a segment.
func (s *shared) files(job string, rank int) bool {
	segments, err := filepath.Glob(filepath.Join(s.dir, job, fmt.Sprint(rank), "[0-9]*"))
	return err == nil && len(segments) > 0
}
