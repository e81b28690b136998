// Package arrival tells from the raw ranges of a few steps in which order ranks entered their
// collectives: who came last, and how long the others waited for it.
//
// Clocks of hosts differ, so wall clocks of two ranks are never compared. A collective that
// everybody needs of everybody (allreduce, allgather, reducescatter, alltoall, barrier) ends on
// all its members together: the offset of a rank's clock is the median by which its ends
// differ from those of its peers, and what remains of the differences says how sure that is.
//
// Stages compares what pipeline stages work in them. Aligner puts one step of a few ranks on one clock, and
// says of each range who was waited for.
//
// Invariant: nobody is named a culprit here. Who is last in a step or two may be first in the next.
//
// Caveat: who enters last is late, or waits for somebody in another group who is. Only
// analyzer/detect tells the two apart, and it needs more steps.
package arrival

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

const (
	// mostCalls bounds the ranges that are held: 100 MB.
	mostCalls = 2 << 20
	// rounds ends the refinement of groups that overlap; one group is aligned in the first.
	rounds = 50
	// settled is the change of an offset, in ns, below which the alignment is done.
	settled = 100
	// plain is how many times what the alignment is unsure of a delay must be, to be told.
	plain = 5
)

// symmetric are the operations that end on all members together.
var symmetric = map[string]bool{"allreduce": true, "allgather": true, "reducescatter": true, "alltoall": true, "barrier": true}

// Job collects the ranges of one job.
type Job struct {
	nodes   map[uint32]string
	members map[uint32]map[string]string // of each rank's communicators, by name
	calls   []call
	more    bool // than are held
}

// call is one rank's part in a collective.
type call struct {
	rank       uint32
	step       int64
	repeat     uint16
	group, op  string
	start, end int64
	nth        int // of its kind in the step
}

// NewJob returns an empty job.
func NewJob() *Job { return &Job{nodes: map[uint32]string{}, members: map[uint32]map[string]string{}} }

// Take takes identities and ranges, in any order and in parts; it keeps neither slice.
func (j *Job) Take(ranks []row.Rank, records []row.Record) {
	for i := range ranks {
		r := &ranks[i]
		j.nodes[r.Rank] = r.Node
		if j.members[r.Rank] == nil {
			j.members[r.Rank] = map[string]string{}
		}

		for k, g := range r.Groups {
			if _, name, index := topology.SplitGroup(g); index >= 0 && name != "" && k < len(r.GroupRanks) {
				j.members[r.Rank][name] = fmt.Sprint(r.GroupRanks[k])
			}
		}
	}

	for i := range records {
		r := &records[i]
		if r.Kind != "Communication" || !symmetric[r.Op] || r.Open != 0 || r.Step < 0 {
			continue
		}

		if len(j.calls) >= mostCalls {
			j.more = true
			return
		}

		group := r.Group
		if group == "" && r.Side == "device" { // without a name: communicators have streams of their own
			group = fmt.Sprintf("stream %d", r.Thread)
		}

		j.calls = append(j.calls, call{rank: r.Rank, step: r.Step, repeat: r.Repeat, group: group, op: r.Op, start: r.StartNs, end: r.StartNs + r.DurNs})
		if _, ok := j.nodes[r.Rank]; !ok {
			j.nodes[r.Rank] = r.Node
		}
	}
}

// Order says, once, who entered last; nil where no collective was seen on two ranks or where not all of
// them could be held.
func (j *Job) Order() *verdict.Arrivals {
	if j.more {
		return nil
	}

	all := j.collectives()
	if len(all) == 0 {
		return nil
	}

	offsets, _, unsure := align(all)
	return j.tell(all, offsets, unsure)
}

// collectives joins the calls of ranks: the n-th of an operation in a group and step is one.
func (j *Job) collectives() [][]call {
	for i := range j.calls {
		c := &j.calls[i]
		if m := j.members[c.rank][c.group]; m != "" {
			c.group = m
		}
	}

	// alike is 0 for calls of one operation in one group and step, of which there may be several.
	alike := func(a, b call) int {
		return cmp.Or(strings.Compare(a.group, b.group), cmp.Compare(a.step, b.step), cmp.Compare(a.repeat, b.repeat), strings.Compare(a.op, b.op))
	}
	slices.SortFunc(j.calls, func(a, b call) int {
		return cmp.Or(alike(a, b), cmp.Compare(a.rank, b.rank), cmp.Compare(a.start, b.start))
	})
	for i := 1; i < len(j.calls); i++ {
		if a, b := &j.calls[i-1], &j.calls[i]; alike(*a, *b) == 0 && a.rank == b.rank {
			b.nth = a.nth + 1
		}
	}

	same := func(a, b call) int { return cmp.Or(alike(a, b), cmp.Compare(a.nth, b.nth)) }
	slices.SortFunc(j.calls, func(a, b call) int { return cmp.Or(same(a, b), cmp.Compare(a.rank, b.rank)) })
	var all [][]call
	for from := 0; from < len(j.calls); {
		to := from + 1
		for to < len(j.calls) && same(j.calls[from], j.calls[to]) == 0 {
			to++
		}

		if to-from > 1 {
			all = append(all, j.calls[from:to])
		}

		from = to
	}

	return all
}

