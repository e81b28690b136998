package recorder_test

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// side is one of the ways that compare measures.
type side struct {
	name   string
	do     func(n int) // does it n times
	before func()      // not measured, before each round; may be nil
}

// cost is what one time of a side costs, in ns of its thread's CPU time.
type cost struct{ least, median, most float64 }

// compare measures sides in turns, rounds times n each, and logs them. CPU time of
// one thread is not touched by what else wants the machine, but caches are: least is
// the figure to compare by, the others are its spread.
func compare(b *testing.B, rounds, n int, sides ...side) map[string]cost {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([][]float64, len(sides))
	for range rounds {
		for i, s := range sides {
			for _, measured := range []bool{false, true} { // the first warms the caches
				if s.before != nil {
					s.before()
				}

				began := threadTime()
				s.do(n)
				if measured {
					took[i] = append(took[i], float64(threadTime()-began)/float64(n))
				}
			}
		}
	}

	all := make(map[string]cost, len(sides))
	for i, s := range sides {
		slices.Sort(took[i])
		c := cost{took[i][0], took[i][rounds/2], took[i][rounds-1]}
		all[s.name] = c
		b.Logf("%-14s %9.2f ns (median %.2f, most %.2f)", s.name, c.least, c.median, c.most)
	}

	return all
}

// threadTime is the CPU time of the calling thread, ns.
func threadTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic("BUG: no CPU clock: " + err.Error()) // Linux has it
	}

	return ts.Nano()
}
