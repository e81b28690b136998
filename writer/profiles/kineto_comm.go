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
	in, out          int64
	corr             uint64
	stream           uint64 // of the device, or thread of the host
}

// launch is a call that enqueued something.
type launch struct {
	corr, thread uint64
	interval
}

// kernel takes a kernel of the device: communication or work.
func (t *kinetoTrace) kernel(e *event, iv interval) {
	if !collectiveKernel(e.name) {
		t.work.add(iv.from, iv.to)
		return
	}
	if len(t.kernels) >= mostRanges {
		return
	}
	k := t.collective(e)
	k.interval = iv
	k.op = cmp.Or(k.op, string(e.name))
	k.corr, k.stream = uint64(max(number(e.arg("correlation"), 0), 0)), uint64(max(number(e.arg("stream"), 0), 0))
	t.kernels = append(t.kernels, k)
}

// collective reads what newer traces say of a collective.
func (t *kinetoTrace) collective(e *event) comm {
	c := comm{
		op: string(e.arg("Collective name")), group: string(e.arg("Process Group Name")), dtype: string(e.arg("dtype")),
		in: number(e.arg("In msg nelems"), 0), out: number(e.arg("Out msg nelems"), 0),
	}
	if c.group != "" && t.groups[c.group] == nil {
		t.member(c.group, string(e.arg("Process Group Description")), e.arg("Process Group Ranks"))
	}
	return c
}

// collectiveKernel reports whether a kernel is one of a collective library.
func collectiveKernel(name []byte) bool {
	for _, w := range []string{"ncclKernel", "ncclDevKernel", "rcclGenericKernel", "ncclGenericKernel", "mscclKernel", "hccl", "Hccl"} {
		if bytes.Contains(name, []byte(w)) {
			return true
		}
	}
	return false
}

// enqueue keeps what was said of a collective when it was enqueued.
func (t *kinetoTrace) enqueue(c comm, e *event) {
	if len(t.enqueued) < mostRanges {
		c.stream = threadOf(e)
		t.enqueued = append(t.enqueued, c)
	}
}

// threadOf returns a number for the thread of an event.
func threadOf(e *event) uint64 {
	if n := number(e.tid, -1); n >= 0 {
		return uint64(n)
	}
	return uint64(record.HashID(string(e.tid)))
}

// said returns what was said of the collective that was enqueued around a launch: the innermost
// range of the thread that tells something has the word.
func (t *kinetoTrace) said(l launch) (out comm) {
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
		out.in, out.out = max(out.in, c.in), max(out.out, c.out)
	}
	return out
}

// giveComms gives out Communication: with the launch, and with what was said when it was enqueued.
func (t *kinetoTrace) giveComms(rank *Rank, comms []comm, device bool) {
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
		if r.Op = record.BaseOp(raw); r.Op != raw {
			r.OpRaw = raw
		}
		r.Group = cmp.Or(c.group, said.group)
		r.Dtype = record.BaseDtype(cmp.Or(c.dtype, said.dtype))
		r.Count = max(c.in, c.out, said.in, said.out)
		r.Bytes = r.Count * int64(record.DtypeSize(r.Dtype))
		rank.Add(&r)
	}
}
