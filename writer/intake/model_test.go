package intake_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// oracle is a store in memory that counts how often it has each record, and fails
// as it is told to.
type oracle struct {
	ship.Sink // nil: Sums and Tally are not asked for
	mu        sync.Mutex
	rows      map[ship.RecordKey]int
	seqs      map[[2]uint64]int // ring, sequence → how often
	dead      bool              // the process is being killed: nothing arrives any more
	lose      int               // so many inserts are carried out and not acknowledged
	deny      int               // so many are refused
}

func (o *oracle) Create(context.Context) error { return nil }
func (o *oracle) Close() error                 { return nil }
func (o *oracle) Probe(context.Context) error  { return nil }
func (o *oracle) Ping(context.Context) error   { return nil }
func (o *oracle) Name() string                 { return "oracle" }

func (o *oracle) Insert(_ context.Context, b *ship.Batch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dead:
		return errors.New("killed")
	case o.deny > 0:
		o.deny--
		return &ship.Error{Class: ship.Transient, Err: errors.New("not now")}
	}

	for i := range b.Raws.Rows {
		r := &b.Raws.Rows[i]
		o.rows[ship.KeyOfRaw(r)]++
		o.seqs[[2]uint64{r.Incarnation<<8 | uint64(r.Ring), r.Seq}]++
	}

	if o.lose > 0 {
		o.lose--
		return errors.New("the acknowledgement is lost")
	}

	return nil
}

func (o *oracle) Stored(_ context.Context, b *ship.Batch) ([]bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return nil, errors.New("killed")
	}

	stored := make([]bool, b.Len())
	for i := range b.Raws.Rows {
		stored[i] = o.rows[ship.KeyOfRaw(&b.Raws.Rows[i])] > 0
	}

	return stored, nil
}

// machine is what the random operations are done to.
type machine struct {
	t       *testing.T
	rt      *rapid.T
	dir     string
	state   string
	store   *oracle
	w       *segment.Writer
	clock   int64 // that names segments, s
	now     int64 // that ranges begin at, ns
	seq     uint64
	process int
	emitted map[[2]uint64]bool
	aged    map[[2]uint64]bool

	f    *intake.Follower
	stop context.CancelFunc
	done chan error
}

func (m *machine) must(err error) {
	if err != nil {
		m.rt.Fatal(err)
	}
}

func (m *machine) rank() string { return filepath.Join(m.dir, "j", "0") }

// open begins the segments of another process of the rank.
func (m *machine) open() {
	m.process++
	m.seq = 0
	var err error
	m.w, err = segment.Open(m.rank(), record.Meta{
		Format: record.Format, Job: "j", Incarnation: record.ID(m.process), WorldSize: 1, Node: "n", StartedNs: base, Writer: "go/1",
	}, segment.Options{Limit: 4 << 10, Now: func() time.Time { return time.Unix(m.clock, 0) }})
	m.must(err)
}

func (m *machine) emit(steps int) {
	for range steps {
		m.now += 3_000_000_000
		for _, kind := range []record.Kind{record.FP, record.Communication, record.Step} {
			r := record.New(kind)
			r.Step, r.Start, r.Dur, r.Ring, r.Seq = int64(m.seq/3), m.now, 400_000_000, 1, m.seq
			m.must(m.w.AppendRecord(&r))
			m.emitted[[2]uint64{uint64(m.process)<<8 | 1, m.seq}] = true
			m.seq++
		}
	}
}

func (m *machine) start() {
	if m.f != nil {
		return
	}

	m.store.mu.Lock()
	m.store.dead = false
	m.store.mu.Unlock()
	o := all()
	o.State, o.Grace, o.Quantum = m.state, 5*time.Second, 1<<10
	o.Ship = ship.Options{BatchRows: 16, Flush: time.Millisecond, Jitter: func() float64 { return 0 }}
	var err error
	m.f, err = intake.NewFollower(m.dir, m.store, o)
	m.must(err)
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	go func(f *intake.Follower) { m.done <- f.Run(ctx) }(m.f)
}

// end stops the follower, or kills it: then nothing that it does on its way out counts.
func (m *machine) end(kill bool) {
	if m.f == nil {
		return
	}

	if !kill {
		m.stop()
		m.f = nil // whatever comes: it has ended
		m.must(<-m.done)
		return
	}

	m.store.mu.Lock()
	m.store.dead = true
	m.store.mu.Unlock()
	kept := filepath.Join(m.dir, ".kept")
	m.must(os.RemoveAll(kept))
	m.must(os.CopyFS(kept, os.DirFS(m.state)))
	m.stop()
	<-m.done // whatever it says
	m.must(os.RemoveAll(m.state))
	m.must(os.Rename(kept, m.state))
	m.f = nil
}

