package ringtest

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Side is one of the ways that Compare measures.
type Side struct {
	Name   string
	Do     func(n int) // does it n times
	Before func()      // not measured, before each round; may be nil
}

// Cost is what one time of a side costs, in ns of its thread's CPU time.
type Cost struct{ Least, Median, Most float64 }

// Compare measures sides in turns, rounds times n each, and logs them. CPU time of
// one thread is not touched by what else wants the machine, but caches are: Least is
// the figure to compare by, the others are its spread.
func Compare(b *testing.B, rounds, n int, sides ...Side) map[string]Cost {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([][]float64, len(sides))
	for range rounds {
		for i, s := range sides {
			for _, measured := range []bool{false, true} { // the first warms the caches
				if s.Before != nil {
					s.Before()
				}

				began := threadTime()
				s.Do(n)
				if measured {
					took[i] = append(took[i], float64(threadTime()-began)/float64(n))
				}
			}
		}
	}

	all := make(map[string]Cost, len(sides))
	for i, s := range sides {
		slices.Sort(took[i])
		c := Cost{took[i][0], took[i][rounds/2], took[i][rounds-1]}
		all[s.Name] = c
		b.Logf("%-14s %9.2f ns (median %.2f, most %.2f)", s.Name, c.Least, c.Median, c.Most)
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
