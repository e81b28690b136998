package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/keep"
)

// sighting is the note of an agent with --until-idle that it has seen a recorder. One
// that is killed leaves it behind: where all rings are drained, the next one would know
// of no recorder, and wait for the first.
//
// It holds for this start of the machine and this ring directory (a pod's is its own),
// and for noRecorder since it was written last: that is how long a recorder is waited
// for, be it a job's first or one after a restart.
type sighting struct {
	path, rings string
	noted       time.Time
}

// noteSighting is how often the note is written again while recorders live.
const noteSighting = time.Minute

func newSighting(dir, ringDir string) *sighting {
	return &sighting{path: filepath.Join(dir, ".laggard", "recorders-seen"), rings: ringDir}
}

// text is what the note says, "" where no ring directory is yet.
func (s *sighting) text() string {
	self, err := ring.Self()
	var st unix.Stat_t
	if err != nil || unix.Stat(s.rings, &st) != nil {
		return ""
	}

	return fmt.Sprintf("%s %d %d\n", self.BootID, st.Dev, st.Ino)
}

// before reports whether the agent before this one saw a recorder and was killed.
func (s *sighting) before(now time.Time) bool {
	info, err := os.Lstat(s.path)
	if err != nil || now.Sub(info.ModTime()) > noRecorder {
		return false
	}

	text, err := keep.Read(s.path, 256)
	return err == nil && len(text) > 0 && string(text) == s.text()
}

// note writes it, once in a while. Without it the next agent waits for a recorder: no
// reason to fail.
func (s *sighting) note(now time.Time) {
	if now.Sub(s.noted) < noteSighting {
		return
	}

	s.noted = now
	_ = keep.Write(s.path, 0o644, []byte(s.text()))
}

// forget removes it: this agent leaves in order.
func (s *sighting) forget() { _ = os.Remove(s.path) }
