package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// transfer is a range of communication, ns of the host's clock since the job's start.
type transfer struct {
	from, to int64
	column   int // dimension, up to dimOther
}

// slotInfo says what a slot's records look like.
var slotInfo = [slots]struct {
	op  string
	dim int // of the group
}{
	slotLoad:   {"broadcast", dimTP},
	slotTP:     {"allreduce", dimTP},
	slotCP:     {"allgather", dimCP},
	slotEP:     {"alltoall", dimEP},
	slotSend:   {"send", dimPP},
	slotRecv:   {"recv", dimPP},
	slotGrad:   {"allreduce", dimDP},
	slotGather: {"allgather", dimDP},
	slotEmbd:   {"allreduce", dimEmbd},
	slotNorm:   {"allreduce", dimWorld},
	slotSave:   {"barrier", dimWorld},
}

// elements of one call, bf16: 8 MiB. Sizes are no part of the model, so all calls have one.
const elements = 1 << 22

// groupOf returns the index of rank i's group in a slot, -1 where it has none.
func (l *layout) groupOf(i, slot int) int { return l.at[i].groups[slotInfo[slot].dim] }

// column is the dimension as which a transfer of rank i in a slot is counted.
func (j *job) column(i, slot int) int {
	if j.unknownGroup(i, slot) {
		return dimOther
	}

	return min(slotInfo[slot].dim, dimOther)
}

// unknownGroup reports whether nothing tells what rank i's group in a slot is for: no identity,
// and no topology file, which knows the names of the last attempt's groups.
func (j *job) unknownGroup(i, slot int) bool {
	return j.cfg.Record.NoGroups && !slices.Contains(j.inTopology[j.lay.groups[j.lay.groupOf(i, slot)].name], i)
}

// op is the base word of a slot's operation in this job.
func (j *job) op(slot int) string {
	if slot == slotGrad && j.cfg.Model.Sharded {
		return "reducescatter"
	}

	return slotInfo[slot].op
}

// communicated notes one range of communication of rank i, of which the last
// exposed ns blocked it. peer is the other's stage, -1 in a collective.
func (j *job) communicated(i, slot int, from, to, exposed float64, peer int) {
	r := &j.r[i]
	if r.drop || j.off[record.Communication] {
		return
	}

	a, b := j.tick(i, from), j.tick(i, to)
	blocked := b - j.tick(i, to-exposed)
	r.out.ExposedNs = max(0, r.out.ExposedNs) + blocked
	if j.inBackward && j.cfg.Record.Backward && slotInfo[slot].dim != dimPP { // a column of backward is work, not the waits in it
		r.out.BackwardNs -= blocked
	}

	r.transfers = append(r.transfers, transfer{a, b, j.column(i, slot)})
	s := &r.sums[slot]
	if s.Calls == 0 || b-a < s.MinNs {
		s.MinNs = b - a
	}

	if s.Calls == 0 || s.StepTo != uint64(j.step) {
		s.Steps, s.StepTo = s.Steps+1, uint64(j.step)
	}

	s.Calls, s.TotalNs, s.MaxNs = s.Calls+1, s.TotalNs+b-a, max(s.MaxNs, b-a)
	j.note(record.Communication, i, a, b, func(x *record.Record) {
		x.Op, x.Group, x.Peer, x.Exposed = j.op(slot), j.lay.groups[j.lay.groupOf(i, slot)].name, int32(peer), blocked
		if slot != slotSave {
			x.Count, x.Dtype, x.Bytes = elements, "bf16", 2*elements
		}
	})
}

// note records a range where rank i's are recorded one by one; more fills in what its kind adds, nil
// for nothing.
func (j *job) note(k record.Kind, i int, from, to int64, more func(x *record.Record)) {
	if j.rec == nil || j.rec.ranks[i].w == nil {
		return
	}

	x := record.New(k)
	x.Step, x.Start, x.Dur = int64(j.step), j.epoch(i)+from, to-from
	if !j.cfg.Record.HostOnly && k != record.DataLoader && k != record.SaveCheckpoint {
		x.Side, x.HostStart, x.HostDur = record.Device, x.Start, enqueued(k, x.Dur)
	}

	if more != nil {
		more(&x)
	}

	j.rec.add(i, x)
}

