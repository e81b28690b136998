package whatif

import (
	"math"
	"runtime"
	"slices"
	"sort"
	"unique"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"
)

// replay holds the graphs and the ideal duration of each class of operation:
// the mean of compute, the median of a transfer (OSDI'25, section 3).
type replay struct {
	layout  Layout
	steps   []*step
	skipped int
	players []*player // of steps
	// Plays done, and to be done as far as is known.
	progress    func(done, total int)
	done, plays int
	ideal       map[unique.Handle[string]]int64
	typical     map[stageClass]int64 // the median of compute within a stage
}

type stageClass struct {
	stage int
	class unique.Handle[string]
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
	compute, transfer := map[unique.Handle[string]][]float64{}, map[unique.Handle[string]][]float64{}
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
	r.ideal, r.typical = map[unique.Handle[string]]int64{}, map[stageClass]int64{}
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

// total plays every step with the duration that choose gives, which only reads, and
// returns the sum of the step times, ns. Steps are played in parallel: each has a player
// of its own.
func (r *replay) total(choose func(rank int, o *op) int64) float64 {
	times := make([]int64, len(r.steps))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for k, s := range r.steps {
		g.Go(func() error {
			times[k], _ = r.players[k].play(func(i int, o *op) int64 { return choose(s.ranks[i], o) })
			return nil
		})
	}
	_ = g.Wait() // no play fails
	sum := 0.0
	for _, t := range times {
		sum += float64(t)
	}
	r.done++
	if r.progress != nil {
		r.progress(r.done, max(r.done, r.plays))
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

func (r *replay) result(repairs []Repair) *Result {
	stages, replicas := map[int]bool{}, map[int]bool{}
	ranks, _ := r.ranks()
	for _, w := range ranks {
		stages[r.layout.Stage[w]], replicas[r.layout.Replica[w]] = true, true
	}
	r.plays = 2 + len(r.ideal) + 1 + len(repairs) + 2*min(len(ranks), mostWorkers) + len(stages) + min(len(replicas), mostWorkers) + 2
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
		res.ByKind[class.Value()] = r.total(r.keep(func(_ int, o *op) bool { return o.class == class })) / ideal
	}
	r.repair(res, repairs, was)
	r.workers(res, was, ideal)
	return res
}

// repair fills what the repairs save, each alone and all together.
func (r *replay) repair(res *Result, repairs []Repair, was float64) {
	if len(repairs) == 0 {
		return
	}
	delays := r.delays(repairs)
	better := func(some []Repair) float64 {
		factor, host := map[int][2]float64{}, map[int]bool{}
		for _, p := range some {
			for _, rank := range p.Ranks {
				factor[rank], host[rank] = [2]float64{max(1, p.Slowdown), max(1, p.Loading)}, p.Host
			}
		}
		now := r.total(func(rank int, o *op) int64 {
			f, ok := factor[rank]
			switch {
			case !ok || !o.compute():
				return o.own
			case host[rank]:
				if x, ok := delays[interval{rank, o.interval}]; ok && o.class != forward && o.class != loading {
					return int64(float64(o.own) / x)
				}
				return o.own
			case o.class == loading:
				return int64(float64(o.own) / f[1])
			}
			return int64(float64(o.own) / f[0])
		})
		return math.Max(0, 1-now/was)
	}
	res.Repaired = map[string]float64{}
	for i := range repairs {
		res.Repaired[repairs[i].Name] = better(repairs[i : i+1])
	}
	res.Together = better(repairs)
}

// mostWorkers bounds the workers that are played one by one.
const mostWorkers = 64

// worst returns the ranks that exceed their stage's median work by most, of each
// a play is worth its time, the worst first.
func (r *replay) worst(ranks []int) []int {
	if len(ranks) <= mostWorkers {
		return ranks
	}
	excess := map[int]float64{}
	r.each(func(rank int, o *op) {
		if o.compute() {
			excess[rank] += float64(o.own - r.typical[stageClass{r.layout.Stage[rank], o.class}])
		}
	})
	some := slices.Clone(ranks)
	sort.SliceStable(some, func(a, b int) bool { return excess[some[a]] > excess[some[b]] })
	return some[:mostWorkers]
}

// workers fills what is said of single ranks, stages and replicas.
func (r *replay) workers(res *Result, was, ideal float64) {
	all, lastStage := r.ranks()
	ranks := r.worst(all)
	for _, w := range all {
		res.ByStage[r.layout.Stage[w]] = 0
	}
	for _, w := range ranks {
		res.ByRank[w] = r.total(r.keep(func(rank int, _ *op) bool { return rank == w })) / ideal
		repaired := r.total(func(rank int, o *op) int64 {
			if rank == w && o.compute() {
				return min(o.own, r.typical[stageClass{r.layout.Stage[rank], o.class}])
			}
			return o.own
		})
		res.Gain[w] = math.Max(0, 1-repaired/was)
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
	for _, w := range ranks[:min(len(ranks), max(1, int(slowShare*float64(len(all)))))] {
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
