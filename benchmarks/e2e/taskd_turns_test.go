package e2e

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTaskdProcessesOfARank: a trainer and its workers write one rank's directory in
// TaskD's format, in turns, while the agent is killed: every range of every process
// is accounted for.
func TestTaskdProcessesOfARank(t *testing.T) {
	t.Parallel()
	const processes, steps = 3, 700
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	s := newSite(t, "")
	flags := []string{"--format", "taskd", "--records", "all", "--segment-size", "1MiB"}
	agent := s.agent(flags...)
	emitters := make([]*running, processes)
	for i := range emitters {
		emitters[i] = s.emitter(0, 1, steps)
	}

	for range 4 {
		<-time.After(time.Duration(chance.IntN(1500)) * time.Millisecond)
		if err := agent.command.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		<-agent.done
		agent = s.agent(flags...)
	}

	for _, e := range emitters {
		e.wait()
	}

	agent.until("everything drained", func(m map[string]float64) bool { return m["laggard_recorders"] == 0 })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	want := emittedBy(processes, steps)
	got := outcomeOfParquet(t, strings.TrimPrefix(s.store, "parquet:"))
	for kind, n := range want {
		if got.emitted[kind] != n {
			t.Errorf("%s: emitted %d, the ledger says %d", kind, n, got.emitted[kind])
		}
	}

	report := audited(t, 0, s.dir, s.store)
	t.Logf("emitted %d = stored %d + dropped %v + in flight %d", report.Emitted, report.Stored, report.Dropped, report.InFlight)
	if report.Emitted != processes*steps*perStep {
		t.Errorf("emitted %d, accounted for %d", processes*steps*perStep, report.Emitted)
	}

	// TaskD's lines say no end: of each process the last step waits for the next one.
	if report.InFlight > 2*processes*perStep {
		t.Errorf("%d in flight", report.InFlight)
	}
}
