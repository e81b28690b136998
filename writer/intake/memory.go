package intake

import (
	"os"
	"runtime/debug"

	"github.com/laggard-dev/laggard/writer/ship"
)

// garbage is how many percent of what is live a follower's process lets become garbage
// before it is collected. Nearly all that is live are packed rows, which hold no
// pointers, so a collection is over in a millisecond or two.
const garbage = 25

// collectOften makes the process collect by garbage, unless its environment says GOGC, until
// what it returns is called.
func collectOften() func() {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(garbage)
	return func() { debug.SetGCPercent(before) }
}

// shareMemory makes Memory the ceiling of a process that lives as long as its host, and
// gives a quarter of it to the rows on their way: beside them there are the batch and
// the block that are being made, what the ranks have open, and bundles that wait for
// their next use; and there is garbage.
func shareMemory(o *ship.Options) {
	if o.Memory <= 0 {
		o.Memory = ship.DefaultMemory
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = o.Memory / 10
	}
	o.Memory /= 4
}
