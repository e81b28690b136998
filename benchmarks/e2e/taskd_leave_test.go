package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// shippedUntilTerm starts an agent over files that others wrote, asks it to leave when it
// has read so many lines, and waits until it has.
func shippedUntilTerm(s *site, lines int) {
	s.t.Helper()
	agent := s.agent("--records", "all", "--grace", "60s")
	agent.until("all lines read", func(m map[string]float64) bool { return int(m["laggard_lines_read_total"]) >= lines })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}

	agent.wait()
}

// stepsAndCalls returns what a Parquet store has of them.
func stepsAndCalls(t *testing.T, store string) (steps, calls int) {
	t.Helper()
	dir := strings.TrimPrefix(store, "parquet:")
	each(t, dir, row.StepsTable, func(*row.Step) { steps++ })
	each(t, dir, row.CommunicationsTable, func(r *row.Communication) { calls += int(r.Calls) })
	return steps, calls
}

// TestTermShipsTheLastStepOfTaskd: TaskD's lines have no end line; an agent that is asked
// to leave ships the last step of each rank all the same, with its windows, and where the
// writer goes on afterwards the next agent adds what is missing and nothing twice.
func TestTermShipsTheLastStepOfTaskd(t *testing.T) {
	t.Parallel()
	const ranks, steps = 3, 40
	written := newSite(t, "")
	written.store = "parquet:" + filepath.Join(t.TempDir(), "unused")
	agent := written.agent("--format", "taskd", "--until-idle", "1s")
	for rank := range ranks {
		defer written.emitter(rank, ranks, steps).wait()
	}

	agent.wait()

	whole, cut := newSite(t, ""), newSite(t, "")
	lines := map[string][][]byte{} // by path under the profiling directory
	all := 0
	for rank := range ranks {
		dir := filepath.Join("j1", strconv.Itoa(rank))
		infos, err := segment.List(filepath.Join(written.dir, dir))
		if err != nil || len(infos) != 1 {
			t.Fatalf("%d segments, %v", len(infos), err)
		}

		text, err := os.ReadFile(filepath.Join(written.dir, dir, infos[0].Name))
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dir, infos[0].Name)
		lines[path] = bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		all += len(lines[path])
	}

	write := func(s *site, path string, part [][]byte) {
		t.Helper()
		name := filepath.Join(s.dir, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}

		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := f.Write(bytes.Join(part, nil)); err != nil {
			t.Fatal(err)
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, l := range lines {
		write(whole, path, append(l, []byte("\n")))
	}

	shippedUntilTerm(whole, all)
	if n, calls := stepsAndCalls(t, whole.store); n != ranks*steps || calls != ranks*steps*emitterCalls {
		t.Errorf("%d steps and %d calls stored, want %d and %d", n, calls, ranks*steps, ranks*steps*emitterCalls)
	}

	audited(t, 0, whole.dir, whole.store)

	first := 0
	for path, l := range lines { // in the middle of a step, and of a window
		n := len(l)*2/3 + len(l)/40/2
		write(cut, path, l[:n])
		first += n
	}

	shippedUntilTerm(cut, first)
	if n, _ := stepsAndCalls(t, cut.store); n >= ranks*steps || n < ranks*(steps/2) {
		t.Errorf("%d steps stored of two thirds", n)
	}

	audited(t, 0, cut.dir, cut.store)
	for path, l := range lines {
		write(cut, path, append(l[len(l)*2/3+len(l)/40/2:], []byte("\n")))
	}

	shippedUntilTerm(cut, all-first)
	if n, calls := stepsAndCalls(t, cut.store); n != ranks*steps || calls != ranks*steps*emitterCalls {
		t.Errorf("after a restart %d steps and %d calls stored, want %d and %d", n, calls, ranks*steps, ranks*steps*emitterCalls)
	}

	stored := storedOnce(t, cut.store)
	for kind, n := range emittedBy(ranks, steps) {
		if stored[kind] != n {
			t.Errorf("%s: %d stored, want %d", kind, stored[kind], n)
		}
	}

	audited(t, 0, cut.dir, cut.store)
}
