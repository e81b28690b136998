// Package whatif replays the steps of a job with other durations than the
// recorded ones: how long would a step take if every rank computed alike, if one
// rank were repaired, if the last stage were no heavier than the others?
//
// It is the method of "Understanding Stragglers in Large Model Training Using
// What-if Analysis" (OSDI'25): the ranges of one step become a graph (a rank does
// its operations one after the other; a collective ends when its last member has
// come and the transfer is done; a receive when its send is there; who computes
// beside a transfer waits for the end of it alone), waiting is taken out of
// communication, and the graph is played again.
//
// A graph is kept as a list of its operations in an order in which each stands after
// all that it needs, so a play is one pass over the list.
//
// Invariant: with the recorded durations the replay reproduces the recorded step
// time; verdict.WhatIf.Fidelity is the quotient, and says how far to trust the rest.
//
// Caveat: it needs Communication records with groups. Where the backward pass is
// not recorded it is what lies between communication, at most three times the
// rank's median gap; longer uncovered time is waiting that nobody recorded.
package whatif

import (
	"cmp"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/record"
)

// verb is what a rank does in an operation.
type verb uint8

const (
	computes verb = iota
	comes         // to a meeting, and goes on: it may compute beside the transfer
	waits         // until all have come and the transfer is done
)

// op is one operation of one rank in one step.
type op struct {
	own   int64 // ns: the compute, or the meeting's transfer, as recorded
	rank  int32 // index among the job's ranks
	class record.Word
	meet  int32 // index of the meeting
	phase int32 // of compute: how many operations of the rank before it are communication
	verb  verb
}

// step is the graph of one step. It is played by one goroutine at a time.
type step struct {
	ops      []op  // each after all that it needs
	recorded int64 // ns: the longest rank's step

	now    []int64 // of a play, by rank: ns since the step's start
	latest []int64 // of a play, by meeting: when the last member came
}

// play returns the time until the last rank is done, ns, with the durations that
// choose gives.
func (s *step) play(choose func(*op) int64) int64 {
	clear(s.now)
	clear(s.latest)
	for i := range s.ops {
		switch o := &s.ops[i]; o.verb {
		case computes:
			s.now[o.rank] += choose(o)
		case comes:
			s.latest[o.meet] = max(s.latest[o.meet], s.now[o.rank])
		case waits:
			s.now[o.rank] = max(s.now[o.rank], s.latest[o.meet]+choose(o))
		}
	}

	return slices.Max(s.now)
}

// meeting is one collective, or one send with its receive.
type meeting struct {
	members    int
	start, end int64   // ns, as recorded: the last member came, the first was done
	came       int     // members, as far as the operations are in order
	waiting    []int32 // ranks whose next operation waits for it
}

// transfer is how long a meeting took without the waiting for its members.
func (m *meeting) transfer() int64 { return max(0, m.end-m.start) }

// graphs makes the steps' graphs. Those whose communication doesn't match, because
// records are missing, are left out.
func (j *Job) graphs(ranks []int) []*step {
	all := j.complete()
	steps := make([]*step, len(all))
	parallel(all, func(i int, of *recorded) { steps[i] = j.build(of, ranks).step() })
	return slices.DeleteFunc(steps, func(s *step) bool { return s == nil })
}

// complete returns the steps in order, with the ranges that were not recorded. All steps must be
// cut before gaps are judged: what is a long one is known from the whole job.
func (j *Job) complete() []*recorded {
	var steps []*recorded
	for _, n := range slices.Sorted(maps.Keys(j.steps)) {
		steps = append(steps, j.steps[n])
	}

	parallel(steps, func(_ int, of *recorded) {
		for rank, timings := range of.ranges {
			of.ranges[rank] = cut(timings)
		}
	})
	fillGaps(steps)
	return steps
}

// parallel does f for each item on all processors. f writes nothing that another call reads.
func parallel[T any](items []T, f func(i int, item T)) {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, item := range items {
		g.Go(func() error {
			f(i, item)
			return nil
		})
	}

	_ = g.Wait() // f can't fail
}

// builder makes the graph of one step.
type builder struct {
	at       map[int]map[record.Word]int32 // see Job
	length   int64
	meetings []meeting
	found    map[comm]int32 // index in meetings
	programs [][]op         // of each rank, in the order of its own time
}

