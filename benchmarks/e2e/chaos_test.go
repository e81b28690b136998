package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ledger"
)

// chaosSetting reads a number from the environment, for the long form.
func chaosSetting(t *testing.T, name string, short int) int {
	t.Helper()
	n := short
	if text := os.Getenv(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	return n
}

// chaos is a fleet of one node to which things happen.
type chaos struct {
	t      *testing.T
	r      *rand.Rand
	s      *site
	server *chtest.Server
	agent  *running
	flags  []string
	did    map[string]int
	most   int64 // the agent's largest resident set, in KiB
}

// chaosSteps are those of one process: some 16 s.
const chaosSteps = 2000

// TestChaos is R30: the real agent and the real server, with kills and outages of
// both at random, for LAGGARD_CHAOS_SECONDS (15 by default; make soak-chaos takes
// an hour) of LAGGARD_CHAOS_RANKS trainers. Afterwards the store is what files and
// ledger say, and every record that the trainers emitted is accounted for.
func TestChaos(t *testing.T) {
	t.Parallel()
	length := time.Duration(chaosSetting(t, "LAGGARD_CHAOS_SECONDS", 15)) * time.Second
	ranks := chaosSetting(t, "LAGGARD_CHAOS_RANKS", 2)
	seed := chaosSetting(t, "LAGGARD_TEST_SEED", int(time.Now().UnixNano()&0xffffff))
	t.Logf("scale: %s, %d ranks of 12,500 records a second, LAGGARD_TEST_SEED=%d", length, ranks, seed)
	server := chtest.Start(t)
	database := server.Database()
	c := &chaos{
		t: t, r: rand.New(rand.NewPCG(uint64(seed), 30)), s: newSite(t, server.Store(database)), server: server, did: map[string]int{},
		flags: []string{"--records", "all", "--cap", "100MB", "--segment-size", "2MiB", "--grace", "5s"},
	}
	c.agent = c.s.agent(c.flags...)
	emitters := make([]*running, ranks)
	for rank := range emitters {
		emitters[rank] = c.s.emitter(rank, ranks, chaosSteps)
	}

	emitted := uint64(0)
	// ended reports whether a rank's trainer has left, and counts what it emitted.
	ended := func(e *running, wait <-chan time.Time) bool {
		select {
		case err := <-e.done:
			if err != nil {
				t.Fatalf("emitter: %v\n%s", err, e.words)
			}

			emitted += chaosSteps * perStep
			return true
		case <-wait:
			return false
		}
	}
	said := time.Now()
	for deadline := time.Now().Add(length); time.Now().Before(deadline); {
		for rank, e := range emitters {
			if ended(e, time.After(50*time.Millisecond)) {
				emitters[rank] = c.s.emitter(rank, ranks, chaosSteps)
			}
		}

		c.something()
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.Logf("%s to go: %v, agent %d MiB at most", time.Until(deadline).Round(time.Second), c.did, c.most>>10)
		}
	}

	// Quiet: one more kill, then everything comes to its end. The last agent must see
	// recorders, or it would wait for the first one.
	for rank, e := range emitters {
		if ended(e, time.After(50*time.Millisecond)) {
			emitters[rank] = c.s.emitter(rank, ranks, chaosSteps)
		}
	}

	c.restart(syscall.SIGKILL, append(c.flags, "--until-idle", "2s")...)
	for _, e := range emitters {
		if !ended(e, time.After(patience)) {
			t.Fatalf("an emitter does not end:\n%s", e.words)
		}
	}

	select {
	case err := <-c.agent.done:
		if err != nil {
			t.Fatalf("agent: %v\n%s", err, c.agent.words)
		}
	case <-time.After(5 * patience):
		t.Fatalf("the agent does not come to its end:\n%s", c.agent.words)
	}

	t.Logf("%v, agent %d MiB at most", c.did, c.most>>10)
	c.close(database, emitted)
}

// something waits for a moment and lets a thing happen, or nothing.
func (c *chaos) something() {
	pause := func(most time.Duration) { <-time.After(time.Duration(c.r.Int64N(int64(most)))) }
	pause(3 * time.Second)
	c.watch()
	switch dice := c.r.IntN(20); {
	case dice < 6:
		c.did["agent killed"]++
		c.restart(syscall.SIGKILL, c.flags...)
	case dice < 8:
		c.did["agent stopped"]++
		c.restart(syscall.SIGTERM, c.flags...)
	case dice < 12:
		c.did["server killed"]++
		c.server.Kill()
		pause(500 * time.Millisecond)
		c.server.Launch()
	case dice < 13:
		c.did["server away"]++
		c.server.Kill()
		pause(30 * time.Second)
		c.server.Launch()
	case dice < 15:
		c.did["server stalled"]++
		c.server.Signal(syscall.SIGSTOP)
		pause(5 * time.Second)
		c.server.Signal(syscall.SIGCONT)
	}
}

// restart ends the agent by a signal and starts the next one.
func (c *chaos) restart(how syscall.Signal, flags ...string) {
	c.t.Helper()
	if err := c.agent.command.Process.Signal(how); err != nil {
		c.t.Fatalf("signal agent: %v\n%s", err, c.agent.words)
	}

	select {
	case <-c.agent.done:
	case <-time.After(patience):
		c.t.Fatalf("the agent does not leave:\n%s", c.agent.words)
	}

	c.agent = c.s.agent(flags...)
}

// watch notes the agent's memory, and that it lives.
func (c *chaos) watch() {
	c.t.Helper()
	select {
	case err := <-c.agent.done:
		c.t.Fatalf("the agent left by itself: %v\n%s", err, c.agent.words)
	default:
	}

	kib, err := chtest.Memory(c.agent.command.Process.Pid, "VmRSS")
	if err != nil {
		c.t.Fatal(err)
	}

	c.most = max(c.most, kib)
}

// close holds the account: store = files and ledgers, and every record that the
// trainers emitted is in it.
func (c *chaos) close(database string, emitted uint64) {
	t := c.t
	c.server.Await()
	report := audited(t, 0, c.s.dir, c.s.store)
	t.Logf("emitted %d = stored %d + summarised %d + aged %d + dropped %v + in flight %d",
		emitted, report.Stored, report.Summarised, report.Aged, report.Dropped, report.InFlight)
	if report.Emitted != emitted {
		t.Errorf("emitted %d, accounted for %d", emitted, report.Emitted)
		c.missing(database)
	}

	table := database + ".records"
	// An hour's rows don't fit into the server's memory as one set.
	const parts = 32
	var different uint64
	for i := range parts {
		different += c.server.Count(fmt.Sprintf("SELECT uniqExact(segment, offset) FROM %s WHERE segment %% %d = %d", table, parts, i))
	}

	if rows := c.server.Count("SELECT count() FROM " + table); rows != different {
		t.Errorf("%d rows, %d of them different", rows, different)
	}
}

// missing names the processes whose records are not all accounted for.
func (c *chaos) missing(database string) {
	found := map[record.ID]map[string]uint64{} // process → what became of its records
	owner := map[uint64]record.ID{}            // of segments
	add := func(process record.ID, what string, n uint64) {
		if found[process] == nil {
			found[process] = map[string]uint64{}
		}

		found[process][what] += n
		found[process]["in all"] += n
	}
	rows, err := c.server.Conn(database).Query(c.t.Context(), "SELECT segment, incarnation, count() FROM records GROUP BY segment, incarnation")
	if err != nil {
		c.t.Fatal(err)
	}

	for rows.Next() {
		var segment, process, n uint64
		if err := rows.Scan(&segment, &process, &n); err != nil {
			c.t.Fatal(err)
		}

		owner[segment] = record.ID(process)
		add(record.ID(process), "stored", n)
	}

	if _, err := ledger.Read(c.s.dir, func(l row.Ledger) error {
		owner[uint64(l.Segment)] = l.Incarnation
		if l.State == "aged" || l.State == "dropped" {
			add(l.Incarnation, l.State+" "+l.Reason, l.Records)
		}

		return nil
	}); err != nil {
		c.t.Fatal(err)
	}

	most := map[string]row.Ledger{} // of the store's entries of one thing the one that covers most
	rows, err = c.server.Conn(database).Query(c.t.Context(), "SELECT segment, name, state, reason, kind, records, last_offset FROM ledger WHERE batch = '' AND state IN ('dropped', 'aged') AND incarnation = 0")
	if err != nil {
		c.t.Fatal(err)
	}

	for rows.Next() {
		var l row.Ledger
		if err := rows.Scan(&l.Segment, &l.Name, &l.State, &l.Reason, &l.Kind, &l.Records, &l.LastOffset); err != nil {
			c.t.Fatal(err)
		}

		if k := fmt.Sprint(l.Segment, l.State, l.Reason, l.Kind); l.LastOffset >= most[k].LastOffset {
			most[k] = l
		}
	}

	for _, l := range most {
		add(owner[uint64(l.Segment)], l.State+" "+l.Reason, l.Records)
	}

	for process, n := range found {
		if n["in all"] != chaosSteps*perStep {
			c.t.Logf("process %s of %d records: %v", process, chaosSteps*perStep, n)
		}
	}
}
