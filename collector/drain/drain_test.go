package drain_test

import (
	"cmp"
	"context"
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
	"github.com/laggard-dev/laggard/writer/segment"
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

// pass drains once and returns how many records came.
func (b *bench) pass(t testing.TB) (records uint64, full bool) {
	t.Helper()
	before := drained(b.Drain)
	full, err := b.Pass()
	if err != nil {
		t.Fatal(err)
	}

	return drained(b.Drain) - before, full
}

// drained returns how many records a drain has given to segments.
func drained(d *drain.Drain) (n uint64) {
	for _, k := range d.Stats().Drained {
		n += k
	}

	return n
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

	if n, _ := b.pass(t); n != 50 || b.Stats().Processes != 1 {
		t.Fatalf("%d records of %d processes", n, b.Stats().Processes)
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

// TestBurstsAreSeenBetweenPasses: a ring that gets a quarter full is drained long before the next pass is due, twice, for it may go on so;
// and so is a thread's that is new.
func TestBurstsAreSeenBetweenPasses(t *testing.T) {
	b := newBench(t, &ringtest.Memory{}, func(o *drain.Options) { o.Interval = time.Hour })
	b.mark(record.FP, 1) // with it the process has a ring
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	until := func(what string, is func() bool) {
		t.Helper()
		deadline := time.After(time.Minute)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !is() {
			select {
			case <-tick.C:
			case <-deadline:
				stop()
				<-done
				t.Fatalf("%s: never, %d records of %d passes", what, drained(b.Drain), b.Stats().Passes)
			}
		}
	}

	until("the first pass", func() bool { return drained(b.Drain) == 1 })
	first := b.Stats().Passes
	b.mark(record.FP, ring.LightSlots/4+1)
	until("a quarter of a ring drained", func() bool { return drained(b.Drain) == ring.LightSlots/4+2 })
	until("the pass after it", func() bool { return b.Stats().Passes == first+2 })
	b.rec.Thread().Mark(record.FP, recorder.Attr{}, 1000, 1)
	until("a pass for a new ring", func() bool { return b.Stats().Passes > first+2 })
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestLossesAreToldOnce(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, ring.LightSlots+10)
	b.mark(record.Communication, 5)
	if n, full := b.pass(t); !full || n != ring.LightSlots+5 {
		t.Errorf("%d records, full %v", n, full)
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
		want string // "" a name of the drain's
	}{
		"escape":   {"../../etc", ""},
		"absolute": {"/etc", ""},
		"dots":     {"..", ""},
		"newline":  {"a\nb", ""},
		"empty":    {"", ""},
		"spaces":   {"a b", "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &ringtest.Memory{}
			b := newBench(t, w, nil)
			b.rec.SetMeta(record.Meta{Job: c.job, Rank: 1})
			b.mark(record.FP, 1)
			b.pass(t)
			want := cmp.Or(c.want, b.Unnamed())
			if w.Meta.Job != want || c.want == "" && !strings.HasPrefix(want, "default_task_id_") {
				t.Errorf("job %q, want %q", w.Meta.Job, want)
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

func TestOpen(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	op, group := b.rec.Intern("ncclAllReduce"), b.rec.Intern("dp0")
	step := b.th.Step(9, 0)
	hang := b.th.Begin(record.Communication, recorder.Op(op, group, 4, record.DtypeCode("fp32")).To(3))
	b.pass(t)
	b.now = b.now.Add(time.Minute)
	_ = hang
	step.End()
	b.rec.Close()
	b.pass(t)
	if len(w.Open) != 1 || w.Open[0].Op != "allreduce" || !w.Open[0].Open || w.Open[0].Dur < 0 || w.Open[0].Dur > int64(time.Minute) {
		t.Fatalf("open %+v", w.Open)
	}

	if o := &w.Open[0]; o.Group != "dp0" || o.Step != 9 || o.Peer != 3 || w.Meta.Rank != 2 {
		t.Errorf("open %+v of rank %d", w.Open, w.Meta.Rank)
	}

	if w.End == nil || w.End.How != "closed" || w.End.Emitted["Step"] != 1 || w.End.Emitted["Communication"] != 0 {
		t.Errorf("end %+v", w.End)
	}

	if !b.Idle() || !b.Seen() {
		t.Errorf("Idle %v, Seen %v", b.Idle(), b.Seen())
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
	if _, err := second.Pass(); second.Stats().Processes != 0 || err != nil {
		t.Errorf("the second agent holds %d folders: %v", second.Stats().Processes, err)
	}

	first.mark(record.FP, 4)
	first.Drain.Close() // as when it dies: the lock goes
	if _, err := second.Pass(); drained(second) != 4 || err != nil {
		t.Errorf("the second agent took %d records over: %v", drained(second), err)
	}
}

func TestUntrusted(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, func(o *drain.Options) { o.Trust = func(uid uint32) ([]string, bool) { return nil, uid == 12345 } })
	b.mark(record.FP, 3)
	b.pass(t)
	if s := b.Stats(); len(w.Records) != 0 || s.Refused["foreign-owner"] != 1 || s.Ignored != 1 {
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

// TestRotatedTellsOfSegments: once for each segment that a pass begins, however many.
func TestRotatedTellsOfSegments(t *testing.T) {
	dir, told := filepath.Join(t.TempDir(), "j", "2"), 0
	b := newBench(t, nil, func(o *drain.Options) {
		o.Open = func(m record.Meta) (drain.Writer, error) {
			return segment.Open(dir, m, segment.Options{Limit: 256 << 10})
		}
		o.Rotated = func() { told++ }
	})
	b.pass(t)
	if told != 0 {
		t.Errorf("told %d times of no segment", told)
	}

	for range 3 {
		b.mark(record.Communication, 5000)
		b.pass(t)
	}

	segments, err := segment.List(dir)
	if err != nil {
		t.Fatal(err)
	}

	if told != len(segments) || told < 3 {
		t.Errorf("told %d times of %d segments", told, len(segments))
	}
}
