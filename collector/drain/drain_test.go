package drain_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
)

// bench is a recorder and a drain of one run directory, with a clock to turn.
type bench struct {
	*drain.Drain
	rec *recorder.Recorder
	th  *recorder.Thread
	now time.Time
	run string
}

func newBench(t testing.TB, w drain.Writer, change func(*drain.Options)) *bench {
	t.Helper()
	b := &bench{run: ringtest.Shared(t), now: time.Now()}
	var err error
	b.rec, err = recorder.Open(recorder.Options{RunDir: b.run, Meta: record.Meta{Job: "j", Rank: 2, WorldSize: 4}})
	if err != nil {
		t.Fatal(err)
	}

	b.th = b.rec.Thread()
	o := drain.Options{
		RunDir: b.run, Node: "n0", Pod: "p0",
		Open: func(m record.Meta) (drain.Writer, error) {
			if mem, ok := w.(*ringtest.Memory); ok {
				mem.Meta = m
			}

			return w, nil
		},
		Now: func() time.Time { return b.now },
	}
	if change != nil {
		change(&o)
	}

	if b.Drain, err = drain.New(o); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		b.rec.Close()
		b.Drain.Close()
	})
	return b
}

func (b *bench) pass(t testing.TB) drain.Pass {
	t.Helper()
	p, err := b.Pass()
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// mark records n finished ranges.
func (b *bench) mark(k record.Kind, n int) {
	for i := range n {
		b.th.Mark(k, recorder.Attr{Value: int64(i)}, int64(1000+i), 1)
	}
}

func TestOrderIsByEnd(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	other := b.rec.Thread()
	for i := range int64(50) {
		th := []*recorder.Thread{b.th, other}[i%2]
		th.Mark([]record.Kind{record.Communication, record.Step, record.FP}[i%3], recorder.Attr{}, 100*i, 10)
	}

	if p := b.pass(t); p.Records != 50 || p.Processes != 1 {
		t.Fatalf("Pass = %+v", p)
	}

	for i, r := range w.Records {
		if r.Start != int64(100*i) {
			t.Fatalf("record %d starts at %d", i, r.Start)
		}
	}

	if w.Flushed != 50 {
		t.Errorf("%d flushed", w.Flushed)
	}
}

func TestLossesAreToldOnce(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, ring.LightSlots+10)
	b.mark(record.Communication, 5)
	if p := b.pass(t); !p.Full || p.Records != ring.LightSlots+5 {
		t.Errorf("Pass = %+v", p)
	}

	want := record.Loss{Ring: 1, Kind: "FP", Reason: record.RingFull, Count: 10, First: 1000 + ring.LightSlots, Last: 1009 + ring.LightSlots}
	if len(w.Losses) != 1 || w.Losses[0] != want {
		t.Fatalf("losses %+v, want %+v", w.Losses, want)
	}

	b.mark(record.FP, ring.LightSlots+1)
	b.pass(t)
	b.pass(t)
	if len(w.Losses) != 1 {
		t.Errorf("a second loss line in the same second: %+v", w.Losses)
	}

	b.now = b.now.Add(time.Second)
	b.pass(t)
	b.pass(t)
	if len(w.Losses) != 2 || w.Losses[1].Count != 1 {
		t.Errorf("losses %+v", w.Losses)
	}

	if s := b.Stats(); s.Dropped[record.RingFull] != 11 || s.Drained[record.FP] != 2*ring.LightSlots {
		t.Errorf("stats %+v", s)
	}
}

func TestIdentity(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 1)
	b.pass(t)
	if m := w.Meta; m.Job != "j" || m.Rank != 2 || m.Node != "n0" || m.Pod != "p0" || m.PID != os.Getpid() || m.Writer != recorder.Writer {
		t.Errorf("identity %+v", m)
	}

	groups := []record.Group{{Dim: "dp", Name: "dp0", Index: 1, Size: 2, Ranks: []int{0, 2}}}
	b.rec.SetMeta(record.Meta{Job: "j", Rank: 2, WorldSize: 4, Node: "own", Groups: groups})
	b.pass(t)
	if m := w.Meta; m.Node != "own" || len(m.Groups) != 1 || m.Groups[0].Name != "dp0" {
		t.Errorf("identity %+v", m)
	}
}

