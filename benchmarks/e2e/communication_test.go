package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// callerSteps makes the test binary a trainer of so many steps whose Communication
// comes from a thread of its own, which starts callerDelay after the first step:
// callsOfStep calls in each step from then on. It says the calls on stdout.
const (
	callerSteps = "LAGGARD_TEST_CALLER"
	callerDelay = 200 * time.Millisecond
	callsOfStep = 32
)

func init() {
	if text := os.Getenv(callerSteps); text != "" {
		steps, err := strconv.Atoi(text)
		if err == nil {
			err = emitFromTwoThreads(steps)
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}
}

func emitFromTwoThreads(steps int) error {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		return err
	}
	defer r.Close()
	main := r.Thread()
	defer main.Close()
	op := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 1<<20, record.DtypeCode("bf16"))
	begun := time.Now()
	var caller *recorder.Thread
	calls := 0
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for step := range steps {
		whole := main.Step(int64(step), 0)
		forward := main.Begin(record.FP, recorder.Attr{})
		forward.End()
		if caller == nil && time.Since(begun) > callerDelay {
			caller = r.Thread() // a thread is a ring: which goroutine writes it is all the same
			defer caller.Close()
		}

		for range callsOfStep {
			if caller == nil {
				break
			}

			c := caller.Begin(record.Communication, op)
			c.End()
			calls++
		}

		<-pace.C
		whole.End()
	}

	fmt.Fprintf(os.Stderr, "calls=%d\n", calls)
	return nil
}

// slowDisk starts an agent whose every fsync and fdatasync takes 150 ms longer.
func (s *site) slowDisk(args ...string) *running {
	s.t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		s.t.Fatalf("%v: install Debian's package strace", err)
	}

	return s.startCommand(exec.Command(strace, append([]string{
		"-f", "-q", "-o", os.DevNull, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=150000", program,
	}, s.agentArguments(args...)...)...))
}

// TestCommunicationBesideSlowDisk: while the agent opens the first segment, which a slow
// disk makes long, a thread begins to communicate. Every call is in the windows,
// however raw ranges are stored; no step is closed before its communications; and
// audit, which compares calls, says equal.
func TestCommunicationBesideSlowDisk(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	for _, records := range []string{"light", "all"} {
		for _, store := range []string{"parquet:", "clickhouse:"} {
			t.Run(store+records, func(t *testing.T) {
				database := ""
				if store == "clickhouse:" {
					database = server.Database()
					store = server.Store(database)
				} else {
					store += filepath.Join(t.TempDir(), "store")
				}

				s := newSite(t, store)
				agent := s.slowDisk("--records", records, "--until-idle", "500ms")
				agent.says(`serving (metrics)`) // it looks for rings already
				trainer := s.trainer(callerSteps+"=200", "RANK=0", "WORLD_SIZE=1", "LAGGARD_JOB=j1")
				trainer.wait()
				made, err := strconv.ParseUint(trainer.says(`calls=(\d+)`), 10, 64)
				if err != nil {
					t.Fatal(err)
				}

				agent.wait()
				var calls, late uint64
				if database != "" {
					calls = server.Count("SELECT sum(calls) FROM " + database + ".communications")
					late = server.Count(fmt.Sprintf("SELECT countIf(bitAnd(flags, %d) > 0) FROM %s.steps", row.FlagLate, database))
				} else {
					dir := regexp.MustCompile(`^parquet:`).ReplaceAllString(store, "")
					each(t, dir, row.CommunicationsTable, func(r *row.Communication) { calls += uint64(r.Calls) })
					each(t, dir, row.StepsTable, func(r *row.Step) {
						if r.Flags&row.FlagLate != 0 {
							late++
						}
					})
				}

				t.Logf("%d calls made, %d in windows, %d steps late", made, calls, late)
				if calls != made || late > 0 {
					t.Errorf("%d calls made, %d in windows, %d steps were closed before something of theirs came", made, calls, late)
				}

				if report := audited(t, 0, s.dir, s.store); len(report.Dropped) > 0 {
					t.Errorf("dropped: %v", report.Dropped)
				}
			})
		}
	}
}
