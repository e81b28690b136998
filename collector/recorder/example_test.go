package recorder_test

import (
	"fmt"
	"os"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
)

// A training loop records its steps and, in them, the forward passes. Environment reads
// rank, job and node from the variables that launchers set; Open finds the ring directory
// in LAGGARD_RUN.
func Example() {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	t := r.Thread() // one for each goroutine that records
	defer t.Close()
	// A collective names what it moves: how many elements of which type, in which group.
	gradients := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 1<<20, record.DtypeCode("bf16"))
	for n := range int64(3) {
		step := t.Step(n, 4096) // tokens of this rank's batch, 0 where unknown
		forward := t.Begin(record.FP, recorder.Attr{})
		// … the forward pass …
		forward.End()
		reduce := t.Begin(record.Communication, gradients)
		// … the collective …
		reduce.End()
		step.End()
	}

	lost := r.Lost()
	fmt.Println("lost:", lost[record.Step]+lost[record.FP]+lost[record.Communication])
	// Output: lost: 0
}
