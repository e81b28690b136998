package whatif

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat"
)

// replay holds the graphs and the ideal duration of each class of operation:
// the mean of compute, the median of a transfer (OSDI'25, section 3).
type replay struct {
	layout  Layout
	steps   []*step
	skipped int
	ideal   map[string]int64
	typical map[stageClass]int64 // the median of compute within a stage
}

type stageClass struct {
	stage int
	class string
}

func (r *replay) each(f func(rank int, o *op)) {
	for _, s := range r.steps {
		for i := range s.slots {
			for j := range s.slots[i] {
				for k := range s.slots[i][j].ops {
					f(s.ranks[i], &s.slots[i][j].ops[k])
				}
			}
		}
	}
}

func (r *replay) ideals() {
	compute, transfer := map[string][]float64{}, map[string][]float64{}
	stages := map[stageClass][]float64{}
	r.each(func(rank int, o *op) {
		if !o.compute() {
			transfer[o.class] = append(transfer[o.class], float64(o.own))
			return
		}
		compute[o.class] = append(compute[o.class], float64(o.own))
		k := stageClass{r.layout.Stage[rank], o.class}
		stages[k] = append(stages[k], float64(o.own))
	})
	r.ideal, r.typical = map[string]int64{}, map[stageClass]int64{}
	for c, x := range compute {
		r.ideal[c] = int64(stat.Mean(x, nil))
	}
	for c, x := range transfer {
		r.ideal[c] = int64(median(x))
	}
	for k, x := range stages {
		r.typical[k] = int64(median(x))
	}
}

// total plays every step with the duration that choose gives and returns the sum
// of the step times, ns.
func (r *replay) total(choose func(rank int, o *op) int64) float64 {
	sum := 0.0
	for _, s := range r.steps {
		p := newPlayer(s)
		t, _ := p.play(func(i int, o *op) int64 { return choose(s.ranks[i], o) })
		sum += float64(t)
	}
	return sum
}

// keep returns a choice: the recorded duration where as says so, else the ideal one.
func (r *replay) keep(as func(rank int, o *op) bool) func(int, *op) int64 {
	return func(rank int, o *op) int64 {
		if as(rank, o) {
			return o.own
		}
		return r.ideal[o.class]
	}
}

// slowShare is the part of the workers that MW repairs.
const slowShare = 0.03

func (r *replay) result() *Result {
	all := func(int, *op) bool { return true }
	none := func(int, *op) bool { return false }
	was, ideal := r.total(r.keep(all)), r.total(r.keep(none))
	recorded := 0.0
	for _, s := range r.steps {
		recorded += float64(s.recorded)
	}
	res := &Result{
		Steps: len(r.steps), Skipped: r.skipped, Fidelity: was / recorded, Slowdown: was / ideal,
		ByKind: map[string]float64{}, ByRank: map[int]float64{},
		ByStage: map[int]float64{}, ByReplica: map[int]float64{}, Gain: map[int]float64{},
	}
	for class := range r.ideal {
		res.ByKind[class] = r.total(r.keep(func(_ int, o *op) bool { return o.class == class })) / ideal
	}
	r.workers(res, was, ideal)
	return res
}

// workers fills what is said of single ranks, stages and replicas.
func (r *replay) workers(res *Result, was, ideal float64) {
	ranks, lastStage := r.ranks()
	for _, w := range ranks {
		res.ByRank[w] = r.total(r.keep(func(rank int, _ *op) bool { return rank == w })) / ideal
		repaired := r.total(func(rank int, o *op) int64 {
			if rank == w && o.compute() {
				return min(o.own, r.typical[stageClass{r.layout.Stage[rank], o.class}])
			}
			return o.own
		})
		res.Gain[w] = math.Max(0, 1-repaired/was)
		res.ByStage[r.layout.Stage[w]] = 0
		res.ByReplica[r.layout.Replica[w]] = 0
	}
	for s := range res.ByStage {
		res.ByStage[s] = r.total(r.keep(func(rank int, _ *op) bool { return r.layout.Stage[rank] == s })) / ideal
	}
	for q := range res.ByReplica {
		res.ByReplica[q] = r.total(r.keep(func(rank int, _ *op) bool { return r.layout.Replica[rank] == q })) / ideal
	}
	if was <= ideal {
		return
	}
	sort.SliceStable(ranks, func(a, b int) bool { return res.ByRank[ranks[a]] > res.ByRank[ranks[b]] })
	slowest := map[int]bool{}
	for _, w := range ranks[:max(1, int(slowShare*float64(len(ranks))))] {
		slowest[w] = true
	}
	share := func(repaired func(rank int) bool) float64 {
		without := r.total(r.keep(func(rank int, _ *op) bool { return !repaired(rank) }))
		return (was - without) / (was - ideal)
	}
	res.MW = share(func(rank int) bool { return slowest[rank] })
	res.MS = share(func(rank int) bool { return r.layout.Stage[rank] == lastStage })
}

// ranks returns all ranks in order, and the last stage.
func (r *replay) ranks() (ranks []int, lastStage int) {
	seen := map[int]bool{}
	for _, s := range r.steps {
		for _, rank := range s.ranks {
			if !seen[rank] {
				seen[rank] = true
				ranks = append(ranks, rank)
				lastStage = max(lastStage, r.layout.Stage[rank])
			}
		}
	}
	sort.Ints(ranks)
	return ranks, lastStage
}
