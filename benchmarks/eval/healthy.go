package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// The healthy hours: steps of 10 s, 8 ranks a node.
const (
	healthySteps   = 1440 // 4 h
	healthyStep    = 10.0 // s
	healthyRanks   = 8
	alarmTarget    = 0.1 // per 1,000 node-hours
	boundConfident = 0.95
)

// noiseKind is one kind of noise of the healthy hours.
type noiseKind struct {
	name  string
	noise func(chance *rand.Rand) simulate.Noise
	trace bool // compute times of the recorded jobs, bootstrapped
	// families are the families of jobs in turn, without their faults: whatever else
	// is odd about them. They are half of all hours.
	families bool
}

// share is the part of all hours that a kind of noise has.
func (w *noiseKind) share() float64 {
	if w.families {
		return 0.5
	}

	return 0.5 / float64(len(noises)-1)
}

var noises = []noiseKind{
	{"bootstrapped from the recorded jobs", func(r *rand.Rand) simulate.Noise {
		return simulate.Noise{DeviceSD: 0.003 * r.Float64(), GCShare: 0.01, GCPause: 0.05}
	}, true, false},
	{"heavy-tailed", func(r *rand.Rand) simulate.Noise {
		return simulate.Noise{
			OpSD: 0.01, StepSD: 0.005, DeviceSD: 0.005 * r.Float64(), HeavyShare: 0.01 + 0.04*r.Float64(), HeavyScale: 0.05 + 0.25*r.Float64(),
			HeavyIndex: 1.5 + r.Float64(), GCShare: 0.03, GCPause: 0.1,
		}
	}, false, false},
	{"autocorrelated", func(r *rand.Rand) simulate.Noise {
		return simulate.Noise{OpSD: 0.005, StepSD: 0.003, WaveSD: 0.002 + 0.006*r.Float64(), WaveRho: 0.5 + 0.45*r.Float64(), DeviceSD: 0.005 * r.Float64()}
	}, false, false},
	{"drifting", func(r *rand.Rand) simulate.Noise {
		return simulate.Noise{OpSD: 0.008, StepSD: 0.004, DriftSD: 0.002 + 0.006*r.Float64(), DriftSteps: 200 + 2000*r.Float64(), DeviceSD: 0.005 * r.Float64()}
	}, false, false},
	{name: "the families without their faults", families: true},
}

// bound is the Poisson upper bound of the alarms per 1,000 node-hours: half the quantile of the
// chi-squared distribution with two degrees of freedom more than twice the alarms (Garwood, 1936).
func bound(alarms int, hours float64) float64 {
	return distuv.ChiSquared{K: 2 * float64(alarms+1)}.Quantile(boundConfident) / 2 / hours * 1000
}

// runHealthy plays want node-hours, each kind of noise its share, straight into
// frames, in jobs of that many steps. Jobs are played whole, some at a time, so the
// hours come out above what was asked for.
func runHealthy(ctx context.Context, want float64, steps int, seed uint64, parallel int, traces []*simulate.Trace, progress func(done, total int)) (map[string]tally, error) {
	out := map[string]tally{}
	done := 0.0
	for _, w := range noises {
		if w.trace && len(traces) == 0 {
			continue
		}

		share := want * w.share()
		var jobs tally
		for jobs.hours() < share {
			batch := make(tally, max(1, parallel))
			err := each(ctx, len(batch), parallel, nil, func(i int) (err error) {
				batch[i], err = healthyJob(w, seed+uint64(len(jobs)+i), steps, traces)
				return err
			})
			if err != nil {
				return nil, err
			}

			jobs = append(jobs, batch...)
			if progress != nil {
				progress(int(done+min(jobs.hours(), share)), int(want))
			}
		}

		out[w.name] = jobs
		done += share
	}

	return out, nil
}

// hours are the node-hours of healthy jobs. All their nodes are innocent, so MustNotFlag lists them.
func (t tally) hours() float64 {
	return float64(t.sum(func(o *outcome) int { return len(o.truth.MustNotFlag) * o.steps })) * healthyStep / 3600
}

