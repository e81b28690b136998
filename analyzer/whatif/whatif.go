package whatif

import (
	"errors"
	"sort"

	"gonum.org/v1/gonum/stat"
)

// Range is one recorded range of one rank, ns.
type Range struct {
	Class      string // Forward, Backward, Gap, or the communication's base word
	Group      string // communicator, equal on all its members; "" for compute
	From, To   int    // send, receive: positions in the group, else 0
	Send       bool   // the sending side of P2P
	Start, End int64
	Own        int64 // compute: ns of own work where it is less than End - Start; -1 = all of it
}

// Layout says which ranks do the same work.
type Layout struct {
	Stage   map[int]int // rank → pipeline stage; a missing rank is in stage 0
	Replica map[int]int // rank → data-parallel replica
}

// Result is what the replay says of the job. All slowdowns are quotients of
// simulated step times, 1 = nothing to gain.
type Result struct {
	Steps    int     `json:"steps"`    // replayed
	Skipped  int     `json:"skipped"`  // steps whose communication didn't match (records are missing)
	Fidelity float64 `json:"fidelity"` // replayed / recorded step time

	Slowdown float64            `json:"slowdown"` // S: as it was / everybody alike
	ByKind   map[string]float64 `json:"by_kind"`  // S of an operation kind: only it as it was, the rest alike
	ByRank   map[int]float64    `json:"by_rank"`  // S of a worker: only it as it was
	// ByStage and ByReplica are S of a pipeline stage and of a replica.
	ByStage   map[int]float64 `json:"by_stage"`
	ByReplica map[int]float64 `json:"by_replica"`
	// Gain is the share of step time that the job saves when that rank works like
	// its stage's median, 0…1.
	Gain map[int]float64 `json:"gain"`
	// MW is the share of the slowdown that goes away when the slowest 3 % of the
	// workers (at least one) work alike, MS the same of the last stage.
	MW float64 `json:"m_w"`
	MS float64 `json:"m_s"`
}

// ErrNoGraph is returned by Replay when no step could be replayed: no
// communication with groups was recorded, or too many of its records are missing.
var ErrNoGraph = errors.New("replay: no step has matching communication records of its ranks; turn Communication on for a few steps")

// Job collects ranges step by step.
type Job struct {
	layout Layout
	steps  map[int64]map[int][]Range
	length map[int64]int64
}

// NewJob returns an empty job.
func NewJob(l Layout) *Job {
	return &Job{layout: l, steps: map[int64]map[int][]Range{}, length: map[int64]int64{}}
}

// Add adds the ranges of one rank in one step, whose recorded length is stepNs.
func (j *Job) Add(step int64, rank int, stepNs int64, ranges []Range) {
	if j.steps[step] == nil {
		j.steps[step] = map[int][]Range{}
	}
	j.steps[step][rank] = append(j.steps[step][rank], ranges...)
	j.length[step] = max(j.length[step], stepNs)
}

// Replay plays all steps. Times are summed over the steps before they are divided.
func (j *Job) Replay() (*Result, error) {
	graphs, skipped := j.graphs()
	if len(graphs) == 0 {
		return nil, ErrNoGraph
	}
	r := &replay{layout: j.layout, steps: graphs, skipped: skipped}
	r.ideals()
	return r.result(), nil
}

func (j *Job) graphs() (graphs []*step, skipped int) {
	numbers := make([]int64, 0, len(j.steps))
	for n := range j.steps {
		numbers = append(numbers, n)
	}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	fillGaps(j.steps)
	for _, n := range numbers {
		s, err := build(n, j.steps[n], j.length[n])
		if err != nil || len(s.meetings) == 0 {
			skipped++
			continue
		}
		graphs = append(graphs, s)
	}
	return graphs, skipped
}

// Thresholds of fillGaps.
const (
	gapFloor = 0.5 // of the median forward pass: shorter time between ranges is launch overhead
	gapCap   = 3.0 // times the rank's median gap: longer time is waiting that nobody recorded
)

// fillGaps turns time between a rank's ranges into compute where no backward was
// recorded, and caps it: what is longer than gapCap times the rank's median gap
// is an unrecorded wait, of no work.
func fillGaps(steps map[int64]map[int][]Range) {
	var forward []float64
	for _, ranks := range steps {
		for _, rs := range ranks {
			for _, r := range rs {
				switch r.Class {
				case Backward:
					return
				case Forward:
					forward = append(forward, float64(r.End-r.Start))
				}
			}
		}
	}
	floor := int64(gapFloor * median(forward))
	lengths := map[int][]float64{}
	for _, ranks := range steps {
		for rank, rs := range ranks {
			sort.SliceStable(rs, func(a, b int) bool { return rs[a].Start < rs[b].Start })
			var gaps []Range
			until := int64(0)
			for i, r := range rs {
				if i > 0 && r.Start-until > floor {
					gaps = append(gaps, Range{Class: Gap, Start: until, End: r.Start, Own: -1})
					lengths[rank] = append(lengths[rank], float64(r.Start-until))
				}
				until = max(until, r.End)
			}
			ranks[rank] = append(rs, gaps...)
		}
	}
	for _, ranks := range steps {
		for rank, rs := range ranks {
			limit := int64(gapCap * median(lengths[rank]))
			for i := range rs {
				if rs[i].Class == Gap && rs[i].End-rs[i].Start > limit {
					rs[i].Own = 0
				}
			}
		}
	}
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sort.Float64s(x)
	return stat.Quantile(0.5, stat.LinInterp, x, nil)
}
