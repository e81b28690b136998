package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of a configuration: what a laptop can run.
const (
	maxWorld        = 1 << 17
	maxSteps        = 1 << 22
	maxMicroBatches = 512
)

// Validate fills the defaults in, with the shape of the job that is replayed, and says what can't be
// simulated.
func (c *Config) Validate() error {
	c.defaults()
	switch err := c.Shape.validate(); {
	case err != nil:
		return err
	case c.Trace != "" && c.Replay == nil:
		return fmt.Errorf("the scenario replays the recorded job %s, which isn't given", c.Trace)
	case c.Steps < 1 || c.Steps > maxSteps || c.FirstStep < 0 || c.FirstStep > 1<<40:
		return fmt.Errorf("steps %d from %d: want 1 to %d, from 0 on", c.Steps, c.FirstStep, maxSteps)
	case c.Loss.RankSteps < 0 || c.Loss.RankSteps > 0.95 || c.Loss.Run < 1:
		return fmt.Errorf("loss %+v: want a share of at most 0.95 in runs of 1 or more", c.Loss)
	case !(c.Model.Seconds > 0 && c.Model.Seconds < 1e5) || c.Model.Buckets < 1 || c.Model.Buckets > 1000:
		return fmt.Errorf("model: seconds %v, buckets %d: want more than 0", c.Model.Seconds, c.Model.Buckets)
	case len(c.Model.Stages) != 0 && len(c.Model.Stages) != c.Shape.PP:
		return fmt.Errorf("model.stages has %d entries: want one for each of %d stages", len(c.Model.Stages), c.Shape.PP)
	case len(c.Work.Elasticity) != 0 && len(c.Work.Elasticity) != c.Shape.PP:
		return fmt.Errorf("work.elasticity has %d entries: want one for each of %d stages", len(c.Work.Elasticity), c.Shape.PP)
	case len(c.Work.Replicas) != 0 && len(c.Work.Replicas) != c.Shape.DP:
		return fmt.Errorf("work.replicas has %d entries: want one for each of %d replicas", len(c.Work.Replicas), c.Shape.DP)
	case slices.ContainsFunc(c.Work.Replicas, func(x float64) bool { return !(x > 0 && x <= 1000) }):
		return fmt.Errorf("work.replicas %v: want factors above 0", c.Work.Replicas)
	}

	words := [][]string{ // the key, its value, and what it may be
		{"loader.ranks", c.Loader.Ranks, "first", "all", "none"},
		{"checkpoint.ranks", c.Checkpoint.Ranks, "replica0", "all"},
		{"record.format", c.Record.Format, "laggard", "taskd"},
	}
	for _, k := range c.Record.Off {
		words = append(words, []string{"record.off names", k, "FP", "Communication", "DataLoader", "SaveCheckpoint"})
	}

	for _, w := range words {
		if !slices.Contains(w[2:], w[1]) {
			return fmt.Errorf("%s %q: want %s", w[0], w[1], strings.Join(w[2:], ", "))
		}
	}

	for i, p := range c.Work.Phases {
		if !(p.Factor > 0 && p.Factor <= 1000) || p.From < 0 || p.Ramp < 0 || p.Every < 0 || p.Steps < 0 || p.Every > 0 && p.Steps == 0 {
			return fmt.Errorf("phase %d: %+v: want a factor above 0, and with every the number of steps", i, p)
		}
	}

	if err := c.validateFaults(); err != nil {
		return err
	}

	if c.Replay != nil {
		c.Replay.shape(c)
	}

	return nil
}

// validate refuses parallel dimensions that don't divide each other or make more ranks than there may be.
func (s *Shape) validate() error {
	for _, n := range []int{s.TP, s.CP, s.DP, s.PP, s.EP, s.MicroBatches, s.RanksPerNode, s.Chunks} {
		if n < 1 || n > maxWorld {
			return fmt.Errorf("shape %+v: sizes are 1 to %d", *s, maxWorld)
		}
	}

	world := 1
	for _, n := range []int{s.TP, s.CP, s.DP, s.PP} {
		if world *= n; world > maxWorld {
			return fmt.Errorf("shape %+v: want a world of at most %d ranks", *s, maxWorld)
		}
	}

	switch {
	case s.DP%s.EP != 0:
		return fmt.Errorf("shape: ep %d doesn't divide dp %d", s.EP, s.DP)
	case s.MicroBatches > maxMicroBatches:
		return fmt.Errorf("micro_batches %d: want at most %d", s.MicroBatches, maxMicroBatches)
	case s.Chunks > 1 && (s.PP < 2 || s.MicroBatches%s.PP != 0 || s.Chunks > maxMicroBatches):
		return fmt.Errorf("shape: %d chunks a stage: want a pipeline whose %d stages divide the %d micro-batches", s.Chunks, s.PP, s.MicroBatches)
	case s.Order != "tp-cp-dp-pp" && s.Order != "tp-cp-pp-dp":
		return fmt.Errorf("shape.order %q: want tp-cp-dp-pp or tp-cp-pp-dp", s.Order)
	}

	return nil
}