// align finds the offsets by which ends agree best, what each rank's clock is ahead of the others', ns,
// and moves all calls to that common clock. Ranks of one part were seen to meet, be it over others;
// nine in ten ends are within unsure.
func align(all [][]call) (offsets map[uint32]int64, parts map[uint32]int, unsure int64) {
	// Each round moves every clock to the median by which its ends differ from the middle of their
	// collectives: a median, for an end that is recorded late must not move it.
	offsets, parts = reach(all)
	var left []int64
	for range rounds {
		ends := map[uint32][]int64{}
		left = left[:0]
		for _, members := range all {
			mid := middle(members, offsets)
			for _, m := range members {
				ends[m.rank] = append(ends[m.rank], m.end-mid)
				left = append(left, m.end-mid-offsets[m.rank])
			}
		}

		moved := int64(0)
		for rank, d := range ends {
			to := median(d)
			moved = max(moved, to-offsets[rank], offsets[rank]-to)
			offsets[rank] = to
		}

		if moved < settled {
			break
		}
	}

	for i, d := range left {
		left[i] = max(d, -d)
	}

	slices.Sort(left)
	for _, members := range all {
		for i := range members {
			m := &members[i]
			m.start, m.end = m.start-offsets[m.rank], m.end-offsets[m.rank]
		}
	}

	return offsets, parts, left[len(left)*9/10]
}

// reach goes from the first rank to those that it shares a collective with, from those on, and
// begins anew with a rank that none of them reaches: offsets to begin with.
func reach(all [][]call) (offsets map[uint32]int64, parts map[uint32]int) {
	offsets, parts = map[uint32]int64{}, map[uint32]int{}
	part := 0
	for {
		next := map[uint32][]int64{}
		for _, members := range all {
			known := slices.DeleteFunc(slices.Clone(members), func(m call) bool { _, ok := offsets[m.rank]; return !ok })
			if len(known) == 0 || len(known) == len(members) {
				continue
			}

			mid := middle(known, offsets)
			for _, m := range members {
				if _, ok := offsets[m.rank]; !ok {
					next[m.rank] = append(next[m.rank], m.end-mid)
				}
			}
		}

		for rank, d := range next {
			offsets[rank], parts[rank] = median(d), part
		}

		if len(next) > 0 {
			continue
		}

		i := slices.IndexFunc(all, func(members []call) bool { _, ok := offsets[members[0].rank]; return !ok })
		if i < 0 {
			return offsets, parts
		}

		part++
		offsets[all[i][0].rank], parts[all[i][0].rank] = 0, part
	}
}

// middle is the median of the members' ends by their aligned clocks.
func middle(members []call, offsets map[uint32]int64) int64 {
	ends := make([]int64, len(members))
	for i, m := range members {
		ends[i] = m.end - offsets[m.rank]
	}

	return median(ends)
}

// median sorts the values; 0 for none. The two in the middle are not added up: stamps are ns since 1970, and the
// sum of two would overflow.
func median(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}

	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}

	return values[n/2-1] + (values[n/2]-values[n/2-1])/2
}

// tell sums up by how much each rank was the later one, how long it waited and how often it was last. The first
// in the list waited least.
func (j *Job) tell(all [][]call, offsets map[uint32]int64, unsure int64) *verdict.Arrivals {
	type sum struct {
		late, waited int64
		last         int
	}
	sums := map[uint32]*sum{}
	steps := map[[2]int64]bool{}
	for _, members := range all {
		first, last := slices.MinFunc(members, byStart).start, slices.MaxFunc(members, byStart).start
		steps[[2]int64{members[0].step, int64(members[0].repeat)}] = true
		for _, m := range members {
			s := sums[m.rank]
			if s == nil {
				s = &sum{}
				sums[m.rank] = s
			}

			s.late = max(s.late, m.start-first)
			s.waited += last - m.start
			if m.start == last {
				s.last++
			}
		}
	}

	out := &verdict.Arrivals{Collectives: len(all), Steps: len(steps), Unsure: seconds(unsure), Ranks: []verdict.Arrival{}}
	most := int64(0)
	for rank, s := range sums {
		most = max(most, s.late)
		out.Ranks = append(out.Ranks, verdict.Arrival{
			Rank: int(rank), Node: j.nodes[rank], Late: seconds(s.late), Waited: seconds(s.waited) / float64(len(steps)), Last: s.last, Offset: seconds(offsets[rank]),
		})
	}

	slices.SortFunc(out.Ranks, func(a, b verdict.Arrival) int {
		return cmp.Or(cmp.Compare(a.Waited, b.Waited), cmp.Compare(a.Rank, b.Rank))
	})
	out.Clear = most > plain*unsure
	return out
}

// byStart is the order in which aligned calls enter.
func byStart(a, b call) int { return cmp.Compare(a.start, b.start) }

// seconds turns nanoseconds into seconds.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }
