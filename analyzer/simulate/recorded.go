package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Recorded collects the rows of a recorded job to be replayed. The zero value is
// ready to use.
type Recorded struct {
	ranks map[int]*recordedRank
}

// recordedRank is what is kept of a rank.
type recordedRank struct {
	identity row.Rank            // of the process that began last
	steps    map[uint64]row.Step // of one process, the last one
}

// Add takes rows of the job, all of them in any order. Communication is of no use: waits are played
// anew.
func (r *Recorded) Add(rows *row.Rows) {
	for i := range rows.Ranks {
		x := &rows.Ranks[i]
		if of := r.at(x.Rank); x.StartedNs >= of.identity.StartedNs {
			of.identity = *x
			of.identity.Groups, of.identity.GroupRanks = slices.Clone(x.Groups), slices.Clone(x.GroupRanks)
		}
	}

	for i := range rows.Steps {
		x := &rows.Steps[i]
		r.at(x.Rank).step(x)
	}
}

// at returns what is kept of a rank, nothing yet when it is new.
func (r *Recorded) at(rank uint32) *recordedRank {
	if r.ranks == nil {
		r.ranks = map[int]*recordedRank{}
	}

	if r.ranks[int(rank)] == nil {
		r.ranks[int(rank)] = &recordedRank{identity: row.Rank{StartedNs: math.MinInt64}, steps: map[uint64]row.Step{}}
	}

	return r.ranks[int(rank)]
}

// step keeps a step that has a forward time. Rows of an older process of the rank are left
// out, whatever order they come in.
func (r *recordedRank) step(x *row.Step) {
	if x.FPNs <= 0 || x.FPCount == 0 || x.StepNs <= 0 || x.Flags&row.FlagOpen != 0 {
		return
	}

	for _, old := range r.steps { // all of one process
		if old.Incarnation != x.Incarnation && x.StartNs <= old.StartNs {
			return
		}

		if old.Incarnation != x.Incarnation {
			clear(r.steps)
		}

		break
	}

	r.steps[x.Step] = *x
}

// Trace makes a trace of what was collected: each rank's forward and backward time,
// spread evenly over its micro-batches. What no range says of the backward pass is
// taken from the rank's own time, or twice the forward. Every rank is brought to the
// median pace of its stage, so that what is replayed is healthy, with the noise as
// recorded. t has the groups, nil for those of the ranks' identities.
func (r *Recorded) Trace(name string, t *topology.File) (*Trace, error) {
	maps.DeleteFunc(r.ranks, func(_ int, x *recordedRank) bool { return len(x.steps) == 0 })
	if len(r.ranks) == 0 {
		return nil, errors.New("replay job " + name + ": no rank recorded a forward pass: switch FP on")
	}

	r.last()
	if t == nil || len(t.Groups) == 0 {
		var err error
		if t, err = r.groups(); err != nil {
			return nil, fmt.Errorf("replay job %s: %w", name, err)
		}
	}

	order, shape := grid(slices.Sorted(maps.Keys(r.ranks)), t)
	numbers := slices.Sorted(maps.Keys(r.ranks[order[0]].steps))
	for _, rank := range order[1:] {
		numbers = slices.DeleteFunc(numbers, func(n uint64) bool {
			_, recorded := r.ranks[rank].steps[n]
			return !recorded
		})
	}

	if len(numbers) == 0 {
		return nil, fmt.Errorf("replay job %s: no step that all of %d ranks recorded", name, len(order))
	}

	out := &Trace{Name: name, Shape: shape}
	for _, n := range numbers {
		out.Shape.MicroBatches = max(out.Shape.MicroBatches, min(int(r.ranks[order[0]].steps[n].FPCount), maxMicroBatches))
	}

	var lengths []float64
	for _, n := range numbers {
		s := newStep(len(order))
		for i, rank := range order {
			x := r.ranks[rank].steps[n]
			s[forth][i] = evenly(float64(x.FPNs)/1e9, out.Shape.MicroBatches)
			s[back][i] = evenly(backwardOf(&x)/1e9, out.Shape.MicroBatches)
			lengths = append(lengths, float64(x.StepNs)/1e9)
		}

		out.steps = append(out.steps, s)
	}

	slices.Sort(lengths)
	out.Seconds = lengths[len(lengths)/2]
	out.level()
	return out, out.settle()
}

// level brings every rank to the pace of the one in the middle of its stage, the
// faster one of two.
func (t *Trace) level() {
	for stage := range t.Shape.PP {
		ranks := t.stageOf(stage * t.Shape.DP * t.Shape.TP)
		for way := range t.steps[0] {
			pace := make([]float64, len(ranks))
			for k, i := range ranks {
				pace[k] = t.pace(way, i)
			}

			want := slices.Sorted(slices.Values(pace))[(len(pace)-1)/2]
			for k, i := range ranks {
				t.scale(way, i, want/pace[k])
			}
		}
	}
}

