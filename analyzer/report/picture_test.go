package report

import (
	"fmt"
	"math/rand/v2"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// sample is a job to draw: made up, with one slow rank, for looking at.
type sample struct {
	ranks, stages, perNode, steps int
	slow                          int     // rank, -1 none
	factor                        float64 // of the slow rank
	since                         int     // step index
	noise                         float64
	missing                       float64
}

// picture draws a sample: rank r is in stage r/(ranks/stages) of replica r%(ranks/stages).
func (s sample) picture() *Picture {
	random := rand.New(rand.NewPCG(1, uint64(s.ranks)))
	p := &Picture{Nodes: (s.ranks + s.perNode - 1) / s.perNode}
	replicas := s.ranks / s.stages
	for r := range s.ranks {
		p.Ranks = append(p.Ranks, Rank{Rank: r, Row: r, Node: fmt.Sprintf("node-%d", r/s.perNode), Stage: r / replicas, Replica: r % replicas, Role: r / replicas})
	}

	fp := make([][]float32, s.steps)
	wait := make([][]float32, s.steps)
	step := make([][]float32, s.steps)
	for k := range fp {
		fp[k], wait[k], step[k] = make([]float32, s.ranks), make([]float32, s.ranks), make([]float32, s.ranks)
	}

	for k := range s.steps {
		p.Steps = append(p.Steps, int64(100+k))
		work := 1 + 0.04*random.NormFloat64()
		slowest := 0.0
		for r := range s.ranks {
			v := (0.8 + 0.1*float64(r/replicas)) * work * (1 + s.noise*random.NormFloat64())
			if r == s.slow && k >= s.since {
				v *= s.factor
			}

			fp[k][r] = float32(v)
			slowest = max(slowest, v)
		}

		for r := range s.ranks {
			step[k][r] = float32(slowest * 1.2)
			wait[k][r] = step[k][r] - fp[k][r]
			if random.Float64() < s.missing {
				fp[k][r], wait[k][r], step[k][r] = nan, nan, nan
			}
		}
	}

	p.Metrics = map[string][][]float32{"fp": fp, "wait": wait, "step": step}
	sets := make([][]int, s.stages)
	for r := range s.ranks {
		sets[r/replicas] = append(sets[r/replicas], r)
	}

	p.Peers = func(int) [][]int { return sets }
	p.Unmeasured = []string{"No checkpoint was recorded (kind SaveCheckpoint)."}
	return p
}

// verdict is what an analysis would say of the sample.
func (s sample) verdict() *verdict.Verdict {
	v := verdict.New("llama-70b-pretrain")
	v.Source, v.Attempts, v.WorldSize, v.Coverage, v.Decided, v.Roles = "clickhouse://laggard@store:9000/laggard", 1, s.ranks, 1-s.missing, true, "topology"
	v.Steps = verdict.Steps{First: 100, Last: int64(99 + s.steps), Analyzed: s.steps}
	v.Healthy = s.slow < 0
	if s.slow >= 0 {
		since := int64(100 + s.since)
		v.JobImpact = 1 - 1/s.factor
		v.Nodes = []verdict.Node{{
			Node: fmt.Sprintf("node-%d", s.slow/s.perNode), State: verdict.Degraded, Cause: verdict.Compute, Ranks: []int{s.slow}, Devices: s.perNode,
			Slowdown: s.factor, JobImpact: 1 - 1/s.factor, SinceStep: since, DetectedStep: since + 5, Confidence: 0.997,
			Evidence: []verdict.Evidence{
				{Metric: "fp", Rank: s.slow, Value: 0.85 * s.factor, Peers: 0.85, Z: 41.2}, {Metric: "wait", Rank: s.slow, Value: 0.11, Peers: 0.64, Z: -22.5},
			},
			Detail: "its forward time is up and its waiting is down by the same amount, and no other rank of its pipeline is slower than its peers",
		}}
	}

	return v
}

var samples = map[string]sample{
	"8":       {ranks: 8, stages: 1, perNode: 2, steps: 120, slow: 5, factor: 1.32, since: 40, noise: 0.02, missing: 0.01},
	"64":      {ranks: 64, stages: 4, perNode: 8, steps: 400, slow: 17, factor: 1.12, since: 150, noise: 0.02},
	"8192":    {ranks: 8192, stages: 8, perNode: 8, steps: 240, slow: 4321, factor: 1.25, since: 70, noise: 0.03},
	"1024":    {ranks: 1024, stages: 1, perNode: 8, steps: 300, slow: 333, factor: 1.08, since: 0, noise: 0.015, missing: 0.02},
	"healthy": {ranks: 16, stages: 2, perNode: 8, steps: 90, slow: -1, noise: 0.02},
}