// validateFaults refuses a fault on a node or group that the shape doesn't have.
func (c *Config) validateFaults() error {
	nodes := c.Shape.hosts()
	for i, f := range c.Faults {
		_, known := kinds[f.Kind]
		switch {
		case !known:
			return fmt.Errorf("fault %d: kind %q: want one of %v", i, f.Kind, slices.Sorted(maps.Keys(kinds)))
		case f.BurstSteps < 1 || f.BurstMost < f.BurstSteps || f.BurstShare < 0 || f.BurstShare > 0.9 || f.From < 0 || f.BurstEvery < 0:
			return fmt.Errorf("fault %d: bursts of %d steps in a share of %v from step %d on", i, f.BurstSteps, f.BurstShare, f.From)
		case f.Node < 0 || f.Node >= nodes:
			return fmt.Errorf("fault %d: node %d: there are %d", i, f.Node, nodes)
		case f.Kind == Link && newLayout(c.Shape, nil).find(f.Group) < 0:
			return fmt.Errorf("fault %d: no group %q", i, f.Group)
		}
	}

	for i, r := range c.Restarts {
		if r.Layout != nil {
			l := *r.Layout
			l.DP, l.RanksPerNode = 1, c.Shape.RanksPerNode
			l.defaults()
			if err := l.validate(); err != nil && l.EP <= 1 {
				return fmt.Errorf("restart %d: layout: %w", i, err)
			}
		}

		if r.At <= 0 || i > 0 && r.At <= c.Restarts[i-1].At {
			return fmt.Errorf("restart %d at step %d: want growing numbers", i, r.At)
		}
	}

	return nil
}

// defaults fills in what a job without a word on it has.
func (c *Config) defaults() {
	c.Shape.defaults()
	or(&c.Steps, 300)
	or(&c.StartUnix, 1753000000)
	or(&c.Job, fmt.Sprintf("sim-%s-%d", c.Scenario, c.Seed))
	m := &c.Model
	or(&m.Seconds, 2)
	or(&m.BackwardRatio, 2)
	or(&m.Optimizer, 0.02)
	or(&m.HostGap, 0.01)
	or(&m.TPShare, 0.04)
	or(&m.PPShare, 0.01)
	or(&m.DPShare, 0.06)
	or(&m.Buckets, 4)
	or(&c.Noise.DriftSteps, 1000)
	or(&c.Noise.HeavyIndex, 2.5)
	or(&c.Loader.Ranks, "first")
	or(&c.Loader.Share, 0.005)
	or(&c.Loader.SD, 0.2)
	or(&c.Checkpoint.Ranks, "replica0")
	or(&c.Checkpoint.Share, 0.5)
	or(&c.Checkpoint.SD, 0.1)
	or(&c.Checkpoint.HeavyIndex, 2)
	or(&c.Loss.Run, 1)
	or(&c.Record.Format, "laggard")
	for i := range c.Faults {
		or(&c.Faults[i].Factor, 1)
		or(&c.Faults[i].BurstSteps, 1)
		or(&c.Faults[i].BurstMost, c.Faults[i].BurstSteps)
	}
}

// defaults fills in what a shape without a word on it has.
func (s *Shape) defaults() {
	for _, n := range []*int{&s.TP, &s.CP, &s.DP, &s.PP, &s.EP, &s.Chunks} {
		or(n, 1)
	}

	or(&s.Order, "tp-cp-dp-pp")
	or(&s.RanksPerNode, 8)
	if s.PP > 1 {
		or(&s.MicroBatches, 2*s.PP)
	}

	or(&s.MicroBatches, 1)
}

// or gives v a value where it has none.
func or[T comparable](v *T, value T) { *v = cmp.Or(*v, value) }
