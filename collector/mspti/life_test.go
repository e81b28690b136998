package mspti_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/mspti"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
)

// talk is a trainer that is told what to do, line by line.
type talk struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *os.File
	// Ranges that libmspti took: light, communication.
	taken [2]int
}

func talkTo(t testing.TB, cmd *exec.Cmd) *talk {
	t.Helper()
	k := &talk{t: t, cmd: cmd}
	var err error
	if k.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if k.err, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}

	cmd.Stderr = k.err
	k.out = bufio.NewReader(pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { cmd.Process.Kill() })
	return k
}

func (k *talk) line() string {
	s, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Fatalf("read: %v\n%s", err, k.said())
	}

	return strings.TrimSpace(s)
}

func (k *talk) said() string {
	b, _ := os.ReadFile(k.err.Name())
	return string(b)
}

// until has the trainer make ranges until they are taken as want says: light, then
// communication. Following takes a tenth of a second.
func (k *talk) until(want string) {
	k.t.Helper()
	got := ""
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		io.WriteString(k.in, "\n")
		got = k.line()
		for i := range k.taken {
			if len(got) > i && got[i] == '1' {
				k.taken[i]++
			}
		}

		if got == want {
			return
		}
	}

	k.t.Fatalf("taken %q, want %q\n%s", got, want, k.said())
}

// end closes the trainer's stdin and returns its report.
func (k *talk) end() counts {
	k.t.Helper()
	k.in.Close()
	c := report(k.t, k.line())
	if err := k.cmd.Wait(); err != nil {
		k.t.Fatalf("trainer: %v\n%s", err, k.said())
	}

	return c
}

// TestFollowsTheSwitch starts off and obeys both bits.
func TestFollowsTheSwitch(t *testing.T) {
	run := ringtest.Shared(t)
	cmd := command(t, run, "trainer", "follow")
	cmd.Env = append(cmd.Env, "LAGGARD_TRACE=off")
	k := talkTo(t, cmd)
	k.until("00")
	folder := func() bool {
		all, err := trace.Recorders(run)
		return err == nil && len(all) == 1 && all[0].Wanted == all[0].Followed
	}
	for deadline := time.Now().Add(3 * time.Minute); !folder(); k.until("00") {
		if time.Now().After(deadline) {
			t.Fatal("no ring folder while all is off: nobody could switch it on")
		}
	}

	for _, s := range []struct {
		state trace.State
		want  string
	}{{trace.On, "11"}, {trace.State{Light: true}, "10"}, {trace.State{}, "00"}, {trace.On, "11"}, {trace.State{Light: true}, "10"}} {
		if err := trace.Apply(run, s.state, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}

		k.until(s.want)
		if !folder() {
			t.Errorf("%v is not acknowledged", s.state)
		}
	}

	k.end()
	w := ringtest.NewDrain(t, run).Finish(t).Only(t)
	n := words(w.Records)
	// Each of five switches may have come between a range's begin and end.
	if got := n["Step"] + n["Communication"] + int(w.Lost()); n["Step"] == 0 || n["Communication"] == 0 || got > k.taken[0]+k.taken[1] || got < k.taken[0]+k.taken[1]-5 {
		t.Errorf("records %v and %d counted as lost, of %v", n, w.Lost(), k.taken)
	}

	if said := k.said(); said != "" {
		t.Errorf("said %q", said)
	}
}

// TestAnotherSubscriber says one line while a full profiling is on, and records when
// it is over.
func TestAnotherSubscriber(t *testing.T) {
	run, busy := ringtest.Shared(t), filepath.Join(t.TempDir(), "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := command(t, run, "trainer", "follow")
	cmd.Env = append(cmd.Env, "STANDIN_BUSY="+busy, "LAGGARD_MSPTI_RETRY_MS=150")
	k := talkTo(t, cmd)
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(k.said(), "somebody else uses libmspti"); k.until("00") {
		if time.Now().After(deadline) {
			t.Fatalf("said %q", k.said())
		}
	}

	for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
		k.until("00")
	}

	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}

	k.until("11")
	c := k.end()
	if c.Multiple < 2 || strings.Count(k.said(), "\n") != 2 {
		t.Errorf("refused %d times, said %q", c.Multiple, k.said())
	}

	if w := ringtest.NewDrain(t, run).Finish(t).Only(t); words(w.Records)["Step"] == 0 {
		t.Errorf("records %v", words(w.Records))
	}
}

