package intake

import (
	"cmp"
	"os"
	"runtime/debug"

	"github.com/laggard-dev/laggard/writer/ship"
)

// garbage is how many percent of what is live a follower's process lets become garbage
// before it is collected. Nearly all that is live are raw rows, which hold no
// pointers, so a collection is over in a millisecond or two.
const garbage = 25

// collectOften makes the garbage collector go by garbage, unless the environment says GOGC, until
// what it returns is called.
func collectOften() func() {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}

	before := debug.SetGCPercent(garbage)
	return func() { debug.SetGCPercent(before) }
}

// Overhead is what a process of this package takes beside Options.Ship.Memory: code and
// stacks, the buffers of open files, two decoders, and garbage. OverheadRank comes on
// top for each rank directory: what is kept of its processes, groups, steps and words.
const (
	Overhead     = 96 << 20
	OverheadRank = 128 << 10
)

// limitMemory makes the garbage collector keep the process within memory and the overheads of so
// many ranks, unless its environment says GOMEMLIMIT, until what it returns is called.
// Code and stacks are half of the Overhead.
func limitMemory(memory int64, ranks int) (restore func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}

	before := debug.SetMemoryLimit(memory + Overhead/2 + int64(ranks)*OverheadRank)
	return func() { debug.SetMemoryLimit(before) }
}

// shareMemory makes Memory, or what it is otherwise, the ceiling of a process, and gives a quarter of
// it to the rows on their way: beside them there are the batch and the block that are being made,
// what the ranks have open, and bundles that wait for their next use; and there is garbage. It
// returns the ceiling.
func shareMemory(o *ship.Options, otherwise int64) (memory int64) {
	memory = cmp.Or(max(o.Memory, 0), otherwise)
	o.Memory = memory / 4
	return memory
}
