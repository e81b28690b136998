package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestMain is also the agent that the tests kill: with LAGGARD_TEST_AGENT it
// drains one directory into another until it is told to stop.
func TestMain(m *testing.M) {
	if run := os.Getenv("LAGGARD_TEST_AGENT"); run != "" {
		agent(run, os.Getenv("LAGGARD_TEST_DIR"), os.Getenv("LAGGARD_TEST_CRASH"))
		return
	}

	code := m.Run()
	ringtest.Remove()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	os.Exit(code)
}

// agent drains with small segments and short passes. crash is "label:n": die at
// the n-th time the label is passed.
func agent(run, dir, crash string) {
	label, count, _ := strings.Cut(crash, ":")
	left, _ := strconv.Atoi(count)
	drain.SetCrashPoint(func(l string) {
		if l == label {
			if left--; left <= 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	})
	d, err := drain.New(drain.Options{RunDir: run, Open: opener(dir), Interval: time.Millisecond, Sync: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	if err := d.Begin(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Stdout.Close() // says that we are up
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := d.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func opener(dir string) func(record.Meta) (drain.Writer, error) {
	return func(m record.Meta) (drain.Writer, error) {
		rank := filepath.Join(dir, m.Job, strconv.Itoa(m.Rank))
		w, err := segment.Open(rank, m, segment.Options{Limit: 64 << 10})
		if to := os.Getenv("LAGGARD_TEST_AGED"); err == nil && to != "" {
			return &ages{Writer: w, rank: rank, to: to}, nil
		}

		return w, err
	}
}

// ages is a Writer before whose first record every segment of the rank is moved away, as
// ageing would delete them.
type ages struct {
	*segment.Writer
	rank, to string
	done     bool
}

// AppendRecord implements drain.Writer.
func (w *ages) AppendRecord(r *record.Record) error {
	if !w.done {
		infos, err := segment.List(w.rank)
		if err != nil {
			return err
		}

		before, _ := os.ReadDir(filepath.Join(w.to, "j"))
		to := filepath.Join(w.to, "j", strconv.Itoa(len(before))) // names come again
		for _, i := range infos {
			if err := errors.Join(os.MkdirAll(to, 0o755), os.Rename(filepath.Join(w.rank, i.Name), filepath.Join(to, i.Name))); err != nil {
				return err
			}
		}

		w.done = true
	}

	return w.Writer.AppendRecord(r)
}

// startAgent starts the agent process.
func startAgent(t *testing.T, run, dir, crash string) *exec.Cmd {
	t.Helper()
	cmd := agentCommand(run, dir, crash)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	return cmd
}

// startedAgent starts an agent and returns a channel that tells when it begins.
func startedAgent(t *testing.T, run, dir string, env ...string) (*exec.Cmd, <-chan struct{}) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd := agentCommand(run, dir, "")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	w.Close()
	up := make(chan struct{})
	go func() {
		io.Copy(io.Discard, r)
		r.Close()
		close(up)
	}()
	return cmd, up
}

func agentCommand(run, dir, crash string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAGGARD_TEST_AGENT="+run, "LAGGARD_TEST_DIR="+dir, "LAGGARD_TEST_CRASH="+crash)
	cmd.Stderr = os.Stderr
	return cmd
}

// contents is everything that the segments under a directory say.
type contents struct {
	records  map[string][]record.Record // by incarnation and ring
	open     []record.Record
	losses   []record.Loss
	switches []record.Switch
	ends     []record.End
	torn     int64
	next     map[string]uint64
	twice    int
	gaps     uint64
}

// read parses every segment below dir.
func read(t *testing.T, dir string) *contents {
	t.Helper()
	c := &contents{records: make(map[string][]record.Record), next: make(map[string]uint64)}
	c.add(t, dir)
	return c
}

// add parses every segment below another directory.
func (c *contents) add(t *testing.T, dir string) {
	t.Helper()
	dirs, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range dirs {
		infos, err := segment.List(d.Path)
		if err != nil {
			t.Fatal(err)
		}

		for _, i := range infos {
			c.readSegment(t, filepath.Join(d.Path, i.Name))
		}
	}
}

func (c *contents) readSegment(t *testing.T, path string) {
	t.Helper()
	r, err := segment.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var p record.Parser
	for {
		line, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		kind, err := p.Parse(line)
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}

		switch kind {
		case record.LineRecord:
			c.take(fmt.Sprintf("%s/%d", p.Meta.Incarnation, p.Record.Ring), p.Record)
		case record.LineLoss:
			c.losses = append(c.losses, p.Loss)
		case record.LineSwitch:
			c.switches = append(c.switches, p.Switch)
		case record.LineEnd:
			c.ends = append(c.ends, p.End)
		}
	}

	c.torn += r.Torn()
}

// take counts a record that was there before, and numbers that were left out.
func (c *contents) take(ring string, r record.Record) {
	if r.Open {
		c.open = append(c.open, r)
		return
	}

	switch next := c.next[ring]; {
	case r.Seq < next:
		c.twice++
	default:
		c.gaps += r.Seq - next
		c.next[ring] = r.Seq + 1
	}

	c.records[ring] = append(c.records[ring], r)
}

func (c *contents) stored() (n uint64) {
	for _, rs := range c.records {
		n += uint64(len(rs))
	}

	return n
}

func (c *contents) lost() (n uint64) {
	for _, l := range c.losses {
		n += l.Count
	}

	return n
}

// exact checks that emitted = stored + dropped for ended incarnations, by number
// and by sequence.
func (c *contents) exact(t *testing.T, ended int, emitted uint64) {
	t.Helper()
	if len(c.ends) != ended {
		t.Errorf("%d end lines, want %d", len(c.ends), ended)
	}

	var said, dropped uint64
	for _, e := range c.ends {
		for _, n := range e.Emitted {
			said += n
		}

		for _, n := range e.Dropped {
			dropped += n
		}
	}

	if said != emitted {
		t.Errorf("end lines say %d emitted, want %d", said, emitted)
	}

	if c.twice != 0 || c.gaps != 0 {
		t.Errorf("%d records twice, %d missing by sequence", c.twice, c.gaps)
	}

	if c.lost() != dropped {
		t.Errorf("loss lines count %d, end lines %d", c.lost(), dropped)
	}

	if n := c.stored() + c.lost(); n != emitted {
		t.Errorf("stored %d + lost %d = %d, emitted %d", c.stored(), c.lost(), n, emitted)
	}
}

// trainer returns the C test driver's command.
func trainer(t testing.TB, run string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(ringtest.Driver(t), args...)
	cmd.Env = []string{"LAGGARD_RUN=" + run, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// run runs a command to its end.
func runs(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out.Bytes())
	}
}
