package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
)

// emitterSteps makes the test binary a trainer that records so many steps, each of
// one Step, one FP, one DataLoader and emitterCalls Communication ranges.
const (
	emitterSteps = "LAGGARD_TEST_EMITTER"
	emitterCalls = 97
	perStep      = emitterCalls + 3
)

func init() {
	if text := os.Getenv(emitterSteps); text != "" {
		steps, err := strconv.Atoi(text)
		if err == nil {
			err = emitSteps(steps)
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}
}

// emitSteps records 12,500 ranges a second: more than twice a busy rank, and little
// enough for an agent under the race detector on a busy machine.
func emitSteps(steps int) error {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		return err
	}
	defer r.Close()
	t := r.Thread()
	defer t.Close()
	op := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 1<<20, record.DtypeCode("bf16"))
	pace := time.NewTicker(40 * time.Millisecond)
	defer pace.Stop()
	for step := range steps {
		if step%5 == 4 {
			<-pace.C
		}

		whole := t.Step(int64(step), 0)
		load := t.Begin(record.DataLoader, recorder.Attr{})
		load.End()
		forward := t.Begin(record.FP, recorder.Attr{})
		forward.End()
		for range emitterCalls {
			c := t.Begin(record.Communication, op)
			c.End()
		}

		whole.End()
	}

	if lost := r.Lost(); lost != ([record.KindCount]uint64{}) || r.Err() != nil {
		return fmt.Errorf("ranges without a ring, by kind: %v; %w", lost, cmp.Or(r.Err(), errors.New("recording is on")))
	}

	return nil
}
