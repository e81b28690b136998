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
	Exposed    int64 // communication: ns at its end for which it blocked its rank; -1 = all of it
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
	// Repaired is the share of step time that the job saves when the ranks of a
	// repair work like their peers, by its name, Together when all of them do.
	Repaired map[string]float64 `json:"repaired,omitempty"`
	Together float64            `json:"together,omitempty"`
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
	chosen map[int64]bool // nil = all
	at     map[position]int
	words  map[string]string
}

// NewJob returns an empty job that takes the ranges of those steps, nil = all.
func NewJob(l Layout, steps []int64) *Job {
	j := &Job{layout: l, steps: map[int64]map[int][]Range{}, length: map[int64]int64{}, at: map[position]int{}, words: map[string]string{}}
	if steps != nil {
		j.chosen = map[int64]bool{}
		for _, n := range steps {
			j.chosen[n] = true
		}
	}
	return j
}

// Repair is ranks that work like their peers, for once.
type Repair struct {
	Name     string
	Ranks    []int
	Slowdown float64 // their computing takes that many times as long as peers'; 0 = as long
	Loading  float64 // the same of loading data
	// Host: what they spend beside their forward passes is brought to their peers'
	// time, place by place, instead: a slow host delays, it doesn't stretch.
	Host bool
}

// Ranges returns how many ranges are held.
func (j *Job) Ranges() int {
	n := 0
	for _, ranks := range j.steps {
		for _, rs := range ranks {
			n += len(rs)
		}
	}
	return n
}

// Add adds the ranges of one rank in one step, whose recorded length is stepNs.
func (j *Job) Add(step int64, rank int, stepNs int64, ranges []Range) {
	if j.steps[step] == nil {
		j.steps[step] = map[int][]Range{}
	}
	j.steps[step][rank] = append(j.steps[step][rank], ranges...)
	j.length[step] = max(j.length[step], stepNs)
}

// Replay plays all steps: as they were, alike, and with each repair. Times are summed
// over the steps before they are divided. progress may be nil.
func (j *Job) Replay(repairs []Repair, progress func(done, total int)) (*Result, error) {
	j.meet()
	graphs, skipped := j.graphs()
	if len(graphs) == 0 {
		return nil, ErrNoGraph
	}
	r := &replay{layout: j.layout, steps: graphs, skipped: skipped, progress: progress}
	for _, s := range graphs {
		r.players = append(r.players, newPlayer(s))
	}
	r.ideals()
	return r.result(repairs), nil
}

func (j *Job) graphs() (graphs []*step, skipped int) {
	numbers := make([]int64, 0, len(j.steps))
	for n := range j.steps {
		numbers = append(numbers, n)
	}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	for _, ranks := range j.steps {
		for rank, rs := range ranks {
			ranks[rank] = cut(rs)
		}
	}
	fillGaps(j.steps)
	for _, n := range numbers {
		s, err := build(n, j.steps[n], j.length[n])
		delete(j.steps, n) // the graph has it all
		if err != nil || len(s.meetings) == 0 {
			skipped++
			continue
		}
		graphs = append(graphs, s)
	}
	return graphs, skipped
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sort.Float64s(x)
	return stat.Quantile(0.5, stat.LinInterp, x, nil)
}
