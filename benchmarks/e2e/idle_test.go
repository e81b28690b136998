package e2e

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// stays fails the test when the process ends within a while: that nothing happens takes
// time to see.
func (r *running) stays(while time.Duration) {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.t.Fatalf("%v: left, %v\n%s", r.command.Args[1:], err, r.words)
	case <-time.After(while):
	}
}

// killed ends the process as the kernel does it to one that is too large.
func (r *running) killed() {
	r.t.Helper()
	if err := r.command.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}

	<-r.done
}

// drainedAll reports whether the records of so many steps have left the rings.
func drainedAll(steps int) func(map[string]float64) bool {
	return func(m map[string]float64) bool {
		return m["laggard_recorders"] == 0 && m[`laggard_records_drained_total{kind="`+record.Step.String()+`"}`] == float64(steps)
	}
}

// TestUntilIdleAfterRestart: an agent with --until-idle that takes over from one that was
// killed, the rings drained, stays while a trainer lives, however silent; where the
// trainers have gone it ships what is left and ends well; and an agent that was not
// killed leaves nothing behind that would make the next one leave before its job begins.
func TestUntilIdleAfterRestart(t *testing.T) {
	t.Parallel()
	const steps = 400
	flags := []string{"--records", "all", "--until-idle", "300ms"}
	t.Run("trainer lives", func(t *testing.T) {
		s := newSite(t, "")
		trainer := s.emitter(0, 1, steps)
		agent := s.agent("--records", "all", "--until-idle", "1h")
		agent.until("a first record", func(m map[string]float64) bool { return m[`laggard_records_drained_total{kind="Step"}`] > 0 })
		if err := trainer.command.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}

		last, same := 0.0, 0
		agent.until("drained rings", func(m map[string]float64) bool {
			if n := m[`laggard_records_drained_total{kind="Communication"}`]; n != last {
				last, same = n, 0
			} else {
				same++
			}

			return same > 20 // more than a pass
		})
		agent.killed()
		agent = s.agent(flags...)
		agent.until("the trainer", func(m map[string]float64) bool { return m["laggard_recorders"] == 1 })
		agent.stays(3 * time.Second)
		if err := trainer.command.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}

		trainer.wait()
		agent.wait()
		if stored := storedOnce(t, s.store); stored["Step"] != steps || stored["Communication"] != steps*emitterCalls {
			t.Errorf("stored %v", stored)
		}

		next := s.agent(flags...)
		next.stays(3 * time.Second)
	})
	t.Run("trainers gone", func(t *testing.T) {
		s := newSite(t, "")
		agent := s.agent("--records", "all", "--until-idle", "1h")
		s.emitter(0, 1, steps).wait()
		agent.until(strconv.Itoa(steps)+" steps", drainedAll(steps))
		agent.killed()
		s.agent(flags...).wait()
		if stored := storedOnce(t, s.store); stored["Step"] != steps || stored["Communication"] != steps*emitterCalls {
			t.Errorf("stored %v", stored)
		}

		next := s.agent(flags...)
		next.stays(3 * time.Second)
	})
}
