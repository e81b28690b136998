package rollup

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// interval is a stretch of time on one side's clock.
type interval struct {
	from, to int64
	side     record.Side
	dim      dim
}

// newStep returns the row of a step in which nothing was recorded.
func (s *Stream) newStep(inc *incarnation, number int64, repeat uint16) row.Step {
	return row.Step{
		Job: s.job(inc), Rank: uint32(s.o.Rank), Incarnation: uint64(inc.ID), Node: s.node(inc),
		Step: uint64(number), Repeat: repeat,
		FPNs: -1, CommNs: -1, ExposedNs: -1, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
		DataLoaderNs: -1, CheckpointNs: -1, SelfNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1,
	}
}

// bareStep is the row of a step that itself came too late.
func (s *Stream) bareStep(inc *incarnation, r *record.Record, repeat uint16) row.Step {
	out := s.newStep(inc, r.Step, repeat)
	out.StartNs, out.StepNs, out.Flags = r.Start, r.Dur, row.FlagLate
	if r.Side == record.Host {
		out.Flags |= row.FlagHostOnly
	}

	if r.Open {
		out.Flags |= row.FlagOpen
	}

	if r.Tokens > 0 {
		out.Tokens = r.Tokens
	}

	return out
}

// sums collects of the ranges of a step what its row can't hold before all are known. The memory of
// its intervals is used for one step after the other.
type sums struct {
	exposed   int64
	unexposed bool // a Communication does not say how long it blocked
	device    bool

	comm, compute, backward []interval
	blocked                 []interval // the ends of communication that the trainer waited for
	merged, waits           []interval // of the ones that are being compared
}

// reset empties the sums and keeps the memory of their intervals.
func (t *sums) reset() {
	*t = sums{
		comm: t.comm[:0], compute: t.compute[:0], backward: t.backward[:0], blocked: t.blocked[:0],
		merged: t.merged, waits: t.waits,
	}
}

// stepRow computes the row of a step from the pending ranges in its window, which ends
// at cut. Sums are of the whole ranges that begin in the step, also where one runs past
// its end.
func (s *Stream) stepRow(inc *incarnation, st *step, cut int64) row.Step {
	out := s.newStep(inc, st.Number, st.Repeat)
	self := pendingRange{start: st.Begin, dur: st.End - st.Begin, open: st.open}
	sum := &s.sums
	sum.reset()
	found := false
	for i := range inc.pending {
		p := &inc.pending[i]
		if p.begin < st.Begin || p.begin >= cut {
			continue
		}

		if p.kind == record.Step && p.own == st.Number && p.begin == st.Begin && !found {
			self, found = *p, true
		}

		sum.device = sum.device || p.side == record.Device
		s.sum(inc, p, &out)
	}

	sum.sort()

	out.StartNs, out.StepNs = self.start, self.dur
	if len(sum.backward) > 0 {
		out.BackwardNs = sum.work()
	}

	if self.tokens > 0 {
		out.Tokens = self.tokens // what the step says counts, else the sum over its forward passes
	}

	if len(sum.comm) > 0 {
		sum.fillComm(&out, &self)
	}

	if !sum.device {
		out.Flags |= row.FlagHostOnly
	}

	if self.open {
		out.Flags |= row.FlagOpen
	}

	if inc.Late {
		out.Flags |= row.FlagLate
		inc.Late = false
	}

	if slices.ContainsFunc(inc.Switches, func(at int64) bool { return at >= st.Begin && at < cut }) {
		out.Flags |= row.FlagSwitched
	}

	return out
}

// sum adds one range.
func (s *Stream) sum(inc *incarnation, p *pendingRange, out *row.Step) {
	t := &s.sums
	iv := interval{from: p.start, to: p.end(), side: p.side}
	switch p.kind {
	case record.FP:
		add(&out.FPNs, p.dur)
		out.FPCount++
		if p.tokens > 0 {
			add(&out.Tokens, p.tokens)
		}

		if p.hostDur >= 0 {
			add(&out.HostFPNs, p.hostDur)
		}

		t.compute = append(t.compute, iv)
	case record.Communication:
		iv.dim = s.dim(inc, inc.Window.all[p.call])
		t.comm = append(t.comm, iv)
		if p.exposed < 0 {
			t.unexposed = true
		} else {
			t.exposed += p.exposed
			if p.exposed > 0 {
				t.blocked = append(t.blocked, interval{from: p.end() - p.exposed, to: p.end(), side: p.side})
			}
		}
	case record.DataLoader:
		add(&out.DataLoaderNs, p.dur)
	case record.SaveCheckpoint:
		add(&out.CheckpointNs, p.dur)
		out.CheckpointCount++
	case record.Other:
		if p.backward {
			t.compute = append(t.compute, iv)
			t.backward = append(t.backward, iv)
		}
	}
}

