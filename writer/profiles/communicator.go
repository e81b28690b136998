package profiles

import (
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// onlyGroup is what the one communicator of a process is called where the trace has no name for it:
// PyTorch's own word for the group of all ranks.
const onlyGroup = "default_pg"

const (
	// glooThreads run the collectives of one process group of gloo, and of no other.
	glooThreads = 2
	// mostLanes bounds the threads, streams and groups that are told apart.
	mostLanes = 256
	// nearby is how far apart the numbers of a process's threads lie, unless the system began
	// with small numbers again in between.
	nearby = 1 << 14
)

// nameCommunicators names the communicator of collectives that the trace calls by their operation
// alone, as far as it can be known for certain: a process that has one has no other. Gloo makes two
// threads for each process group when that is made, so the groups that the trace lists are told by
// their threads; NCCL in PyTorch of that age has a stream for each. What stays without a name is of
// one of several communicators, and nobody can tell which.
func (t *capture) nameCommunicators() {
	threads := glooThreads
	if slices.ContainsFunc(t.blocking, func(c comm) bool { return !strings.HasPrefix(c.op, "gloo:") }) {
		threads = 0 // how MPI and UCC run them isn't known
	}

	t.nameLanes(t.blocking, threads)
	if !slices.ContainsFunc(t.enqueued, func(c comm) bool { return c.group != "" }) { // the launch names them
		t.nameLanes(t.kernels, 1)
	}
}

// nameLanes names the communicator of calls, each of which runs them on so many lanes: threads or streams.
func (t *capture) nameLanes(calls []comm, each int) {
	var lanes []uint64
	for i := range calls {
		c := &calls[i]
		if c.group != "" {
			return // the trace names them
		}

		if at, known := slices.BinarySearch(lanes, c.stream); !known && !pointToPoint(c.op) {
			if len(lanes) == mostLanes {
				return
			}

			lanes = slices.Insert(lanes, at, c.stream)
		}
	}

	of := func(*comm) string { return "" }
	switch n := len(t.configured); {
	case n == 1:
		of = func(*comm) string { return t.configured[0] }
	case n == 0 && len(lanes) <= each:
		of = func(*comm) string { return onlyGroup }
	case each == glooThreads && len(lanes) == each*n && lanes[len(lanes)-1]-lanes[0] < nearby:
		of = func(c *comm) string {
			i, _ := slices.BinarySearch(lanes, c.stream)
			return t.configured[i/each]
		}
	}

	for i := range calls {
		if c := &calls[i]; !pointToPoint(c.op) {
			c.group = of(c)
		}
	}
}

// pointToPoint reports whether an operation is one of two ranks, which gloo runs on the caller's thread.
func pointToPoint(op string) bool {
	base := record.BaseOp(op)
	return base == "send" || base == "recv" || base == "sendrecv"
}