// TestIdentityMovesToAnotherRank learns the rank late, as from an initialisation
// of process groups.
func TestIdentityMovesToAnotherRank(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, nil, func(o *drain.Options) { o.Open = opener(dir) })
	b.mark(record.FP, 5)
	b.pass(t)
	b.rec.SetMeta(record.Meta{Job: "j", Rank: 3})
	b.mark(record.FP, 7)
	b.pass(t)
	b.rec.Close()
	b.pass(t)
	for rank, want := range map[string]uint64{"2": 5, "3": 7} {
		c := read(t, filepath.Join(dir, "j", rank))
		if c.stored() != want || len(c.ends) != 1 {
			t.Errorf("rank %s: %d records, %d ends", rank, c.stored(), len(c.ends))
		}
	}
}

func TestBadIdentities(t *testing.T) {
	for name, c := range map[string]struct {
		job  string
		want string
	}{
		"escape":   {"../../etc", "d"},
		"absolute": {"/etc", "d"},
		"dots":     {"..", "d"},
		"newline":  {"a\nb", "d"},
		"empty":    {"", "d"},
		"spaces":   {"a b", "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &ringtest.Memory{}
			b := newBench(t, w, func(o *drain.Options) { o.Job = "d" })
			b.rec.SetMeta(record.Meta{Job: c.job, Rank: 1})
			b.mark(record.FP, 1)
			b.pass(t)
			if w.Meta.Job != c.want {
				t.Errorf("job %q, want %q", w.Meta.Job, c.want)
			}
		})
	}
}

func TestSwitchLine(t *testing.T) {
	w := &ringtest.Memory{}
	var jobs []string
	var options drain.Options
	b := newBench(t, w, func(o *drain.Options) {
		o.Wanted = func(job string) (uint32, bool) {
			jobs = append(jobs, job)
			return ring.LightOn, true
		}
		options = *o
	})
	b.mark(record.Communication, 1) // before anybody says otherwise
	b.pass(t)
	until(t, "Communication to be off", func() bool { return !b.rec.Switch().Communication })
	b.mark(record.Communication, 1)
	b.mark(record.FP, 1)
	b.pass(t)
	b.pass(t)
	// Who speaks later is not overruled, by this agent or the next one.
	if err := trace.Apply(b.run, trace.On, func(job string) bool { return job == "j" }); err != nil {
		t.Fatal(err)
	}

	b.pass(t)
	until(t, "Communication to be on", func() bool { return b.rec.Switch().Communication })
	b.mark(record.Communication, 2)
	b.pass(t)
	comm := 0
	for _, r := range w.Records {
		if r.Kind == record.Communication {
			comm++
		}
	}

	if len(w.Switches) != 2 || w.Switches[0].Communication || !w.Switches[0].Default || !w.Switches[1].Communication || comm != 1+2 {
		t.Errorf("switches %+v, %d Communication", w.Switches, comm)
	}

	b.Drain.Close()
	next, err := drain.New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	for range 2 {
		if _, err := next.Pass(); err != nil {
			t.Fatal(err)
		}
	}

	if !b.rec.Switch().Communication || slices.ContainsFunc(jobs, func(job string) bool { return job != "j" }) {
		t.Errorf("the next agent spoke again: %v; asked for jobs %q", b.rec.Switch(), jobs)
	}
}

