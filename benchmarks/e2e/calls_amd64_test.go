package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ledger"
)

// leftovers are the rings of two ranks whose processes have left, full of records: what an
// agent finds is the same each time it is put on the stage.
type leftovers struct {
	rings   string
	emitted sums
	// limits make segments rotate and age: the cap is less than half of what there is
	// to write.
	limits []string
}

const leftRanks = 2

func newLeftovers(t *testing.T, steps int, limits ...string) *leftovers {
	t.Helper()
	s := newSite(t, "")
	var emitters []*running
	for rank := range leftRanks {
		emitters = append(emitters, s.emitter(rank, leftRanks, steps))
	}

	for _, e := range emitters {
		e.wait()
	}

	return &leftovers{s.rings, emittedBy(leftRanks, steps), limits}
}

// stage is one copy of the leftovers.
type stage struct {
	*site
	block  string // a file in the store's place while the store is away
	limits []string
}

// stage copies the rings. A store that is away can't be written to until open.
func (c *leftovers) stage(t *testing.T, away bool) *stage {
	t.Helper()
	base := filepath.Join(t.TempDir(), "mount")
	s := newSite(t, "parquet:"+filepath.Join(base, "store"))
	if err := os.CopyFS(s.rings, os.DirFS(c.rings)); err != nil {
		t.Fatal(err)
	}

	st := &stage{site: s, limits: c.limits}
	if away {
		st.block = base
		if err := os.WriteFile(base, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return st
}

func (s *stage) open() {
	s.t.Helper()
	if s.block == "" {
		return
	}

	if err := os.Remove(s.block); err != nil {
		s.t.Fatal(err)
	}

	s.block = ""
}

func (s *stage) storeDir() string { return strings.TrimPrefix(s.store, "parquet:") }

// traced runs an agent to its end under a tracer. With the store away SIGTERM ends it.
func (s *stage) traced(look func(*sysCall) int) (syscall.WaitStatus, string) {
	s.t.Helper()
	out, err := os.Create(filepath.Join(s.t.TempDir(), "agent.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	x := &tracer{roots: []string{s.rings, s.dir, filepath.Dir(s.storeDir())}, look: look}
	if s.block != "" {
		x.enough = s.drained
	}

	env := append(os.Environ(), "LAGGARD_RUN="+s.rings)
	ws := x.run(s.t, out, env, append([]string{program}, s.arguments("2s")...)...)
	words, err := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatal(err)
	}

	return ws, string(words)
}

// drained reports whether no rings are left.
func (s *stage) drained() bool {
	names, err := ring.Names(s.rings)
	return err == nil && len(names) == 0
}

func (s *stage) arguments(grace string) []string {
	return append([]string{"agent", "--dir", s.dir, "--store", s.store, "--node", "node-0", "--metrics", "", "--listen", "",
		"--records", "all", "--until-idle", "50ms", "--grace", grace}, s.limits...)
}

// recover starts an agent as it comes, when there is something to drain, and ships
// what is left. It returns the time from the agent's start until the rings were
// drained and gone.
func (s *stage) recover() time.Duration {
	s.t.Helper()
	s.open()
	took := time.Duration(0)
	if !s.drained() {
		began := time.Now()
		a := s.start(s.arguments("30s")...)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !s.drained() && time.Since(began) < patience {
			<-tick.C
		}

		took = time.Since(began)
		a.wait()
	}

	if r := laggard(s.t, "ingest", s.dir, "--to", s.store, "--records", "all"); r.code != 0 {
		s.t.Fatalf("ingest after the restart: %+v", r)
	}

	return took
}

// exact holds the account to the record: each is stored once, or aged, or dropped.
func (s *stage) exact(emitted sums) {
	s.t.Helper()
	stored, aged, dropped := sums{}, sums{}, sums{}
	type place struct {
		rank, ring uint32
		seq        uint64
	}
	seen, twice := map[place]bool{}, []place{}
	each(s.t, s.storeDir(), row.RecordsTable, func(r *row.Record) {
		stored[r.Kind]++
		p := place{r.Rank, r.Ring, r.Seq}
		if seen[p] {
			twice = append(twice, p)
		}

		seen[p] = true
	})
	if len(twice) > 0 {
		s.t.Errorf("%d records are stored twice, the first of them %+v", len(twice), twice[0])
	}

	if _, err := ledger.Read(s.dir, func(r row.Ledger) error {
		switch {
		case r.Batch != "":
		case r.State == "aged":
			aged[r.Kind] += r.Records
		case r.State == "dropped":
			dropped[r.Kind] += r.Records
		}

		return nil
	}); err != nil {
		s.t.Fatal(err)
	}

	for kind, n := range emitted {
		if stored[kind]+aged[kind]+dropped[kind] != n {
			s.t.Errorf("%s: emitted %d, stored %d + aged %d + dropped %d", kind, n, stored[kind], aged[kind], dropped[kind])
		}
	}
}

// names of files that stand for many.
var (
	segmentFile = regexp.MustCompile(`/j1/\d+/\d+(\.zst)?$`)
	rankFolder  = regexp.MustCompile(`/j1/\d+$`)
	checkpoint  = regexp.MustCompile(`/\.laggard/(cursor|\.new-)`)
)

// label says what a call is: of which part, and which call.
func (s *stage) label(c *sysCall) string {
	part := "profiling"
	switch {
	case strings.HasPrefix(c.path, s.rings):
		part = "ring"
	case strings.HasPrefix(c.path, s.storeDir()):
		part = "store"
	case segmentFile.MatchString(c.path):
		part = "segment"
	case rankFolder.MatchString(c.path):
		part = "rank folder"
	case checkpoint.MatchString(c.path):
		part = "checkpoint"
	case strings.Contains(c.path, "/.laggard/ledger"):
		part = "ledger"
	case strings.Contains(c.path, "/.laggard"):
		part = "state folder"
	}

	return part + " " + c.name
}

// instants are the labels without which a list of crash points is not whole: drain
// (ring), rotate (segment, rank folder), checkpoint, ageing (ledger, unlink), ship.
var instants = map[bool][]string{
	false: {
		"ring pwrite", "ring rename", "ring unlink", "segment open", "segment write", "segment fsync", "segment unlink", "rank folder fsync",
		"checkpoint open", "checkpoint write", "checkpoint fsync", "checkpoint rename", "state folder fsync",
		"store mkdir", "store open", "store write", "store fsync", "store rename",
	},
	true: {
		"ring pwrite", "ring unlink", "segment open", "segment write", "segment fsync", "segment unlink", "rank folder fsync",
		"ledger write", "ledger fsync",
	},
}

// instant is a place to die at: before or after the n-th call with a label.
type instant struct {
	label string
	n     int
	after bool
}

func (i instant) String() string {
	if i.after {
		return fmt.Sprintf("after %s %d", i.label, i.n)
	}

	return fmt.Sprintf("before %s %d", i.label, i.n)
}

// count runs an agent undisturbed and returns how often each label comes by. Where the
// store is away it also holds the order of ageing: nothing is unlinked whose loss is
// not in the ledger, durably.
func (c *leftovers) count(t *testing.T, away bool) map[string]int {
	s := c.stage(t, away)
	seen := map[string]int{}
	var written, durable strings.Builder
	unlinked := 0
	_, words := s.traced(func(call *sysCall) int {
		if !call.changes() {
			return goOn
		}

		label := s.label(call)
		if call.done {
			seen[label]++
		}

		switch {
		case call.done && label == "ledger write":
			written.Write(call.data)
		case call.done && label == "ledger fsync":
			durable.WriteString(written.String())
			written.Reset()
		case !call.done && label == "segment unlink" && away:
			unlinked++
			want := fmt.Sprintf(`"rank":%s,`, filepath.Base(filepath.Dir(call.path)))
			if !slices.ContainsFunc(strings.Split(durable.String(), "\n"), func(line string) bool {
				return strings.Contains(line, want) && strings.Contains(line, `"name":"`+filepath.Base(call.path)+`"`) && strings.Contains(line, `"state":"aged"`)
			}) {
				t.Errorf("%s is unlinked before its loss is in the ledger:\n%s", call.path, durable.String())
			}
		}

		return goOn
	})
	for _, label := range instants[away] {
		if seen[label] == 0 {
			t.Errorf("an agent with its store away=%v does not come by at %q; it comes by at %v\n%s", away, label, seen, words)
		}
	}

	if away && unlinked == 0 {
		t.Error("nothing aged")
	}

	s.recover()
	s.exact(c.emitted)
	return seen
}

// kills chooses where to die: at one instant of each label, and with LAGGARD_KILLS at
// others up to that many, or all there are.
func kills(seen map[string]int, random *rand.Rand, n int) []instant {
	var all []instant
	for label, count := range seen {
		from := 1
		if n == 0 {
			from = 1 + random.IntN((count+1)/2) // it comes by about as often in every run
			count = from
		}

		for k := from; k <= count; k++ {
			all = append(all, instant{label, k, false}, instant{label, k, true})
		}
	}

	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var first, more []instant // the first of a label is before the call or after it, as it comes
	done := map[string]bool{}
	for _, i := range all {
		if done[i.label] {
			more = append(more, i)
		} else {
			first, done[i.label] = append(first, i), true
		}
	}

	if n == 0 {
		return first
	}

	return append(first, more[:min(max(n-len(first), 0), len(more))]...)
}

// killed kills an agent at an instant, if it comes there, and holds that the next one makes it
// whole; d is how long that took from its start, 0 where nothing was left.
func (c *leftovers) killed(t *testing.T, away bool, at instant) (died bool, d time.Duration) {
	s := c.stage(t, away)
	left := at.n
	ws, _ := s.traced(func(call *sysCall) int {
		if call.changes() && call.done == at.after && s.label(call) == at.label {
			if left--; left == 0 {
				return kill
			}
		}

		return goOn
	})
	d = s.recover()
	s.exact(c.emitted)
	return ws.Signaled() && ws.Signal() == syscall.SIGKILL, d
}

// TestKilledAtEverySystemCall is R2: SIGKILL of the real agent between any two system
// calls that change a file (drain, rotate, checkpoint, ageing and ship alike), with
// and without a store; the next agent goes on, nothing is lost, nothing stands twice.
// The points are the calls themselves, so none can be forgotten. LAGGARD_KILLS sets
// how many; without it there is one a label, with the store or without.
func TestKilledAtEverySystemCall(t *testing.T) {
	t.Parallel()
	n := chaosSetting(t, "LAGGARD_KILLS", 0)
	seed := chaosSetting(t, "LAGGARD_SEED", int(time.Now().UnixNano()&0xffffff))
	random := rand.New(rand.NewPCG(uint64(seed), 2))
	c := newLeftovers(t, 30, "--cap", "400KB", "--segment-size", "64KiB")
	var took []time.Duration
	killed := map[string]int{}
	t.Run("kills", func(t *testing.T) {
		for _, away := range []bool{false, true} {
			seen := c.count(t, away)
			chosen := slices.DeleteFunc(kills(seen, random, n/2), func(at instant) bool { return n == 0 && killed[at.label] > 0 })
			t.Logf("LAGGARD_SEED=%d, store away=%v: %d kills at %d labels: %v", seed, away, len(chosen), len(seen), seen)
			for _, at := range chosen {
				t.Run(fmt.Sprintf("away=%v/%v", away, at), func(t *testing.T) {
					died, d := c.killed(t, away, at)
					if !died && n == 0 { // this run came by less often
						at.n = 1
						died, d = c.killed(t, away, at)
					}

					if died {
						killed[at.label]++
					}

					if died && d > 0 {
						took = append(took, d)
					}
				})
			}
		}
	})
	total := 0
	for _, k := range killed {
		total += k
	}

	slices.Sort(took)
	if len(took) == 0 {
		t.Fatal("no kill left anything to recover")
	}

	t.Logf("%d kills at %d labels; from the start of the next agent until all rings were drained: %v median, %v most",
		total, len(killed), took[len(took)/2], took[len(took)-1])
	for _, away := range []bool{false, true} {
		for _, label := range instants[away] {
			if killed[label] == 0 {
				t.Errorf("no agent was killed at %q", label)
			}
		}
	}
}
