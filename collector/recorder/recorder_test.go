package recorder_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
)

func open(t testing.TB, o recorder.Options) (*recorder.Recorder, string) {
	t.Helper()
	if o.RunDir == "" {
		o.RunDir = ringtest.Shared(t)
	}

	r, err := recorder.Open(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(r.Close)
	return r, o.RunDir
}

// collect closes the recorder and drains it.
func collect(t testing.TB, r *recorder.Recorder, run string) *ringtest.Memory {
	t.Helper()
	r.Close()
	w := &ringtest.Memory{}
	d, err := drain.New(drain.Options{RunDir: run, Open: func(m record.Meta) (drain.Writer, error) {
		w.Meta = m
		return w, nil
	}})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := d.Pass(); err != nil {
		t.Fatal(err)
	}

	if !d.Idle() {
		t.Fatal("the folder was not drained to its end")
	}

	return w
}

func TestNoFilesBeforeTheFirstRange(t *testing.T) {
	r, run := open(t, recorder.Options{})
	r.Intern("x")
	r.SetMeta(record.Meta{Rank: 1})
	th := r.Thread()
	if _, err := os.Stat(run); !os.IsNotExist(err) {
		t.Fatalf("files before the first range: %v", err)
	}

	f := th.Begin(record.FP, recorder.Attr{})
	f.End()
	if _, err := os.Stat(run); err != nil {
		t.Fatal(err)
	}
}

func TestStepIsTheProcesses(t *testing.T) {
	r, run := open(t, recorder.Options{})
	a, b := r.Thread(), r.Thread()
	s := a.Step(41, 512)
	f := b.Begin(record.FP, recorder.Attr{})
	s.End()
	f.End()
	f.End() // the second does nothing
	l := b.Begin(record.DataLoader, recorder.Attr{})
	l.Cancel()
	l.End()
	b.Mark(record.DataLoader, recorder.Attr{}, 5, 6)
	w := collect(t, r, run)
	var got []string
	for _, x := range w.Records {
		got = append(got, fmt.Sprint(x.Word(), x.Step, x.Tokens))
	}

	if s := strings.Join(got, ","); s != "Step41 512,FP41 0,DataLoader-1 0" {
		t.Errorf("records %s", s)
	}

	if w.Open != nil {
		t.Errorf("open %v", w.Open)
	}
}

func TestDeviceAndExposed(t *testing.T) {
	r, run := open(t, recorder.Options{})
	th := r.Thread()
	d := th.Begin(record.FP, recorder.Attr{Stream: 7})
	d.EndDevice(1000, 50)
	c := th.Begin(record.Communication, recorder.Op(r.Intern("recv"), 0, 1, 0).To(2))
	c.EndExposed(33)
	w := collect(t, r, run)
	if x := w.Records[0]; x.Side != record.Device || x.Start != 1000 || x.Dur != 50 || x.HostStart == 0 || x.Thread != 7 {
		t.Errorf("device range %+v", x)
	}

	if x := w.Records[1]; x.Exposed != 33 || x.Peer != 2 || x.Op != "recv" {
		t.Errorf("exposed range %+v", x)
	}
}

func TestSwitch(t *testing.T) {
	r, run := open(t, recorder.Options{Trace: "off"})
	th := r.Thread()
	use := func() {
		a := th.Begin(record.FP, recorder.Attr{})
		b := th.Begin(record.Communication, recorder.Attr{})
		b.End()
		a.End()
	}
	use()
	if r.Switch() != (trace.State{}) {
		t.Errorf("switch at start %v", r.Switch())
	}

	across := th.Begin(record.FP, recorder.Attr{}) // begun while off: no record
	set(t, r, run, trace.State{Light: true})
	across.End()
	use()
	across = th.Begin(record.FP, recorder.Attr{}) // begun while on: a record
	set(t, r, run, trace.State{})
	across.End()
	use()
	set(t, r, run, trace.On)
	use()
	if r.Switch() != trace.On {
		t.Errorf("switch %v", r.Switch())
	}

	w := collect(t, r, run)
	if len(w.Records) != 1+1+2 {
		t.Errorf("%d records", len(w.Records))
	}
}

// set switches and waits until the recorder follows.
func set(t *testing.T, r *recorder.Recorder, run string, s trace.State) {
	t.Helper()
	began := time.Now()
	if err := trace.Apply(run, s, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.Switch() != s {
		if <-tick.C; time.Since(began) > 10*time.Second {
			t.Fatalf("the recorder does not follow to %v", s)
		}
	}

	t.Logf("followed after %v", time.Since(began))
}

func TestBadOptionsAreSaid(t *testing.T) {
	if r, err := recorder.Open(recorder.Options{RunDir: ringtest.Shared(t), Trace: "stp"}); err == nil || r == nil || !strings.Contains(err.Error(), `did you mean "Step"`) {
		t.Errorf("Open = %v, %v", r, err)
	}
}

func TestNilRecordsNothing(t *testing.T) {
	var r *recorder.Recorder
	th := r.Thread()
	a := th.Begin(record.FP, recorder.Attr{})
	a.End()
	s := th.Step(1, 1)
	s.End()
	th.Mark(record.FP, recorder.Attr{}, 1, 1)
	th.Close()
	r.SetMeta(record.Meta{})
	r.Intern("x")
	r.Close()
	if r.Err() != nil || r.Switch() != (trace.State{}) {
		t.Error("a nil recorder does something")
	}
}

// TestNoFolder makes the run directory impossible: one line, a count, no harm.
func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer
	r, _ := open(t, recorder.Options{RunDir: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	th := r.Thread()
	for range 10 {
		a := th.Begin(record.FP, recorder.Attr{})
		a.End()
		th.Mark(record.Communication, recorder.Attr{}, 1, 1)
	}

	if l := r.Lost(); l[record.FP] != 10 || l[record.Communication] != 10 || r.Err() == nil {
		t.Errorf("lost %v, %v", l, r.Err())
	}

	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// TestTruncatedUnderneath takes the ring's memory away.
func TestTruncatedUnderneath(t *testing.T) {
	r, run := open(t, recorder.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	th := r.Thread()
	th.Mark(record.FP, recorder.Attr{}, 1, 1)
	files, _ := filepath.Glob(filepath.Join(run, "*", "ring-1"))
	if err := os.Truncate(files[0], 0); err != nil {
		t.Fatal(err)
	}

	for range 1000 {
		a := th.Begin(record.FP, recorder.Attr{})
		a.End()
		th.Mark(record.Communication, recorder.Attr{}, 1, 1)
	}

	th.Close()
	if l := r.Lost(); r.Err() == nil || l[record.Communication] == 0 {
		t.Errorf("lost %v, %v", l, r.Err())
	}
}

func TestManyThreads(t *testing.T) {
	const threads, each = 64, 200
	r, run := open(t, recorder.Options{})
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			th := r.Thread()
			defer th.Close()
			for range each {
				f := th.Begin(record.FP, recorder.Attr{})
				f.End()
			}
		})
	}

	all.Wait()
	w := collect(t, r, run)
	if n := uint64(len(w.Records)) + w.Lost(); n != threads*each || w.End.Emitted["FP"] != threads*each {
		t.Errorf("stored %d, lost %d, emitted %v", len(w.Records), w.Lost(), w.End.Emitted)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r, _ := open(t, recorder.Options{})
	th := r.Thread()
	op, group := r.Intern("allreduce"), r.Intern("dp0")
	work := func() {
		s := th.Step(1, 100)
		c := th.Begin(record.Communication, recorder.Op(op, group, 1024, 12).To(3))
		c.End()
		d := th.Begin(record.FP, recorder.Attr{})
		d.EndDevice(1, 2)
		th.Mark(record.FP, recorder.Attr{}, 1, 2)
		s.End()
	}
	work()
	if n := testing.AllocsPerRun(1000, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEnvironment(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if m := recorder.Environment(env(map[string]string{"RANK": "7"})); m.Rank != 0 || m.WorldSize != 1 {
		t.Errorf("RANK alone: %+v", m)
	}

	m := recorder.Environment(env(map[string]string{"RANK": "7", "LOCAL_RANK": "3", "WORLD_SIZE": "16", "LAGGARD_JOB": "a", "MINDX_TASK_ID": "b", "NODE_NAME": "n"}))
	if m.Rank != 7 || m.LocalRank != 3 || m.WorldSize != 16 || m.Job != "b" || m.Node != "n" {
		t.Errorf("%+v", m)
	}

	if m := recorder.Environment(env(map[string]string{"RANK": "-7", "LOCAL_RANK": "x", "LAGGARD_JOB": "a"})); m.Rank != 0 || m.LocalRank != 0 || m.Job != "a" {
		t.Errorf("%+v", m)
	}
}