func TestHangingAndOpen(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	op, group := b.rec.Intern("ncclAllReduce"), b.rec.Intern("dp0")
	step := b.th.Step(9, 0)
	hang := b.th.Begin(record.Communication, recorder.Op(op, group, 4, record.DtypeCode("fp32")).To(3))
	b.pass(t)
	b.now = b.now.Add(time.Minute)
	h := b.Hanging(time.Second)
	if len(h) != 2 || h[1].Record.Op != "allreduce" || h[1].Record.Group != "dp0" || h[1].Record.Step != 9 || h[1].Record.Peer != 3 || h[1].Meta.Rank != 2 {
		t.Fatalf("Hanging = %+v", h)
	}

	if h := b.Hanging(time.Hour); len(h) != 0 {
		t.Errorf("Hanging for an hour = %+v", h)
	}

	_ = hang
	step.End()
	b.rec.Close()
	b.pass(t)
	if len(w.Open) != 1 || w.Open[0].Op != "allreduce" || !w.Open[0].Open || w.Open[0].Dur < 0 || w.Open[0].Dur > int64(time.Minute) {
		t.Errorf("open %+v", w.Open)
	}

	if w.End == nil || w.End.How != "closed" || w.End.Emitted["Step"] != 1 || w.End.Emitted["Communication"] != 0 {
		t.Errorf("end %+v", w.End)
	}

	if !b.Idle() || b.Seen() != 1 {
		t.Errorf("Idle %v, Seen %d", b.Idle(), b.Seen())
	}
}

// TestScribbled spoils slots of a living ring: they are waited for, then counted,
// and nothing else is lost.
func TestScribbled(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 10)
	spoil(t, b.run, 3, 4)
	if p := b.pass(t); p.Records != 3 {
		t.Fatalf("%d records before the spoilt slot", p.Records)
	}

	b.now = b.now.Add(2 * time.Second)
	if p := b.pass(t); p.Records != 5 {
		t.Fatalf("%d records after it", p.Records)
	}

	if len(w.Losses) != 1 || w.Losses[0].Reason != record.Corrupt || w.Losses[0].Count != 2 || w.Losses[0].Ring != 1 {
		t.Errorf("losses %+v", w.Losses)
	}

	b.rec.Close()
	b.pass(t)
	if w.End == nil || w.End.Dropped[record.Corrupt] != 2 || w.End.Emitted["FP"] != 10 {
		t.Errorf("end %+v", w.End)
	}
}

// spoil flips a byte in light slots of ring-1 of the only process.
func spoil(t *testing.T, run string, slots ...int) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(run, "*", "ring-1"))
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range slots {
		if _, err := f.WriteAt([]byte{0xFF}, int64(8192+64*s+20)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileRing is R23: it lets a writer scribble over everything while a drain reads: it
// must neither stop nor fail for others.
func TestHostileRing(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 100)
	b.pass(t)
	files, _ := filepath.Glob(filepath.Join(b.run, "*", "*"))
	x := uint64(ringtest.Seed())
	t.Logf("seed %d", x)
	next := func(n int) int {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return int(x % uint64(n))
	}
	for range 2000 {
		path := files[next(len(files))]
		if filepath.Base(path) == ring.LockName {
			continue
		}

		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}

		v := []byte(fmt.Sprintf("%d", next(1<<30)))
		at := next(600)
		if next(3) == 0 {
			at = next(8192 + 64*200)
		}

		if filepath.Base(path) == ring.ProcessName && at < 128 {
			at += 128 // the identity of the folder was checked when it was opened
		}

		f.WriteAt(v[:1+next(len(v))], int64(at))
		f.Close()
		if next(10) == 0 {
			b.mark(record.Communication, 5)
		}

		if next(20) == 0 {
			b.now = b.now.Add(time.Duration(next(3000)) * time.Millisecond)
			b.Pass()
			b.Hanging(0)
		}
	}
}

func TestForeignFolders(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 1)
	for _, n := range []string{"00000000000000aa", "00000000000000ab"} {
		if err := os.MkdirAll(filepath.Join(b.run, n), 0o770); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(b.run, "00000000000000ab", ring.ProcessName), []byte("junk"), 0o660); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Pass(); !errors.Is(err, ring.ErrNotRing) {
		t.Errorf("Pass = %v, want the foreign folder named", err)
	}

	if _, err := b.Pass(); err != nil {
		t.Errorf("Pass says it again: %v", err)
	}

	if len(w.Records) != 1 {
		t.Errorf("%d records", len(w.Records))
	}
}

