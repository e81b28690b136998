package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// Passes is one recorded step of a rank: how long it was, and each pass of it, s.
type Passes struct {
	length float64
	ways   [2][]float64 // forth and back; nobody recorded it where back is empty
}

// Evenly is a step of which only the time of all forward and of all backward passes is known, s; that
// of the backward passes need not be. They become n passes alike.
func Evenly(length, forward, backward float64, n int) Passes {
	n = max(1, min(n, maxMicroBatches))
	p := Passes{length: length}
	for way, all := range [2]float64{forward, backward} {
		if all > 0 {
			p.ways[way] = slices.Repeat([]float64{all / float64(n)}, n)
		}
	}

	return p
}

// NewTrace makes a trace of what the ranks of a job recorded, step by step. Every rank is brought to the
// median pace of its stage, so that what is replayed is healthy, with the noise as recorded.
func NewTrace(name string, groups *topology.File, ranks map[int]map[int64]Passes) (*Trace, error) {
	t, _, err := assemble(name, groups, ranks)
	if err != nil {
		return nil, fmt.Errorf("replay job %s: %w", name, err)
	}

	t.level()
	return t, t.settle()
}

// assemble puts the steps together that all ranks recorded in full, the ranks in order. What no range
// says of a backward pass is twice the forward one.
func assemble(name string, groups *topology.File, ranks map[int]map[int64]Passes) (t *Trace, order []int, err error) {
	if len(ranks) == 0 {
		return nil, nil, errors.New("no rank recorded a forward pass: switch FP on")
	}

	order, shape := grid(slices.Sorted(maps.Keys(ranks)), groups)
	t = &Trace{Name: name, Shape: shape}
	// The job's number of micro-batches is the largest: a step with fewer is partial.
	first := ranks[order[0]]
	for _, p := range first {
		t.Shape.MicroBatches = max(t.Shape.MicroBatches, len(p.ways[forth]))
	}

	var lengths []float64
	for _, n := range slices.Sorted(maps.Keys(first)) {
		s, whole := [2][][]float64{make([][]float64, len(order)), make([][]float64, len(order))}, true
		for i, rank := range order {
			p := ranks[rank][n]
			if len(p.ways[back]) == 0 {
				for _, x := range p.ways[forth] {
					p.ways[back] = append(p.ways[back], 2*x)
				}
			}

			for way, passes := range p.ways {
				s[way][i] = passes
				whole = whole && len(passes) == t.Shape.MicroBatches
			}
		}

		if !whole {
			continue
		}

		t.steps = append(t.steps, s)
		for _, rank := range order {
			lengths = append(lengths, ranks[rank][n].length)
		}
	}

	if len(t.steps) == 0 {
		return nil, nil, fmt.Errorf("no step of which all of %d ranks recorded as many passes", len(order))
	}

	slices.Sort(lengths)
	t.Seconds = lengths[len(lengths)/2]
	return t, order, nil
}

// settle measures how long a step is: a healed job is faster than the recorded one,
// and transfers are shares of its step. Each round brings length and transfers nearer to
// each other.
func (t *Trace) settle() error {
	for range 4 {
		played, err := lengths(Config{Steps: 16, Replay: t}, nil)
		if err != nil {
			return err
		}

		slices.Sort(played)
		t.Seconds = played[len(played)/2] / 1e9
	}

	return nil
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

// heal brings rank i to the pace of its stage's others.
func (t *Trace) heal(i int) {
	others := slices.DeleteFunc(t.stageOf(i), func(r int) bool { return r == i })
	if len(others) == 0 {
		return
	}

	for way := range t.steps[0] {
		if mine := t.pace(way, i); mine > 0 {
			t.scale(way, i, t.pace(way, others...)/mine)
		}
	}
}

// stageOf lists the ranks of rank i's stage.
func (t *Trace) stageOf(i int) []int {
	width := t.Shape.DP * t.Shape.TP
	out := make([]int, width)
	for k := range out {
		out[k] = i/width*width + k
	}

	return out
}

// pace is the median pass of some ranks, s: passes that met a hiccup don't count.
func (t *Trace) pace(way int, ranks ...int) float64 {
	var all []float64
	for k := range t.steps {
		for _, r := range ranks {
			all = append(all, t.steps[k][way][r]...)
		}
	}

	slices.Sort(all)
	return all[len(all)/2]
}

// scale makes the passes of rank i longer by a factor.
func (t *Trace) scale(way, i int, factor float64) {
	for k := range t.steps {
		for m := range t.steps[k][way][i] {
			t.steps[k][way][i][m] *= factor
		}
	}
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