// TestMissingSymbols leaves out each of the nine, and records what can be recorded
// without it.
func TestMissingSymbols(t *testing.T) {
	dir := build(t)
	for name, want := range map[string]map[string]int{
		"msptiActivityRegisterCallbacks":   nil, // nothing can come
		"msptiActivityEnable":              nil,
		"msptiActivityDisable":             expected(10, 2),
		"msptiActivityGetNextRecord":       expected(10, 2),
		"msptiActivityFlushAll":            {}, // comes when a buffer is full
		"msptiActivityEnableMarkerDomain":  expected(10, 2),
		"msptiActivityDisableMarkerDomain": expected(10, 2),
		"msptiSubscribe":                   expected(10, 2),
		"msptiUnsubscribe":                 expected(10, 2),
	} {
		t.Run(name, func(t *testing.T) {
			lib := t.TempDir()
			if err := standin(lib, "libmspti.so", name); err != nil {
				t.Fatal(err)
			}

			run := ringtest.Shared(t)
			mode := "train"
			if want == nil {
				mode = "plain"
			}

			cmd := command(t, run, "trainer", mode, "10", "2")
			cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+lib, "LD_PRELOAD="+lib+"/libmspti.so:"+dir+"/"+mspti.Library)
			if name == "msptiActivityFlushAll" {
				cmd.Env = append(cmd.Env, "STANDIN_FULL=8")
			}

			_, said := ringtest.Runs(t, cmd)
			if want == nil { // it may have ended before it looked
				if left, _ := os.ReadDir(run); len(left) > 1 || strings.Count(said, "\n") > 2 {
					t.Errorf("said %q, left %v", said, left)
				}

				return
			}

			if !strings.Contains(said, "libmspti has no "+name+":") || strings.Count(said, "\n") != 1 {
				t.Errorf("said %q", said)
			}

			got := took(ringtest.NewDrain(t, run).Finish(t).Only(t))
			if len(want) == 0 && got["DataLoader"] < 7 { // what is in the last buffers never comes
				t.Errorf("records %v", got)
			} else if len(want) > 0 && !maps.Equal(got, want) {
				t.Errorf("records %v, want %v", got, want)
			}
		})
	}
}

// TestUnknownKinds passes over records of a kind that libmspti itself knows the size
// of, and leaves the buffer where it can't be asked.
func TestUnknownKinds(t *testing.T) {
	t.Run("libmspti knows", func(t *testing.T) {
		run := ringtest.Shared(t)
		cmd := command(t, run, "trainer-sanitized", "train", "20", "2")
		cmd.Env = append(cmd.Env, "STANDIN_STRANGE=1")
		ringtest.Runs(t, cmd)
		got := took(ringtest.NewDrain(t, run).Finish(t).Only(t))
		if got["after the stranger"] == 0 {
			t.Errorf("records %v", got)
		}

		delete(got, "after the stranger")
		if want := expected(20, 2); !maps.Equal(got, want) {
			t.Errorf("records %v, want %v", got, want)
		}
	})
	t.Run("nobody knows", func(t *testing.T) {
		dir, lib, run := build(t), t.TempDir(), ringtest.Shared(t)
		if err := standin(lib, "libmspti.so", "msptiActivityGetNextRecord"); err != nil {
			t.Fatal(err)
		}

		cmd := command(t, run, "trainer", "train", "20", "2")
		cmd.Env = append(cmd.Env, "STANDIN_STRANGE=1", "LD_LIBRARY_PATH="+lib, "LD_PRELOAD="+lib+"/libmspti.so:"+dir+"/"+mspti.Library)
		ringtest.Runs(t, cmd)
		if got, want := took(ringtest.NewDrain(t, run).Finish(t).Only(t)), expected(20, 2); !maps.Equal(got, want) {
			t.Errorf("records %v, want %v", got, want)
		}
	})
}