func (m *machine) ship() {
	if m.f == nil {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m.must(m.f.Sync(ctx))
}

// age deletes the oldest segment, when it is shipped or can be let go of.
func (m *machine) age() {
	if m.f == nil || !m.f.Ships(m.rank()) {
		return
	}

	infos, err := segment.List(m.rank())
	m.must(err)
	if len(infos) < 3 {
		return
	}

	oldest := infos[0]
	path := filepath.Join(m.rank(), oldest.Name)
	if !m.f.Shipped(m.rank(), oldest.Name) {
		if err := m.f.Release(m.rank(), oldest, func() error { return nil }); err != nil {
			return // it is on its way
		}

		r, err := segment.OpenReader(path)
		m.must(err)
		var p record.Parser
		incarnation := uint64(0)
		for {
			line, _, err := r.Next()
			if err != nil {
				break
			}

			switch t, err := p.Parse(line); {
			case err != nil:
			case t == record.LineMeta:
				incarnation = uint64(p.Meta.Incarnation)
			case t == record.LineRecord:
				m.aged[[2]uint64{incarnation<<8 | uint64(p.Record.Ring), p.Record.Seq}] = true
			}
		}

		m.must(r.Close())
	}

	m.must(os.Remove(path))
}

// check holds the invariant: nothing is stored twice, nothing that was not emitted,
// nothing that aged; finally, everything else is there.
func (m *machine) check(finally bool) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	for k, n := range m.store.seqs {
		if n != 1 || !m.emitted[k] || m.aged[k] {
			m.rt.Fatalf("record %v is stored %d times, emitted %t, aged %t", k, n, m.emitted[k], m.aged[k])
		}
	}

	if want := len(m.emitted) - len(m.aged); finally && len(m.store.seqs) != want {
		m.rt.Fatalf("emitted %d = stored %d + aged %d does not hold", len(m.emitted), len(m.store.seqs), len(m.aged))
	}
}

// TestModel is R29: random sequences of operations against an oracle in memory;
// emitted = stored + aged always, each once. rapid prints the seed of a failure and
// shrinks it; LAGGARD_TEST_MODEL sets the number of sequences.
func TestModel(t *testing.T) {
	checks := cmp.Or(os.Getenv("LAGGARD_TEST_MODEL"), "10")
	if err := flag.Set("rapid.checks", checks); err != nil {
		t.Fatal(err)
	}

	t.Logf("scale: %s sequences (LAGGARD_TEST_MODEL)", checks)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "laggard-model-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &machine{
			t: t, rt: rt, dir: filepath.Join(dir, "tree"), state: filepath.Join(dir, "state"), clock: 1_753_055_000, now: base,
			store:   &oracle{rows: map[ship.RecordKey]int{}, seqs: map[[2]uint64]int{}},
			emitted: map[[2]uint64]bool{}, aged: map[[2]uint64]bool{},
		}
		m.must(errors.Join(os.MkdirAll(m.state, 0o755), os.MkdirAll(m.dir, 0o755)))
		m.open()
		defer func() {
			if m.f != nil {
				m.end(true)
			}
		}()
		operations := map[string]func(){
			"emit":     func() { m.emit(rapid.IntRange(1, 12).Draw(rt, "steps")) },
			"drain":    func() { m.must(m.w.Flush()) },
			"rotate":   func() { m.emit(20); m.must(m.w.Flush()) },
			"age":      m.age,
			"ship":     m.ship,
			"ack-lost": func() { m.set(func(o *oracle) { o.lose++ }) },
			"denied":   func() { m.set(func(o *oracle) { o.deny++ }) },
			"kill":     func() { m.end(true) },
			"stop":     func() { m.end(false) },
			"restart":  m.start,
			"forget": func() { // the state directory is a cache
				if m.f == nil {
					m.must(errors.Join(os.RemoveAll(m.state), os.MkdirAll(m.state, 0o755)))
				}
			},
			"trainer": func() { m.must(errors.Join(m.w.Flush(), m.w.Close())); m.open() },
			"clock":   func() { m.clock += rapid.Int64Range(-3600, 3600).Draw(rt, "seconds") },
		}
		names := []string{"emit", "emit", "drain", "rotate", "age", "ship", "ship", "ack-lost", "denied", "kill", "stop", "restart", "restart", "forget", "trainer", "clock"}
		for range rapid.IntRange(5, 30).Draw(rt, "operations") {
			operations[rapid.SampledFrom(names).Draw(rt, "operation")]()
			m.check(false)
		}

		m.emit(6) // so that processes which died without a word are known to be over
		end := record.End{At: m.now + 1_000_000_000, How: "closed"}
		m.must(errors.Join(m.w.AppendLine(end.AppendLine(nil)), m.w.Flush(), m.w.Close()))
		m.start()
		m.ship()
		m.end(false)
		m.check(true)
	})
}

func (m *machine) set(f func(*oracle)) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	f(m.store)
}
