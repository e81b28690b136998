package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Trace is the compute times of a recorded job: what its ranks did, without whom
// they waited for. A job that replays it draws a recorded step for each step (all
// ranks of it together, so what they have in common stays), and plays the waits anew.
type Trace struct {
	Name    string
	Shape   Shape // of the recorded ranks: CP is 1
	Seconds float64
	// Of each recorded step the seconds of the forward and of the backward passes, by rank (stage by
	// stage, in it replica by replica, in it the tensor-parallel neighbours) and micro-batch.
	steps    [][2][][]float64
	Findings []string // that the job has with nothing wrong
}

// shape gives the job the trace's layout; with more replicas copies of the trace stand side by side.
func (t *Trace) shape(c *Config) {
	was := c.Shape
	c.Shape, c.Model.Seconds = t.Shape, t.Seconds
	c.Shape.DP = max(t.Shape.DP, was.DP/t.Shape.DP*t.Shape.DP)
	c.Shape.RanksPerNode = cmp.Or(max(0, was.RanksPerNode), t.Shape.RanksPerNode)
	c.defaults()
}

// draw picks a recorded step for each of some copies of the trace: each draws its own.
func (t *Trace) draw(chance *rand.Rand, copies int) []int {
	steps := make([]int, copies)
	for k := range steps {
		steps[k] = chance.IntN(len(t.steps))
	}

	return steps
}

// pass is a pass's own time as recorded, s. steps are the drawn ones, by copy of the trace.
func (t *Trace) pass(steps []int, a *position, of task) float64 {
	dp := t.Shape.DP
	return t.steps[steps[a.d/dp]][of.way][a.t+t.Shape.TP*(a.p*dp+a.d%dp)][of.micro]
}

// replayable lists the scenarios and families that make sense on a recorded job.
func replayable() []string {
	return slices.DeleteFunc(append(Names(), Families()...), func(n string) bool { return !Replayable(n) })
}

// Replayable reports whether a scenario makes sense on a recorded job, too.
func Replayable(name string) bool { return find(name).replays }

// Replayed is Scenario on a recorded job: the noise of computing is the trace's,
// the rest (network, loading, saving, host) is drawn. The injected rank's recorded
// durations are scaled and all waits follow anew.
func Replayed(name string, seed uint64, t *Trace) (Config, error) {
	if !Replayable(name) {
		return Config{}, fmt.Errorf("scenario %q can't be replayed on a trace: want one of %v", name, replayable())
	}

	d := &draw{trace: t}
	if err := d.from(find(name), seed); err != nil {
		return Config{}, err
	}

	n := &d.c.Noise
	// What the recorded durations show already is not drawn again.
	n.OpSD, n.StepSD, n.WaveSD, n.HeavyShare = 0, 0, 0, 0
	n.DeviceSD = min(n.DeviceSD, 0.003)
	d.c.Work = Work{Phases: d.c.Work.Phases}
	d.c.Expect.Findings = append(d.c.Expect.Findings, t.Findings...)
	d.c.Job, d.c.Trace = fmt.Sprintf("%s-%s-%d", t.Name, name, seed), t.Name
	if err := d.c.Validate(); err != nil {
		return Config{}, fmt.Errorf("scenario %s on %s, seed %d: %w", name, t.Name, seed, err)
	}

	return d.c, nil
}

// onto gives a scenario that was drawn for a recorded job that job again.
func (c *Config) onto(t *Trace) error {
	if t.Shape.DP == 0 || c.Shape.DP%t.Shape.DP != 0 {
		return fmt.Errorf("replay %s: the scenario has %d replicas, the recorded job %d", t.Name, c.Shape.DP, t.Shape.DP)
	}

	c.Replay = t
	return nil
}