// enqueued is the host's part of a device range: 2 %, the launch of its kernels. A step is as
// long on the host, which waits for its end.
func enqueued(k record.Kind, dur int64) int64 {
	if k == record.Step {
		return dur
	}

	return dur / 50
}

// enqueue is how long the operations of a forward pass take to enqueue, ns: 1/150 of a step
// for all passes, whatever the device then takes.
func (j *job) enqueue() float64 {
	return j.nominal() / float64(150*j.lay.shape.passes())
}

// loaded notes a fetch of a batch.
func (j *job) loaded(i int, from, to float64) {
	r := &j.r[i]
	if r.drop || j.off[record.DataLoader] {
		return
	}

	a, b := j.tick(i, from), j.tick(i, to)
	r.out.DataLoaderNs = max(0, r.out.DataLoaderNs) + b - a
	j.note(record.DataLoader, i, a, b, nil)
}

// saved notes a checkpoint.
func (j *job) saved(i int, from, to float64) {
	r := &j.r[i]
	if r.drop || j.off[record.SaveCheckpoint] {
		return
	}

	a, b := j.tick(i, from), j.tick(i, to)
	r.out.CheckpointNs = max(0, r.out.CheckpointNs) + b - a
	r.out.CheckpointCount++
	j.note(record.SaveCheckpoint, i, a, b, func(x *record.Record) {
		x.Path, x.Bytes = fmt.Sprintf("/checkpoint/%d/%d.pt", j.step, i), 1<<30
	})
}

// passed notes a forward or backward pass. Of a backward that recomputes, the first part is a
// forward, too.
func (j *job) passed(i, way int, from, to float64) {
	r := &j.r[i]
	if r.drop {
		return
	}

	a, b := j.tick(i, from), j.tick(i, to)
	if way == back {
		if j.cfg.Model.Recompute {
			j.passed(i, forth, from, from+(to-from)/j.cfg.Model.backward())
		}

		if !j.cfg.Record.Backward {
			return
		}

		r.out.BackwardNs += b - a
		j.note(record.Other, i, a, b, func(x *record.Record) { x.Name = "backward" })
		return
	}

	if j.off[record.FP] {
		return
	}

	// The host enqueues a pass and goes on: how long it takes says nothing of the device.
	if j.cfg.Record.Enqueued {
		b = a + int64(j.enqueue()*lognormal(j.clocks, 0.05))
	}

	r.out.FPNs = max(0, r.out.FPNs) + b - a
	r.out.FPCount++
	if !j.cfg.Record.HostOnly {
		r.out.HostFPNs = max(0, r.out.HostFPNs) + enqueued(record.FP, b-a)
	}

	j.note(record.FP, i, a, b, nil)
}

// emit hands over the step's rows and ranges.
func (j *job) emit() error {
	if j.take == nil && j.rec == nil {
		return nil
	}

	for i := range j.r {
		r := &j.r[i]
		if r.drop {
			continue
		}

		a, b := j.tick(i, r.start), j.tick(i, r.t)
		if r.windowFrom == 0 {
			r.windowFrom = j.epoch(i) + a
		}

		j.note(record.Step, i, a, b, func(x *record.Record) {
			if j.cfg.Work.Tokens > 0 {
				x.Tokens = int64(r.tokens)
			}
		})

		if j.take != nil {
			j.fill(i, a, b)
			j.rows.Steps = append(j.rows.Steps, r.out)
		}
	}

	j.hand()

	if j.rec != nil {
		return j.rec.step()
	}

	return nil
}