// healthyConfig draws a healthy job of one kind of noise.
func healthyConfig(w noiseKind, seed uint64, steps int, traces []*simulate.Trace) (simulate.Config, error) {
	chance := rand.New(rand.NewPCG(seed, 77)) // a source of its own: the simulator's draws stay as they are
	if w.trace {
		c, err := simulate.Replayed("healthy", seed, traces[chance.IntN(len(traces))])
		c.Noise, c.Steps, c.Shape.RanksPerNode = w.noise(chance), steps, healthyRanks
		return c, err
	}

	if w.families {
		names := simulate.Families()
		c, err := simulate.Scenario(names[seed%uint64(len(names))], seed/uint64(len(names)))
		c.Faults, c.Expect = nil, simulate.Expect{}
		c.Steps, c.Model.Seconds = max(c.Steps, steps), healthyStep
		return c, err
	}

	shapes := []simulate.Shape{
		{DP: 64}, {DP: 16, PP: 4}, {DP: 8, PP: 8, MicroBatches: 8}, {TP: 8, DP: 8}, {TP: 4, DP: 8, PP: 2}, {TP: 2, DP: 8, PP: 4, MicroBatches: 4}, {DP: 32, PP: 4, MicroBatches: 4},
	}
	c := simulate.Config{
		Scenario: "healthy-hours", Seed: seed, Steps: steps, Shape: shapes[chance.IntN(len(shapes))],
		Model:   simulate.Model{Seconds: healthyStep, Overlap: chance.IntN(2) == 0, Sharded: chance.IntN(2) == 0},
		Noise:   w.noise(chance),
		Network: simulate.Network{JitterSD: 0.1, Congestion: 0.01, CongestionNodes: 0.3, CongestionSteps: 5, CongestionFactor: 2},
	}
	c.Shape.RanksPerNode = healthyRanks
	if c.Shape.PP > 1 && chance.IntN(2) == 0 {
		c.Work = simulate.Work{SequenceSD: 0.02 + 0.08*chance.Float64()}
	}

	if chance.IntN(2) == 0 {
		c.Checkpoint = simulate.Checkpoint{Every: 100, Share: 1}
	}

	return c, c.Validate()
}

// healthyJob plays and judges one healthy job.
func healthyJob(w noiseKind, seed uint64, steps int, traces []*simulate.Trace) (*outcome, error) {
	c, err := healthyConfig(w, seed, steps, traces)
	if err != nil {
		return nil, err
	}

	o, _, err := task{scenario: "healthy", seed: seed, noise: w.name}.play(c, nil)
	return o, err
}

// printHours prints the account of each kind of noise, and of all together.
func printHours(w io.Writer, kinds map[string]tally) {
	fmt.Fprintln(w, "| healthy noise | jobs | node-hours | nodes accused | links accused | alarms per 1,000 node-hours | upper bound (95 %) | target | | findings |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	var total tally
	for _, n := range noises {
		if kinds[n.name] == nil {
			fmt.Fprintf(w, "| %s (no traces here) | 0 | | | | | | | | |\n", n.name)
			continue
		}

		kinds[n.name].printHours(w, n.name)
		total = append(total, kinds[n.name]...)
	}

	total.printHours(w, everything)
	total = slices.DeleteFunc(total, func(o *outcome) bool { return o.alarms() == 0 })
	for _, o := range total[:min(len(total), shownFailures)] {
		fmt.Fprintf(w, "\n    %v  # %v %v", o.task, o.victims, o.wrong)
	}

	fmt.Fprintln(w)
}

// printHours prints the line of one kind of noise.
func (t tally) printHours(w io.Writer, name string) {
	findings := map[string]int{}
	for _, o := range t {
		for _, f := range o.others {
			findings[f]++
		}
	}

	alarms, hours := t.sum((*outcome).alarms), t.hours()
	rate := float64(alarms) / hours * 1000
	fmt.Fprintf(w, "| %s | %d | %.0f | %d | %d | %.3f | %.3f | <= %.1f | %s | %v |\n",
		name, len(t), hours, t.sum((*outcome).nodesWrong), t.sum((*outcome).linksWrong), rate, bound(alarms, hours), alarmTarget, mark(rate <= alarmTarget), findings)
}