// TestFork: the child's copy of libmspti gets no buffers, and the parent goes on.
func TestFork(t *testing.T) {
	for _, program := range []string{"trainer", "trainer-sanitized"} {
		run := ringtest.Shared(t)
		out, said := ringtest.Runs(t, command(t, run, program, "fork", "0", "3"))
		if !strings.HasPrefix(out, "0\n") || said != "" {
			t.Errorf("child left with %q, said %q", out, said)
		}

		steps := make(map[int64]int)
		for _, r := range ringtest.NewDrain(t, run).Finish(t).Only(t).Records {
			if r.Kind == record.Step {
				steps[r.Step]++
			}
		}

		if !maps.Equal(steps, map[int64]int{0: 1, 2: 1}) {
			t.Errorf("%s: steps %v, want 0 and 2", program, steps)
		}
	}
}

// TestSignalsAreTheTrainers: the only handler is the recorder's own for SIGBUS, and
// none when that is refused.
func TestSignalsAreTheTrainers(t *testing.T) {
	cmd := command(t, ringtest.Shared(t), "trainer", "signals")
	cmd.Env = append(cmd.Env, "LAGGARD_SIGBUS=0")
	var inherited []string // nohup's, for one
	for n := range 32 {
		if n > 0 && signal.Ignored(syscall.Signal(n)) {
			inherited = append(inherited, fmt.Sprint(n))
		}
	}

	if out, _ := ringtest.Runs(t, cmd); !slices.Equal(strings.Fields(out), inherited) {
		t.Errorf("handlers of signals %s, want %v", out, inherited)
	}
}

// TestTaskDWorker runs a script adapted for TaskD with the library preloaded: the
// switch file commands libmspti.
func TestTaskDWorker(t *testing.T) {
	run, file := ringtest.Shared(t), filepath.Join(t.TempDir(), "profilingSwitch")
	path, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}

	dir := build(t)
	cmd := command(t, run, "trainer")
	cmd.Path, cmd.Args = "/usr/bin/python3", []string{"python3", "-B", "-c", `
import ctypes, sys
from taskd.api.taskd_worker_api import init_taskd_worker, start_taskd_worker, destroy_taskd_worker
assert init_taskd_worker(3) and start_taskd_worker()
mstx = ctypes.CDLL(None)
for f in (mstx.mstxRangeStartA, mstx.mstxDomainRangeStartA, mstx.mstxDomainCreateA): f.restype = ctypes.c_uint64
domain = ctypes.c_void_p(mstx.mstxDomainCreateA(b"communication"))
for i, line in enumerate(sys.stdin):
    s = mstx.mstxRangeStartA(b"step %d" % (i % 10000), ctypes.c_void_p(1))
    c = mstx.mstxDomainRangeStartA(domain, b'{\\"opName\\": \\"HcclAllreduce\\"}', ctypes.c_void_p(1))
    mstx.mstxDomainRangeEnd(domain, ctypes.c_uint64(c))
    mstx.mstxRangeEnd(ctypes.c_uint64(s))
    print("%d%d" % (s != 0, c != 0), flush=True)
destroy_taskd_worker()
print("{}")
`}
	cmd.Env = append(cmd.Env, "PYTHONPATH="+path, "LAGGARD_MSPTI=auto", "RANK=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "WORLD_SIZE=4", "MINDX_TASK_ID=uid-1",
		"LAGGARD_SWITCH_FILE="+file, "LAGGARD_TASKD_PROXY=off", "LD_PRELOAD="+dir+"/libmspti.so:"+dir+"/"+mspti.Library)
	k := talkTo(t, cmd)
	k.until("00")
	for _, s := range []struct{ words, want string }{
		{`{"CommunicationOperator":"on","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`, "11"},
		{`{"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"on","DataLoader":"off"}`, "10"},
		{`{"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`, "00"},
	} {
		if err := os.WriteFile(file+".new", []byte(s.words), 0o644); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(file+".new", file); err != nil { // else it may be read half-written, which is said
			t.Fatal(err)
		}

		k.until(s.want)
	}

	k.end()
	w := ringtest.NewDrain(t, run).Finish(t).Only(t)
	if w.Meta.Job != "uid-1" || w.Meta.Rank != 3 || w.Meta.WorldSize != 4 || w.Meta.Writer != "mspti/1" {
		t.Errorf("identity %+v", w.Meta)
	}

	if n := words(w.Records); n["Step"] == 0 || n["Communication"] == 0 {
		t.Errorf("records %v", n)
	}

	if said := k.said(); said != "" {
		t.Errorf("said %q", said)
	}
}
