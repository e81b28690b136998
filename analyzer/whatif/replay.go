package whatif

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// replay holds the graphs and the ideal duration of each class of operation:
// the mean of compute, the median of a transfer (OSDI'25, section 3).
type replay struct {
	ranks          []int // in order; what follows is by index in it
	stage, replica []int
	typical        [][]int64 // by class: the median of compute within the rank's stage

	steps   []*step
	skipped int
	classes []string
	ideal   []int64 // by class; -1 = there is no such operation
	// Until playing is set, plays are counted and not done: what is to be done is known before it begins.
	playing     bool
	progress    func(done, total int)
	done, plays int
}

// newReplay returns the replay of steps whose ranks are these, in order. A rank that the layout does not know
// counts to stage 0 of replica 0.
func newReplay(j *Job, ranks []int, steps []*step) *replay {
	r := &replay{ranks: ranks, steps: steps, classes: j.classes.List()}
	for _, rank := range ranks {
		stage, replica := 0, 0
		if row, ok := slices.BinarySearch(j.layout.Ranks, rank); ok {
			replica = int(j.layout.Replica[row])
			if g := j.layout.Role[row]; g >= 0 {
				stage = j.layout.Roles[g].Stage
			}
		}

		r.stage, r.replica = append(r.stage, stage), append(r.replica, replica)
	}

	r.ideals()
	return r
}

// each calls f for all operations but the waits: each transfer counts once a member.
func (r *replay) each(f func(o *op)) {
	for _, s := range r.steps {
		for i := range s.ops {
			if o := &s.ops[i]; o.verb != waits {
				f(o)
			}
		}
	}
}

// ideals fixes how long each class of operation would take if everybody worked alike: the median of a
// transfer, and of compute the mean, for the work is the same in sum however it is dealt out. typical is
// what a rank of the stage computes, by median.
func (r *replay) ideals() {
	sums, computed := make([]int64, len(r.classes)), make([]int64, len(r.classes))
	transfers := make([][]float64, len(r.classes))
	stages := map[int][][]float64{}
	for _, s := range r.stage {
		stages[s] = make([][]float64, len(r.classes))
	}

	r.each(func(o *op) {
		if o.verb != computes {
			transfers[o.class] = append(transfers[o.class], float64(o.own))
			return
		}

		sums[o.class] += o.own
		computed[o.class]++
		of := stages[r.stage[o.rank]]
		of[o.class] = append(of[o.class], float64(o.own))
	})
	r.ideal = make([]int64, len(r.classes))
	for c := range r.classes {
		switch {
		case len(transfers[c]) > 0:
			r.ideal[c] = int64(median(transfers[c]))
		case computed[c] > 0:
			r.ideal[c] = sums[c] / computed[c]
		default:
			r.ideal[c] = -1
		}
	}

	typical := map[int][]int64{}
	for s, of := range stages {
		for _, x := range of {
			typical[s] = append(typical[s], int64(median(x)))
		}
	}

	for _, s := range r.stage {
		r.typical = append(r.typical, typical[s])
	}
}

// median is 0 for none: a class without operations takes no time.
func median(x []float64) float64 { return robust.Finite(robust.Median64(x), 0) }

// total plays every step with the durations that choose gives, which only reads, and
// returns the sum of the step times, ns; NaN of plays that are only counted, for no condition on a
// figure holds then that would leave others out.
func (r *replay) total(choose func(o *op) int64) float64 {
	if !r.playing {
		r.plays++
		return math.NaN()
	}

	times := make([]int64, len(r.steps))
	parallel(r.steps, func(i int, s *step) { times[i] = s.play(choose) })
	sum := 0.0
	for _, t := range times {
		sum += float64(t)
	}

	r.done++
	if r.progress != nil {
		r.progress(r.done, r.plays)
	}

	return sum
}

// asRecorded chooses the duration that was recorded.
func asRecorded(o *op) int64 { return o.own }

// alike plays everything in its ideal time but what is to stay as it was.
func (r *replay) alike(but func(o *op) bool) float64 {
	return r.total(func(o *op) int64 {
		if but(o) {
			return o.own
		}

		return r.ideal[o.class]
	})
}

// slowShare is the part of the workers that MW repairs.
const slowShare = 0.03