// last drops the ranks whose processes had ended when the last attempt began.
func (r *Recorded) last() {
	// A restart may have left ranks out: they end before the last rank begins.
	began := int64(math.MinInt64)
	ended := map[int]int64{}
	for rank, x := range r.ranks {
		first, end := int64(math.MaxInt64), int64(math.MinInt64)
		for _, s := range x.steps {
			first, end = min(first, s.StartNs), max(end, s.StartNs+s.StepNs)
		}

		began, ended[rank] = max(began, first), end
	}

	maps.DeleteFunc(r.ranks, func(rank int, _ *recordedRank) bool { return ended[rank] < began })
}

// backwardOf is a step's backward time as far as its row tells, ns.
func backwardOf(x *row.Step) float64 {
	switch {
	case x.BackwardNs > 0:
		return float64(x.BackwardNs)
	case x.SelfNs > x.FPNs:
		return float64(x.SelfNs - x.FPNs)
	}

	return 2 * float64(x.FPNs)
}

// evenly spreads a time over n passes.
func evenly(all float64, n int) []float64 { return slices.Repeat([]float64{all / float64(n)}, n) }

// groups are those of the ranks' identities.
func (r *Recorded) groups() (*topology.File, error) {
	var all []record.Group
	for _, x := range r.ranks {
		for k, text := range x.identity.Groups {
			if k >= len(x.identity.GroupRanks) {
				break
			}

			dim, name, index := topology.SplitGroup(text)
			if index < 0 {
				return nil, fmt.Errorf("parse group %q: want dim:name:index:size", text)
			}

			g := record.Group{Dim: dim, Name: name}
			for _, rank := range x.identity.GroupRanks[k] {
				g.Ranks = append(g.Ranks, int(rank))
			}

			all = append(all, g)
		}
	}

	return topology.FromGroups(all), nil
}

// grid puts the recorded ranks, ascending, in the order of a trace: stage by stage, replica by
// replica, tensor-parallel neighbours side by side. Where the groups are no whole
// grid every rank is a replica of its own.
func grid(ranks []int, t *topology.File) ([]int, Shape) {
	flat := Shape{DP: len(ranks), RanksPerNode: 2}
	flat.defaults()
	pipes, tensors := groupsOf(ranks, t, "pp"), groupsOf(ranks, t, "tp")
	tp, pp := 1, 1
	for _, g := range tensors {
		tp = max(tp, len(g))
	}

	for _, g := range pipes {
		pp = max(pp, len(g))
	}

	if len(ranks)%(tp*pp) != 0 {
		return ranks, flat
	}

	shape := flat
	shape.TP, shape.PP, shape.DP = tp, pp, len(ranks)/(tp*pp)
	order := make([]int, len(ranks))
	filled := map[int]bool{}
	replica, next := map[int]int{}, 0 // replica of a rank, known from one rank of it on
	for _, rank := range ranks {
		pipe, tensor := groupOf(pipes, rank, pp), groupOf(tensors, rank, tp)
		if pipe == nil || tensor == nil {
			return ranks, flat
		}

		d, ok := replica[rank]
		if !ok {
			d = next
			next++
			for _, a := range tensor { // the pipelines of its tensor-parallel neighbours are its replica
				for _, b := range groupOf(pipes, a, pp) {
					replica[b] = d
				}
			}
		}

		at := slices.Index(tensor, rank) + tp*(d+shape.DP*slices.Index(pipe, rank))
		if at >= len(order) || filled[at] {
			return ranks, flat
		}

		filled[at], order[at] = true, rank
	}

	return order, shape
}

// groupsOf are the recorded ranks of the groups of a dimension, two or more.
func groupsOf(ranks []int, t *topology.File, dim string) [][]int {
	var out [][]int
	for _, g := range t.Groups {
		if topology.Dim(g.Dim) != dim {
			continue
		}

		of := slices.DeleteFunc(slices.Clone(g.Ranks), func(rank int) bool {
			_, recorded := slices.BinarySearch(ranks, rank)
			return !recorded
		})
		if len(of) > 1 {
			out = append(out, of)
		}
	}

	return out
}

// groupOf is the group of a rank, itself alone where groups have one member, nil
// where it has none of that size.
func groupOf(groups [][]int, rank, size int) []int {
	if size == 1 {
		return []int{rank}
	}

	for _, g := range groups {
		if len(g) == size && slices.Contains(g, rank) {
			return g
		}
	}

	return nil
}