// fill completes the row of rank i's step.
func (j *job) fill(i int, from, to int64) {
	r := &j.r[i]
	o := &r.out
	o.StartNs, o.StepNs = j.epoch(i)+from, to-from
	if j.cfg.Work.Tokens > 0 {
		o.Tokens = int64(r.tokens)
	}

	if o.ExposedNs >= 0 {
		j.unions(r)
		o.SelfNs = o.StepNs - o.ExposedNs - max(0, o.DataLoaderNs) - max(0, o.CheckpointNs)
	}
}

// unions measures the time in communication, in all and per dimension: ranges that overlap count
// once, -1 is none. It is one sweep over the ranges by their starts.
func (j *job) unions(r *rank) {
	s, o := r.transfers, &r.out
	slices.SortFunc(s, func(a, b transfer) int { return cmp.Compare(a.from, b.from) })
	const all = dimOther + 1
	var until [all + 1]int64
	total := [all + 1]int64{-1, -1, -1, -1, -1, -1, 0}
	for k := range until {
		until[k] = -1 << 62
	}

	for k := range s {
		x := &s[k]
		for _, d := range [2]int{x.column, all} {
			total[d] = max(0, total[d]) + max(0, x.to-max(x.from, until[d]))
			until[d] = max(until[d], x.to)
		}
	}

	o.CommTPNs, o.CommPPNs, o.CommDPNs = total[dimTP], total[dimPP], total[dimDP]
	o.CommCPNs, o.CommEPNs, o.CommOtherNs, o.CommNs = total[dimCP], total[dimEP], total[dimOther], total[all]
}

// newWindow hands over the window that is over when the step begins another.
func (j *job) newWindow() {
	if w := j.step / row.Window * row.Window; w != j.windowAt {
		j.flushWindow()
		j.windowAt = w
	}
}

// flushWindow hands over the communication of the window that is over.
func (j *job) flushWindow() {
	for i := range j.r {
		r := &j.r[i]
		for s := range r.sums {
			if r.sums[s].Calls > 0 && j.take != nil {
				j.rows.Communications = append(j.rows.Communications, j.window(i, s))
			}
		}

		r.sums, r.windowFrom = [slots]row.Communication{}, 0
	}

	j.hand()
}

// hand hands over the rows that are finished.
func (j *job) hand() {
	if j.rows.Len() > 0 {
		j.take(&j.rows)
	}

	j.rows = row.Rows{Ranks: j.rows.Ranks[:0], Steps: j.rows.Steps[:0], Communications: j.rows.Communications[:0]}
}

// window returns the row of a slot's communication in the window that is over.
func (j *job) window(i, slot int) row.Communication {
	r := &j.r[i]
	g := &j.lay.groups[j.lay.groupOf(i, slot)]
	c := r.sums[slot]
	c.Job, c.Rank, c.Incarnation, c.Node = j.cfg.Job, uint32(i), uint64(r.inc), r.host.name
	c.StepFrom, c.StepTo, c.StartNs = uint64(j.windowAt), uint64(j.windowAt+row.Window-1), r.windowFrom
	c.Group, c.Dim, c.Op = g.name, dimNames[g.dim], j.op(slot)
	if j.column(i, slot) == dimOther {
		c.Dim = "other"
	}

	if slot != slotSave {
		c.Bytes = int64(c.Calls) * 2 * elements
	}

	return c
}

// rankRow is the row of an identity. ended is 0 for a process that runs.
func (j *job) rankRow(m *record.Meta, ended int64) row.Rank {
	out := row.Rank{
		Job: m.Job, Rank: uint32(m.Rank), Incarnation: uint64(m.Incarnation), WorldSize: uint32(m.WorldSize),
		LocalRank: uint16(m.LocalRank), Node: m.Node, Device: m.Device, Pod: m.Pod, PID: uint32(m.PID), BootID: m.BootID,
		StartedNs: m.StartedNs, EndedNs: ended, Writer: m.Writer, Version: 1,
	}
	if ended != 0 {
		out.Version = 2
	}

	for k, g := range j.named(m.Rank) {
		out.Groups = append(out.Groups, topology.FormatGroup(m.Groups[k]))
		out.GroupRanks = append(out.GroupRanks, g.ids)
	}

	return out
}
