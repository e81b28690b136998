package whatif

import (
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Classes of operations that are not communication, and of sends with receives, by their
// numbers among the job's. Other communication has the class of its op's base word.
const (
	forward record.Word = iota + 1
	backward
	loading
	launch // short time between recorded ranges
	gap    // time between recorded ranges that is taken for compute
	p2p
)

// named are the classes' words, by their numbers: a job's list of words begins with them.
var named = [...]string{"forward", "backward", "loading", "launch", "gap", "p2p"}

// timing is one recorded range of one rank, ns.
type timing struct {
	start, end int64
	// own is for how long the range kept its rank busy: computing, or blocked at its end
	// by communication.
	own   int64
	class record.Word
	group record.Word // number of the communicator; 0 = compute
	peer  int32       // send, receive: the other's place in the group, else 0
	send  bool        // the sending side of p2p
}

// Take adds a part of the stored raw ranges (`--records all`) and of the ranks'
// identities, which say the positions in the groups, in any order. Nothing of them
// is kept but what is played: ranges of the chosen steps.
func (j *Job) Take(ranks []row.Rank, records []row.Record) {
	for i := range ranks {
		rank := int(ranks[i].Rank)
		if j.at[rank] == nil {
			j.at[rank] = map[record.Word]int32{}
		}

		for _, g := range ranks[i].Groups {
			if _, name, index := topology.SplitGroup(g); index >= 0 {
				j.at[rank][j.groups.Add(name)] = int32(index)
			}
		}
	}

	for i := range records {
		if r := &records[i]; r.Step >= 0 && r.Open == 0 && (j.chosen == nil || j.chosen[r.Step]) {
			j.add(r)
		}
	}
}

// add takes a range. Communication counts as long as it blocked the rank, where that is known; what the step's
// bounds enclose beside ranges is work as well, so they stand as two ranges without length.
func (j *Job) add(r *row.Record) {
	s := timing{start: r.StartNs, end: r.StartNs + r.DurNs, own: r.DurNs}
	switch r.Kind {
	case "FP":
		s.class = forward
	case "backward":
		s.class = backward
	case "DataLoader":
		s.class = loading
	case "Communication":
		if s.group = j.groups.Add(r.Group); s.group == 0 {
			return
		}

		if s.class = p2p; r.Op == "send" || r.Op == "recv" {
			s.peer, s.send = r.Peer, r.Op == "send"
		} else {
			s.class = j.classes.Add(r.Op)
		}

		if r.ExposedNs >= 0 {
			s.own = min(r.ExposedNs, r.DurNs)
		}
	case "Step":
		// What lies between a step's bounds and its first and last range is work too.
		of := j.step(r.Step)
		of.length = max(of.length, r.DurNs)
		bounds := []timing{{start: s.start, end: s.start, class: launch}, {start: s.end, end: s.end, class: launch}}
		of.ranges[int(r.Rank)] = append(of.ranges[int(r.Rank)], bounds...)
		return
	default:
		return
	}

	of := j.step(r.Step)
	of.ranges[int(r.Rank)] = append(of.ranges[int(r.Rank)], s)
}

// step returns what was recorded of a step.
func (j *Job) step(n int64) *recorded {
	s := j.steps[n]
	if s == nil {
		s = &recorded{ranges: map[int][]timing{}}
		j.steps[n] = s
	}

	return s
}

// Spread chooses at most limit of the steps, evenly; 0 = all. A job keeps all ranges of
// its steps in memory.
func Spread(steps []int64, limit int) []int64 {
	if limit <= 0 || len(steps) <= limit {
		return steps
	}

	few := make([]int64, 0, limit)
	for i := range limit {
		few = append(few, steps[i*len(steps)/limit])
	}

	return few
}
