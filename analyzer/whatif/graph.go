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
// Invariant: with the recorded durations the replay reproduces the recorded step
// time; Result.Fidelity is the quotient, and says how far to trust the rest.
//
// Caveat: it needs Communication records with groups. Where the backward pass is
// not recorded it is what lies between communication, at most three times the
// rank's median gap; longer uncovered time is waiting that nobody recorded.
package whatif

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"unique"
)

// Classes of operations that are not communication. Communication has the class
// of its op's base word, sends and receives together "p2p".
const (
	Forward  = "forward"
	Backward = "backward"
	Loading  = "loading"
	Launch   = "launch" // short time between recorded ranges
	Gap      = "gap"    // time between recorded ranges that is taken for compute
	P2P      = "p2p"
)

// Handles of the classes that are looked for.
var (
	forward = unique.Make(Forward)
	loading = unique.Make(Loading)
)

// part is what of a meeting an operation takes part in: a rank that computes beside
// a transfer begins it, and waits for it later if at all.
type part uint8

const (
	whole part = iota
	begins
	awaits
)

// op is one operation of one rank in one step.
type op struct {
	class      unique.Handle[string] // half of a string's size, and compared as a number
	start, end int64                 // ns, as recorded
	own        int64                 // ns of own work: compute, or the transfer without waiting
	meet       int32                 // index of the meeting in step.meetings, -1 for compute
	interval   int16                 // communication of the rank before it, as far as it counts
	part       part
}

// compute reports whether the operation needs nobody else.
func (o *op) compute() bool { return o.meet < 0 }

// slot is a set of operations of one rank that start together (a batched send and
// receive) and are over when all are.
type slot struct{ ops []op }

// at is when the slot began as recorded.
func (s *slot) at() int64 { return s.ops[0].start }

// step is the graph of one step.
type step struct {
	number   int64
	ranks    []int
	slots    [][]slot // per index in ranks
	meetings []meeting
	recorded int64 // ns: the longest rank's step
}

// meeting is one collective, or one send with its receive.
type meeting struct{ members int }

// comm is what matches the operations of several ranks into one meeting: the
// n-th of its kind in a group.
type comm struct {
	group, op string
	from, to  int
	nth       int
}

// endpoint tells a rank's sends from its receives, which are counted apart.
type endpoint struct {
	comm
	send bool
}

// together is how near two communication starts of a rank are when they were
// issued as one batch, ns.
const together = 2000

// build orders the ranges of each rank, matches communication and takes the
// waiting out of it.
func build(number int64, ranges map[int][]Range, recorded int64) (*step, error) {
	s := &step{number: number, recorded: recorded}
	for rank := range ranges {
		s.ranks = append(s.ranks, rank)
	}
	sort.Ints(s.ranks)
	s.slots = make([][]slot, len(s.ranks))
	found := map[comm]int{}
	for i, rank := range s.ranks {
		rs := ranges[rank]
		sort.SliceStable(rs, func(a, b int) bool { return rs[a].Start < rs[b].Start })
		seen := map[endpoint]int{}
		for _, r := range rs {
			s.place(i, r, found, seen)
		}
		slices.SortStableFunc(s.slots[i], func(a, b slot) int { return cmp.Compare(a.at(), b.at()) })
		s.count(i)
	}
	s.transfers()
	if err := s.complete(); err != nil {
		return nil, err
	}
	return s, nil
}

// place appends one range to its rank's slots.
func (s *step) place(i int, r Range, found map[comm]int, seen map[endpoint]int) {
	o := op{class: unique.Make(r.Class), start: r.Start, end: r.End, own: r.End - r.Start, meet: -1}
	if r.Group == "" {
		if r.Start == r.End {
			return // a step's bound
		}
		if r.Own >= 0 {
			o.own = r.Own
		}
		s.slots[i] = append(s.slots[i], slot{[]op{o}})
		return
	}
	kind := comm{group: r.Group, op: r.Class, from: r.From, to: r.To}
	side := endpoint{kind, r.Send}
	kind.nth = seen[side]
	seen[side]++
	at, ok := found[kind]
	if !ok {
		at = len(s.meetings)
		found[kind] = at
		s.meetings = append(s.meetings, meeting{})
	}
	s.meetings[at].members++
	o.meet = int32(at)
	if b := r.blocks(); b < r.End-r.Start && r.Class != P2P {
		o.part = begins
		s.slots[i] = append(s.slots[i], slot{[]op{o}})
		if b > 0 {
			o.part, o.start = awaits, r.End-b
			s.slots[i] = append(s.slots[i], slot{[]op{o}})
		}
		return
	}
	last := len(s.slots[i]) - 1
	if last >= 0 {
		first := &s.slots[i][last].ops[0]
		if !first.compute() && first.part == whole && o.start-first.start < together {
			s.slots[i][last].ops = append(s.slots[i][last].ops, o)
			return
		}
	}
	s.slots[i] = append(s.slots[i], slot{[]op{o}})
}

// count tells each operation of rank index i in which interval of the step it is.
func (s *step) count(i int) {
	n := 0
	for k := range s.slots[i] {
		for o := range s.slots[i][k].ops {
			s.slots[i][k].ops[o].interval = int16(min(n, math.MaxInt16))
		}
		if o := &s.slots[i][k].ops[0]; !o.compute() {
			n++
		}
	}
}

// transfers sets own of every communication to its transfer: from the last
// member's start to the first member's end.
func (s *step) transfers() {
	type span struct{ start, end int64 }
	spans := make([]span, len(s.meetings))
	each := func(f func(o *op)) {
		for i := range s.slots {
			for j := range s.slots[i] {
				for k := range s.slots[i][j].ops {
					if o := &s.slots[i][j].ops[k]; !o.compute() {
						f(o)
					}
				}
			}
		}
	}
	each(func(o *op) {
		p := &spans[o.meet]
		if o.part != awaits {
			p.start = max(p.start, o.start)
		}
		if p.end == 0 || o.end < p.end {
			p.end = o.end
		}
	})
	each(func(o *op) { o.own = max(0, spans[o.meet].end-spans[o.meet].start) })
}

// complete checks that the graph can be played to its end.
func (s *step) complete() error {
	p := newPlayer(s)
	if _, ok := p.play(recordedOwn); !ok {
		return fmt.Errorf("replay step %d: communication of its ranks doesn't match (records are missing)", s.number)
	}
	return nil
}