// add adds to a column in which -1 is nothing yet.
func add(to *int64, n int64) { *to = max(*to, 0) + n }

// work returns what backward ranges hold of the rank's own work: a trainer that
// waits for gradients inside its backward call (DDP does) is blocked there by
// Communication that says so.
func (t *sums) work() (work int64) {
	for _, iv := range t.backward {
		work += iv.to - iv.from
	}

	for _, side := range [...]record.Side{record.Host, record.Device} {
		t.merged = merge(t.merged[:0], t.backward, side)
		t.waits = merge(t.waits[:0], t.blocked, side)
		work -= common(t.merged, t.waits)
	}

	return max(work, 0)
}

// common returns how long both of two sets of disjoint intervals, sorted, are on.
func common(a, b []interval) (total int64) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		total += max(0, min(a[i].to, b[j].to)-max(a[i].from, b[j].from))
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}

	return total
}

// sort puts intervals in the order in which merge and unions take them.
func (t *sums) sort() {
	for _, all := range [...][]interval{t.comm, t.compute, t.backward, t.blocked} {
		slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	}
}

// merge appends the union of one side's intervals, apart and in order; all are sorted by start.
func merge(dst, all []interval, side record.Side) []interval {
	for _, iv := range all {
		if iv.side != side {
			continue
		}

		if n := len(dst); n > 0 && iv.from <= dst[n-1].to {
			dst[n-1].to = max(dst[n-1].to, iv.to)
			continue
		}

		dst = append(dst, iv)
	}

	return dst
}

// fillComm sets the columns of Communication, exposed and self time.
//
// Exposed is the sum of what the ranges say where all of them say it. Else it is
// what the union of the ranges covers of the step beyond its recorded computation
// (forward, and backward where that is recorded) on the same clock. Without
// backward that is an estimate: gradient reduction that overlaps backward counts
// as exposed. Waiting that no range covers stays in self time, which so is an
// upper bound of the rank's own work wherever communication is not overlapped.
func (t *sums) fillComm(out *row.Step, self *pendingRange) {
	total, dims := unions(t.comm)
	out.CommNs = total
	out.CommTPNs, out.CommPPNs, out.CommDPNs = dims[dimTP], dims[dimPP], dims[dimDP]
	out.CommCPNs, out.CommEPNs, out.CommOtherNs = dims[dimCP], dims[dimEP], dims[dimOther]
	if !t.unexposed {
		out.ExposedNs = t.exposed
	} else {
		out.ExposedNs = t.uncovered(self, record.Host)
		if t.device {
			out.ExposedNs += t.uncovered(self, record.Device)
		}

		if len(t.backward) == 0 {
			out.Flags |= row.FlagEstimated
		}
	}

	out.SelfNs = max(out.StepNs-out.ExposedNs-max(out.DataLoaderNs, 0)-max(out.CheckpointNs, 0), 0)
}

// unions returns the length of the union of intervals sorted by start, over all
// and by dimension (-1 for a dimension without any).
func unions(sorted []interval) (all int64, dims [dimCount]int64) {
	var ends [dimCount]int64
	for d := range dims {
		dims[d] = -1
	}

	end := sorted[0].from
	for _, iv := range sorted {
		if iv.to > end {
			all += iv.to - max(iv.from, end)
			end = iv.to
		}

		d := iv.dim
		if dims[d] < 0 {
			dims[d], ends[d] = 0, iv.from
		}

		if iv.to > ends[d] {
			dims[d] += iv.to - max(iv.from, ends[d])
			ends[d] = iv.to
		}
	}

	return all, dims
}

// uncovered returns how long communication of one side runs inside the step while
// no computation of that side does. Where the step itself was measured on the other
// side its bounds mean nothing here.
func (t *sums) uncovered(self *pendingRange, side record.Side) (total int64) {
	t.waits = merge(t.waits[:0], t.comm, side)
	for i := range t.waits {
		iv := &t.waits[i]
		if self.side == side && !self.open {
			iv.from, iv.to = max(iv.from, self.start), min(iv.to, self.end())
		}

		total += max(iv.to-iv.from, 0)
	}

	t.merged = merge(t.merged[:0], t.compute, side)
	return total - common(t.waits, t.merged)
}