// result plays whatever a verdict.WhatIf says, each figure one or a few plays of all steps.
func (r *replay) result(repairs []Repair) *verdict.WhatIf {
	workers := r.worst()
	was, ideal := r.total(asRecorded), r.alike(func(*op) bool { return false })
	recorded := 0.0
	for _, s := range r.steps {
		recorded += float64(s.recorded)
	}

	res := &verdict.WhatIf{
		Steps: len(r.steps), Skipped: r.skipped, Fidelity: was / recorded, Slowdown: was / ideal,
		ByKind: map[string]float64{}, ByRank: map[int]float64{},
		ByStage: map[int]float64{}, ByReplica: map[int]float64{}, Gain: map[int]float64{},
	}
	for c, name := range r.classes {
		if r.ideal[c] >= 0 {
			res.ByKind[name] = r.alike(func(o *op) bool { return o.class == record.Word(c) }) / ideal
		}
	}

	r.repair(res, repairs, was)
	r.workers(res, workers, was, ideal)
	return res
}

// repair fills what the repairs save, each alone and all together.
func (r *replay) repair(res *verdict.WhatIf, repairs []Repair, was float64) {
	if len(repairs) == 0 {
		return
	}

	delays, told := r.delays(repairs), map[int]bool{}
	for p := range delays {
		told[r.ranks[p.rank]] = true
	}

	repairs = slices.Clone(repairs)
	for i := range repairs { // without peers nothing tells a delay
		p := &repairs[i]
		p.Host = p.Host && slices.ContainsFunc(p.Ranks, func(rank int) bool { return told[rank] })
	}

	res.Repaired = map[string]float64{}
	for i := range repairs {
		res.Repaired[repairs[i].Name] = r.saved(repairs[i:i+1], delays, was)
	}

	res.Together = r.saved(repairs, delays, was)
}

// saved is the share of the time that some repairs save together: what is slow is as many times quicker as it
// was slower. delays are those of ranks whose host is slow.
func (r *replay) saved(some []Repair, delays map[phase]float64, was float64) float64 {
	by := make([]*Repair, len(r.ranks))
	for k := range some {
		for _, rank := range some[k].Ranks {
			if i, ok := slices.BinarySearch(r.ranks, rank); ok {
				by[i] = &some[k]
			}
		}
	}

	now := r.total(func(o *op) int64 {
		p, faster := by[o.rank], 1.0
		switch {
		case p == nil || o.verb != computes:
		case p.Host && delayed(o):
			faster = delays[phase{o.rank, o.phase}]
		case p.Host:
		case o.class == loading:
			faster = p.Loading
		default:
			faster = p.Slowdown
		}

		if faster <= 1 {
			return o.own
		}

		return int64(float64(o.own) / faster)
	})
	return math.Max(0, 1-now/was)
}

// mostWorkers bounds the workers that are played one by one.
const mostWorkers = 64

// worst returns the ranks, by index, that exceed their stage's median work by most, of
// each a play is worth its time, the worst first.
func (r *replay) worst() []int {
	all := make([]int, len(r.ranks))
	for i := range all {
		all[i] = i
	}

	if len(all) <= mostWorkers {
		return all
	}

	excess := make([]int64, len(all))
	r.each(func(o *op) {
		if o.verb == computes {
			excess[o.rank] += o.own - r.typical[o.rank][o.class]
		}
	})
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(excess[b], excess[a]) })
	return all[:mostWorkers]
}

// workers fills what is said of single ranks, of stages, and of their replicas.
func (r *replay) workers(res *verdict.WhatIf, workers []int, was, ideal float64) {
	for _, w := range workers {
		rank := r.ranks[w]
		res.ByRank[rank] = r.alike(func(o *op) bool { return int(o.rank) == w }) / ideal
		repaired := r.total(func(o *op) int64 {
			if int(o.rank) == w && o.verb == computes {
				return min(o.own, r.typical[w][o.class])
			}

			return o.own
		})
		res.Gain[rank] = math.Max(0, 1-repaired/was)
		if q := r.replica[w]; res.ByReplica[q] == 0 {
			res.ByReplica[q] = r.alike(func(o *op) bool { return r.replica[o.rank] == q }) / ideal
		}
	}

	for _, s := range r.stage {
		if res.ByStage[s] == 0 {
			res.ByStage[s] = r.alike(func(o *op) bool { return r.stage[o.rank] == s }) / ideal
		}
	}

	if was <= ideal { // no time is lost that could be shared out
		return
	}

	slices.SortStableFunc(workers, func(a, b int) int { return cmp.Compare(res.ByRank[r.ranks[b]], res.ByRank[r.ranks[a]]) })
	slowest := make([]bool, len(r.ranks))
	for _, w := range workers[:min(len(workers), max(1, int(slowShare*float64(len(r.ranks)))))] {
		slowest[w] = true
	}

	share := func(repaired func(rank int32) bool) float64 {
		without := r.alike(func(o *op) bool { return !repaired(o.rank) })
		return (was - without) / (was - ideal)
	}
	last := max(0, slices.Max(r.stage))
	res.MW = share(func(rank int32) bool { return slowest[rank] })
	res.MS = share(func(rank int32) bool { return r.stage[rank] == last })
}
