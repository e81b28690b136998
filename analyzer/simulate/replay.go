package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Trace is the compute times of a recorded job: what its ranks did, without whom
// they waited for. A job that replays it draws a recorded step for each step (all
// ranks of it together, so what they have in common stays), and plays the waits anew.
type Trace struct {
	Name     string
	Shape    Shape // of the recorded ranks: TP and CP are 1
	Seconds  float64
	Steps    []TraceStep
	Findings []string // that the job has with nothing wrong
	copies   int      // times the replicas of the trace stand side by side; 0 = 1
}

// TraceStep is one recorded step: seconds per rank (stage · DP + replica) and
// micro-batch.
type TraceStep struct {
	Forward, Backward [][]float64
}

// wider returns the trace with n times its replicas: each copy draws its own steps.
func (t *Trace) wider(n int) *Trace {
	w := *t
	w.copies = n
	w.Shape.DP *= n
	return &w
}

// shape gives the job the trace's layout.
func (t *Trace) shape(c *Config) {
	k, prefix, spare := c.Shape.RanksPerNode, c.Shape.NodePrefix, c.Shape.SpareNodes
	c.Shape, c.Model.Seconds = t.Shape, t.Seconds
	c.Shape.NodePrefix, c.Shape.SpareNodes = prefix, spare
	if k > 0 {
		c.Shape.RanksPerNode = k
	}
	c.defaults()
}

// draw picks a recorded step for each copy of the trace.
func (t *Trace) draw(chance *rand.Rand, into []int) []int {
	into = into[:0]
	for range max(1, t.copies) {
		into = append(into, chance.IntN(len(t.Steps)))
	}
	return into
}

// pass is a pass's own time as recorded, s.
func (t *Trace) pass(steps []int, stage, replica int, backward bool, micro int) float64 {
	dp := t.Shape.DP / max(1, t.copies)
	s := &t.Steps[steps[replica/dp]]
	rank := stage*dp + replica%dp
	if backward {
		return s.Backward[rank][micro]
	}
	return s.Forward[rank][micro]
}

// replayable are the scenarios that make sense on a recorded job.
var replayable = []string{
	"healthy", "compute-1.05", "compute-1.10", "compute-1.2", "compute-1.5", "compute-2", "backward-1.2", "thermal-ramp",
	"two-culprits", "slow-link", "dataloader", "checkpoint", "host-delay", "transient", "intermittent", "gc-pauses", "clock-skew",
	"missing-10", "missing-30", "absent-10", "slow-from-start", "job-slow",
}

// Replayable reports whether a scenario makes sense on a recorded job.
func Replayable(name string) bool { return slices.Contains(replayable, name) }

// Replayed is Scenario on a recorded job: the noise of computing is the trace's,
// the rest (network, loading, saving, host) is drawn. The injected rank's recorded
// durations are scaled and all waits follow anew.
func Replayed(name string, seed uint64, t *Trace) (Config, error) {
	if !Replayable(name) {
		return Config{}, fmt.Errorf("scenario %q can't be replayed on a trace: want one of %v", name, replayable)
	}
	for _, s := range scenarios {
		if s.name != name {
			continue
		}
		d := &draw{Rand: rand.New(rand.NewPCG(seed, forScenario+uint64(s.row)<<16)), trace: t}
		d.c.Seed, d.c.Scenario = seed, name
		s.make(d)
		n := &d.c.Noise
		n.OpSD, n.StepSD, n.WaveSD, n.HeavyShare = 0, 0, 0, 0
		n.DeviceSD = min(n.DeviceSD, 0.003)
		d.c.Work = Work{}
		d.c.Expect.Findings = append(d.c.Expect.Findings, t.Findings...)
		d.c.Job = fmt.Sprintf("%s-%s-%d", t.Name, name, seed)
		if err := d.c.Validate(); err != nil {
			return Config{}, fmt.Errorf("scenario %s on %s, seed %d: %w", name, t.Name, seed, err)
		}
		return d.c, nil
	}
	return Config{}, fmt.Errorf("scenario %q is unknown", name)
}