// build makes the programs of the ranks; the ranges are used up.
func (j *Job) build(of *recorded, ranks []int) *builder {
	b := &builder{at: j.at, length: of.length, found: map[comm]int32{}, programs: make([][]op, len(ranks))}
	for i, rank := range ranks {
		b.add(int32(i), rank, of.ranges[rank])
	}

	of.ranges = nil
	return b
}

// step returns the graph, nil when it can't be played or nobody meets.
func (b *builder) step() *step {
	ops := b.order()
	if ops == nil || len(b.meetings) == 0 {
		return nil
	}

	return &step{ops: ops, recorded: b.length, now: make([]int64, len(b.programs)), latest: make([]int64, len(b.meetings))}
}

// comm is what matches the operations of several ranks into one meeting: the
// n-th of its kind in a group.
type comm struct {
	group    record.Word
	class    record.Word
	from, to int32
	nth      int32
	send     bool // of one side: a rank's sends and receives are counted apart
}

// batch is how near two communication starts of a rank are when they were issued
// as one batch, ns.
const batch = 2000

// add makes a rank's program of its ranges. A meeting is two operations of it, to come and to wait.
// Who is blocked for less than the whole range comes at its start and waits only at its end: in
// between it computes.
func (b *builder) add(i int32, rank int, timings []timing) {
	type begun struct {
		at int64 // as recorded
		op
	}

	byStart(timings)
	list := make([]begun, 0, 2*len(timings))
	seen := map[comm]int32{}
	first := -1 // of the last operations, where a rank came to a meeting and waited at once
	for k := range timings {
		s := &timings[k]
		o := begun{s.start, op{own: s.own, rank: i, class: s.class}}
		if s.group == 0 {
			if s.start < s.end { // else it is a step's bound
				list, first = append(list, o), -1
			}

			continue
		}

		o.meet = b.meet(rank, s, seen)
		come, wait := o, o
		come.verb, wait.verb = comes, waits
		switch {
		case s.own < s.end-s.start && s.class != p2p:
			if list = append(list, come); s.own > 0 {
				wait.at = s.end - s.own
				list = append(list, wait)
			}

			first = -1
		case first >= 0 && s.start-list[first].at < batch:
			// A batched send and receive: the rank comes to all before it waits for one.
			come.at, wait.at = list[first].at, list[first].at
			list = append(slices.Insert(list, (first+len(list))/2, come), wait)
		default:
			first = len(list)
			list = append(list, come, wait)
		}
	}

	slices.SortStableFunc(list, func(a, b begun) int { return cmp.Compare(a.at, b.at) })
	program, at := make([]op, len(list)), int32(0)
	for k := range list {
		program[k] = list[k].op
		if o := &program[k]; o.verb == computes {
			o.phase = at
		} else {
			at++
		}
	}

	b.programs[i] = program
}

// meet returns the index of the meeting that a range is a member's part of.
func (b *builder) meet(rank int, s *timing, seen map[comm]int32) int32 {
	c := comm{group: s.group, class: s.class}
	switch {
	case s.class != p2p:
	case s.send:
		c.from, c.to = b.at[rank][s.group], s.peer
	default:
		c.from, c.to = s.peer, b.at[rank][s.group]
	}

	side := c
	side.send = s.send
	c.nth = seen[side]
	seen[side]++
	at, ok := b.found[c]
	if !ok {
		at = int32(len(b.meetings))
		b.found[c] = at
		b.meetings = append(b.meetings, meeting{end: s.end})
	}

	m := &b.meetings[at]
	m.members++
	m.start, m.end = max(m.start, s.start), min(m.end, s.end)
	return at
}

// order merges the programs into one, in which each operation stands after all that it
// needs; nil when there is no such order. A rank is played until it must wait for others, and
// goes on when the last of them has come (Kahn's topological sort, by rank).
func (b *builder) order() []op {
	total := 0
	var ready []int32
	for i, p := range b.programs {
		total += len(p)
		ready = append(ready, int32(i))
	}

	ops := make([]op, 0, total)
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for len(b.programs[i]) > 0 {
			o := b.programs[i][0]
			if o.verb != computes {
				m := &b.meetings[o.meet]
				if o.own = m.transfer(); o.verb == comes {
					if m.came++; m.came == m.members {
						ready = append(ready, m.waiting...)
					}
				} else if m.came < m.members {
					m.waiting = append(m.waiting, i)
					break
				}
			}

			ops = append(ops, o)
			b.programs[i] = b.programs[i][1:]
		}
	}

	// Ranks wait for each other in a circle: records are missing, or matched wrongly.
	if len(ops) < total {
		return nil
	}

	return ops
}
