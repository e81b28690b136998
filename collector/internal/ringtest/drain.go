package ringtest

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Drain is a drain whose writers are kept by incarnation.
type Drain struct {
	*drain.Drain
	Writers map[record.ID]*Memory
	run     string
}

// NewDrain returns a drain of a run directory.
func NewDrain(t testing.TB, run string) *Drain {
	t.Helper()
	c := &Drain{Writers: make(map[record.ID]*Memory), run: run}
	d, err := drain.New(drain.Options{RunDir: run, Node: "n0", Open: func(m record.Meta) (drain.Writer, error) {
		w := c.Writers[m.Incarnation]
		if w == nil {
			w = &Memory{Meta: m}
			c.Writers[m.Incarnation] = w
		}

		return w, nil
	}})
	if err != nil {
		t.Fatal(err)
	}

	c.Drain = d
	return c
}

// patience bounds the wait for folders to go.
const patience = 30 * time.Second

// Finish drains until every folder is gone.
func (c *Drain) Finish(t testing.TB) *Drain {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if _, err := c.Pass(); err != nil {
			t.Fatal(err)
		}

		if c.Idle() {
			break
		}

		if time.Now().After(deadline) {
			t.Fatalf("folders are left: %v", c.Stats())
		}
	}

	left, _ := os.ReadDir(c.run)
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), ".") { // killed while it was made: swept later
			t.Errorf("left in the run directory: %v", left)
		}
	}

	return c
}

// Only returns the one writer there is.
func (c *Drain) Only(t testing.TB) *Memory {
	t.Helper()
	if len(c.Writers) != 1 {
		t.Fatalf("%d incarnations, want 1", len(c.Writers))
	}

	for _, w := range c.Writers {
		return w
	}

	return nil
}

// Killed is Only, nil when the program died before its first range.
func (c *Drain) Killed(t testing.TB) *Memory {
	t.Helper()
	if len(c.Writers) == 0 {
		return nil
	}

	return c.Only(t)
}

// Environ is the environment without what tells a rank or preloads something, and
// with a run directory.
func Environ(run string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "LAGGARD_") || strings.HasPrefix(e, "RANK=") || strings.HasPrefix(e, "LOCAL_RANK=") || strings.HasPrefix(e, "LD_")
	}), "LAGGARD_RUN="+run)
}

// Runs runs a program to its end and returns what it printed, and its words.
func Runs(t testing.TB, cmd *exec.Cmd) (out, said string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, b, stderr.Bytes())
	}

	return string(b), stderr.String()
}
