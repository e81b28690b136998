package record

import (
	"cmp"
	"slices"
	"strings"
)

// baseOps are the base words, in the order in which they are looked for in a
// longer one: a word stands before those it contains.
var baseOps = [...]string{
	"reducescatter", "allreduce", "allgather", "alltoall", "sendrecv", "broadcast",
	"barrier", "scatter", "gather", "reduce", "send", "recv",
}

// vendors are prefixes of collective libraries.
var vendors = [...]string{"hccl", "nccl", "rccl", "lccl", "cncl", "mccl", "xccl", "ccl", "gloo", "mpi", "ucc", "c10d"}

// trims are endings that say how, not what.
var trims = [...]string{
	"vc", "v", "base", "intotensor", "tensor", "single", "coalesced", "objectlist", "object",
	"async", "start", "out", "multigpu", "uneven", "inplace",
}

// spelled are the words that no rule gives.
var spelled = map[string]string{
	"isend": "send", "sendobject": "send",
	"irecv": "recv", "recvobject": "recv", "recvanysource": "recv", "receive": "recv",
	"batchisendirecv": "sendrecv", "batchsendrecv": "sendrecv", "isendirecv": "sendrecv",
	"monitoredbarrier": "barrier", "allbarrier": "barrier", "ibarrier": "barrier",
	"bcast": "broadcast", "broadcastobjects": "broadcast",
	"alltoallvc": "alltoall", "alltoallw": "alltoall",
	"ireduce": "reduce", "iallgather": "allgather",
	"iallreduce": "allreduce", "allreducesparse": "allreduce",
}

// BaseOp returns the base word of a collective or point-to-point operation as a
// library spells it: "HcclAllreduce", "ncclAllReduce", "all_reduce" give
// "allreduce", "_all_gather_base" gives "allgather", "batch_isend_irecv" gives
// "sendrecv". What is none of the base words of FORMAT.md stays as it is, in lower
// case. It allocates nothing for a base word.
func BaseOp(raw string) string {
	if w := baseOf(raw); w != "" {
		return w
	}

	word := squeeze(raw)
	kernel := false
	for _, v := range vendors {
		if rest, ok := strings.CutPrefix(word, v); ok && rest != "" {
			word, kernel = rest, true
			break
		}
	}

	// Endings come several in a row: "allgatherintotensorcoalesced".
	for w := word; ; {
		if b := cmp.Or(baseOf(w), spelled[w]); b != "" {
			return b
		}

		short := trim(w)
		if short == w {
			break
		}

		w = short
	}

	if kernel { // a kernel's name goes on: ncclDevKernel_AllReduce_Sum_f32_RING_LL
		for _, w := range baseOps {
			if strings.Contains(word, w) {
				return w
			}
		}
	}

	return strings.ToLower(raw)
}

// baseOf returns the base word equal to w, "" when there is none.
func baseOf(w string) string {
	if i := slices.Index(baseOps[:], w); i >= 0 {
		return baseOps[i]
	}

	return ""
}

// trim takes one of trims off the end of a word; what is nothing but such an ending stays.
func trim(w string) string {
	for _, t := range trims {
		if s, ok := strings.CutSuffix(w, t); ok && s != "" {
			return s
		}
	}

	return w
}

// squeeze keeps the letters and digits of s, in lower case: libraries differ in capitals
// and underscores alone.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r | 0x20
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}

		return -1
	}, s)
}
