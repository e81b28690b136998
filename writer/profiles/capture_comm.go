package profiles

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// comm is a communication: a kernel, a range on the host, or what was said of one when it was
// enqueued.
type comm struct {
	interval
	op, group, dtype string
	count            int64 // elements, of what goes in or comes out the more
	corr             uint64
	stream           uint64 // of the device, or thread of the host
}

// launch is a call that enqueued something.
type launch struct {
	corr, thread uint64
	interval
}

// collectiveKernels are words in the names of kernels that wait for other ranks: those of NCCL (since
// 2.27 with kernels for symmetric memory), RCCL, MSCCL and HCCL, which say what they do behind it; and
// with what they do those of symmetric memory in PyTorch, and of vLLM's own all-reduce.
var collectiveKernels = []struct {
	word []byte
	op   string
}{
	{[]byte("ncclKernel"), ""},
	{[]byte("ncclDevKernel"), ""},
	{[]byte("ncclSymDevKernel"), ""},
	{[]byte("ncclSymkDevKernel"), ""},
	{[]byte("ncclGenericKernel"), ""},
	{[]byte("rcclGenericKernel"), ""},
	{[]byte("mscclKernel"), ""},
	{[]byte("hccl"), ""},
	{[]byte("Hccl"), ""},
	{[]byte("cross_device_reduce"), "allreduce"},
	{[]byte("one_shot_all_reduce"), "allreduce"},
	{[]byte("two_shot_all_reduce"), "allreduce"},
	{[]byte("multimem_all_reduce"), "allreduce"},
	{[]byte("multimem_one_shot_all_reduce"), "allreduce"},
	{[]byte("multimem_all_gather"), "allgather"},
}

// collectiveKernel reports whether a kernel is a collective, and what it is called where its own name
// doesn't say which.
func collectiveKernel(name []byte) (op string, ok bool) {
	for i := range collectiveKernels {
		if k := &collectiveKernels[i]; bytes.Contains(name, k.word) {
			return cmp.Or(k.op, string(name)), true
		}
	}

	return "", false
}

// setOp sets the operation of a communication, which is called raw where it was recorded.
func setOp(r *record.Record, raw string) {
	if r.Op = record.BaseOp(raw); r.Op != raw {
		r.OpRaw = raw
	}
}

// said returns what was said of the collective that was enqueued around a launch: the innermost
// range of the thread that tells something has the word. enqueued is sorted by thread and start, so
// the ranges around a launch stand just before it.
func (t *capture) said(l launch) (out comm) {
	const deepest = 4
	i, _ := slices.BinarySearchFunc(t.enqueued, l, func(c comm, l launch) int {
		return cmp.Or(cmp.Compare(c.stream, l.thread), cmp.Compare(c.from, l.from+1))
	})
	for k := i - 1; k >= max(0, i-deepest) && t.enqueued[k].stream == l.thread; k-- {
		c := &t.enqueued[k]
		if c.to < l.from {
			continue
		}

		out.op, out.group, out.dtype = cmp.Or(out.op, c.op), cmp.Or(out.group, c.group), cmp.Or(out.dtype, c.dtype)
		out.count = max(out.count, c.count)
	}

	return out
}

// giveComms gives out Communication: with the launch, and with what was said when it was enqueued.
func (t *capture) giveComms(rank *rankOutput, comms []comm, device bool) {
	slices.SortStableFunc(comms, func(a, b comm) int { return cmp.Compare(a.from, b.from) })
	slices.SortStableFunc(t.launches, func(a, b launch) int { return cmp.Compare(a.corr, b.corr) })
	slices.SortStableFunc(t.enqueued, func(a, b comm) int { return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.from, b.from)) })
	intervals := make([]interval, len(comms))
	for i := range comms {
		intervals[i] = comms[i].interval
	}

	work := &t.ops
	if device {
		work = &t.work
	}

	exposed := work.exposed(intervals)
	rank.ranges = slices.Grow(rank.ranges, len(comms)+len(t.host)+len(t.device))
	for i := range comms {
		c := &comms[i]
		r := record.New(record.Communication)
		r.Start, r.Dur, r.Exposed, r.Thread = c.from+t.base, c.to-c.from, exposed[i], c.stream
		var said comm
		if device {
			r.Side = record.Device
			if l, ok := slices.BinarySearchFunc(t.launches, c.corr, func(l launch, corr uint64) int { return cmp.Compare(l.corr, corr) }); ok && c.corr != 0 {
				r.HostStart, r.HostDur = t.launches[l].from+t.base, t.launches[l].to-t.launches[l].from
				said = t.said(t.launches[l])
			}
		}

		raw, _, _ := strings.Cut(cmp.Or(said.op, c.op), "(") // a kernel's parameters
		setOp(&r, raw)
		r.Group = cmp.Or(c.group, said.group)
		r.Dtype = record.BaseDtype(cmp.Or(c.dtype, said.dtype))
		r.Count = max(c.count, said.count)
		r.Bytes = r.Count * int64(record.DtypeSize(r.Dtype))
		rank.Add(&r)
	}
}