// TestNewerRecorders is R31: a kind, flags and a dtype that this agent does not know are
// kept; a folder of another version is left as it is, named once and counted, and
// holds nobody up.
func TestNewerRecorders(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	const kind, dtype = record.Kind(200), 250
	b.th.Mark(kind, recorder.Attr{Text: b.rec.Intern("Compile"), Value: 7}, 1000, 1)
	b.th.Mark(record.Communication, recorder.Op(b.rec.Intern("allreduce_v9"), b.rec.Intern("dp0"), 5, dtype), 1001, 1)
	b.mark(record.FP, 1)
	newer := filepath.Join(b.run, "00000000000000aa")
	old, _ := filepath.Glob(filepath.Join(b.run, "*"))
	if err := os.CopyFS(newer, os.DirFS(old[0])); err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(filepath.Join(newer, ring.ProcessName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{2}, 8); err != nil { // the version
		t.Fatal(err)
	}

	if _, err := b.Pass(); !errors.Is(err, ring.ErrNotRing) || !strings.Contains(err.Error(), "version") {
		t.Errorf("Pass = %v, want the other version named", err)
	}

	b.pass(t)
	if s := b.Stats(); s.Ignored != 1 || s.Processes != 1 {
		t.Errorf("%d folders ignored, %d drained", s.Ignored, s.Processes)
	}

	if names, _ := os.ReadDir(newer); len(names) != 2 {
		t.Errorf("the other version's folder has %v", names)
	}

	words := map[string]record.Record{}
	for _, r := range w.Records {
		words[r.Word()] = r
	}

	if r := words["Compile"]; len(words) != 3 || r.Kind != record.Other || r.Bytes != 7 || words["Communication"].Count != 5 {
		t.Errorf("records %+v", w.Records)
	}

	if err := os.RemoveAll(newer); err != nil {
		t.Fatal(err)
	}

	b.pass(t)
	if n := b.Stats().Ignored; n != 0 {
		t.Errorf("%d folders ignored when it is gone", n)
	}
}

func TestTwoAgents(t *testing.T) {
	a, b := &ringtest.Memory{}, &ringtest.Memory{}
	first := newBench(t, a, nil)
	second, err := drain.New(drain.Options{RunDir: first.run, Open: func(record.Meta) (drain.Writer, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.mark(record.FP, 3)
	first.pass(t)
	if p, err := second.Pass(); p.Processes != 0 || err != nil {
		t.Errorf("the second agent holds %d folders: %v", p.Processes, err)
	}

	first.mark(record.FP, 4)
	first.Drain.Close() // as when it dies: the lock goes
	if p, err := second.Pass(); p.Records != 4 || err != nil {
		t.Errorf("the second agent took %d records over: %v", p.Records, err)
	}
}

func TestUntrusted(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, func(o *drain.Options) { o.Trust = func(uid uint32) ([]string, bool) { return nil, uid == 12345 } })
	b.mark(record.FP, 3)
	b.pass(t)
	if s := b.Stats(); len(w.Records) != 0 || s.Refused[drain.Foreign] != 1 || s.Ignored != 1 {
		t.Errorf("%d records of a folder of somebody else; %+v", len(w.Records), s)
	}

	if err := b.Ready(); err != nil {
		t.Errorf("whoever is not trusted makes the agent say: %v", err)
	}
}

// TestDrainedTellsOfLines: once for a pass that flushed lines, however many, and not for
// one that did not.
func TestDrainedTellsOfLines(t *testing.T) {
	told := 0
	b := newBench(t, &ringtest.Memory{}, func(o *drain.Options) { o.Drained = func() { told++ } })
	b.mark(record.FP, 3)
	b.mark(record.Communication, 100)
	b.pass(t)
	if told != 1 {
		t.Errorf("told %d times of a pass with lines", told)
	}

	b.pass(t)
	if told != 1 {
		t.Errorf("told %d times after a pass without", told)
	}

	b.rec.Close()
	b.pass(t) // the end line
	if told != 2 {
		t.Errorf("told %d times after the end", told)
	}
}
