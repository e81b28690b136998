package report

import (
	"fmt"
	"math/rand/v2"

	"github.com/laggard-dev/laggard/analyzer/frame"
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

// frame holds a sample's steps: rank r is in stage r/(ranks/stages) of replica r%(ranks/stages).
func (s sample) frame() *frame.Frame {
	random := rand.New(rand.NewPCG(1, uint64(s.ranks)))
	replicas := s.ranks / s.stages
	l := &frame.Layout{Roles: make([]frame.Role, s.stages), Stages: s.stages}
	for r := range s.ranks {
		if r%s.perNode == 0 {
			l.Nodes = append(l.Nodes, fmt.Sprintf("node-%d", len(l.Nodes)))
		}

		l.Ranks, l.Present = append(l.Ranks, r), append(l.Present, true)
		l.Node, l.Role, l.Replica = append(l.Node, int32(r/s.perNode)), append(l.Role, int32(r/replicas)), append(l.Replica, int32(r%replicas))
		role := &l.Roles[r/replicas]
		role.Stage, role.Rows = r/replicas, append(role.Rows, int32(r))
	}

	f := &frame.Frame{Ranks: l.Ranks}
	for k := range s.steps {
		fp, wait, step := make([]float32, s.ranks), make([]float32, s.ranks), make([]float32, s.ranks)
		work := 1 + 0.04*random.NormFloat64()
		slowest := 0.0
		for r := range s.ranks {
			v := (0.8 + 0.1*float64(r/replicas)) * work * (1 + s.noise*random.NormFloat64())
			if r == s.slow && k >= s.since {
				v *= s.factor
			}

			fp[r] = float32(v)
			slowest = max(slowest, v)
		}

		for r := range s.ranks {
			step[r] = float32(slowest * 1.2)
			wait[r] = step[r] - fp[r]
			if random.Float64() < s.missing {
				fp[r], wait[r], step[r] = frame.NaN, frame.NaN, frame.NaN
			}
		}

		c := &frame.Column{Step: int64(100 + k), Layout: l}
		c.V[frame.FP], c.V[frame.Exposed], c.V[frame.Step] = fp, wait, step
		f.Add(c, Drawn)
	}

	return f
}

// picture draws a sample.
func (s sample) picture() *picture { return pictureOf(s.frame()) }

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
