package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// weights make negative cases as many as positive ones: most scenarios have a culprit.
var weights = map[string]int{"healthy": 6, "gc-pauses": 2, "sequence-length": 2, "stage-imbalance": 2, "transient": 2}

// options say which cases to run.
type options struct {
	n         int      // cases a scenario, times its weight
	seed      uint64   // of the first case of every scenario; the next ones count up
	scenarios []string // nil = all
	parallel  int
	world     int // 0 = as drawn
	traces    []*simulate.Trace
	replay    bool // only replayed cases
	each      func(*outcome)
	progress  func(done, total int)
}

// tasks lists the cases. Every fourth case of a scenario that can be replayed runs
// on a recorded job.
func (o *options) tasks() []task {
	var out []task
	for _, name := range o.scenarios {
		n := o.n
		if w := weights[name]; w > 1 && n > 1 {
			n *= w
		}

		for k := range n {
			t := task{scenario: name, seed: o.seed + uint64(k), world: o.world}
			if x := o.trace(k); x != nil && simulate.Replayable(name) {
				t.trace, t.world = x, 0
			}

			out = append(out, t)
		}
	}

	return out
}

func (o *options) trace(k int) *simulate.Trace {
	if len(o.traces) == 0 || !o.replay && k%4 != 3 {
		return nil
	}

	return o.traces[k/4%len(o.traces)]
}

// runAll runs the cases, some at a time, and returns one tally a scenario.
func runAll(ctx context.Context, o *options) (map[string]*tally, error) {
	tasks := o.tasks()
	tallies := map[string]*tally{}
	for _, n := range o.scenarios {
		tallies[n] = &tally{scenario: n}
	}

	results := make(chan *outcome)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, o.parallel) + 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := 0
		for r := range results {
			tallies[r.scenario].add(r)
			if o.each != nil {
				o.each(r)
			}

			if n++; o.progress != nil {
				o.progress(n, len(tasks))
			}
		}
	}()
	for _, t := range tasks {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}

			r, err := t.runPaired()
			if err != nil {
				return err
			}

			select {
			case results <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}

	err := g.Wait()
	close(results)
	<-done
	for _, t := range tallies {
		t.sort()
	}

	return tallies, err
}

// runPaired runs a case, and its twin without the injection where the scenario is
// about a difference: the same job with right clocks, the same with nothing missing.
func (t task) runPaired() (*outcome, error) {
	r, err := t.run()
	if err != nil {
		return nil, err
	}

	row, _ := simulate.Row(t.scenario)
	if row != 17 && row != 18 {
		return r, nil
	}

	cfg, err := t.config()
	if err != nil {
		return nil, err
	}

	cfg.Clock, cfg.Loss = simulate.Clock{}, simulate.Loss{Run: 1}
	twin, err := t.play(cfg, &sheet{plain: true})
	if err != nil {
		return nil, err
	}

	r.twinHit, r.twinMissed = twin.hit, twin.missed
	r.same = slices.Equal(essence(r.verdict), essence(twin.verdict))
	return r, nil
}

// essence is what two verdicts on the same job must share: who, what, why.
func essence(v *verdict.Verdict) []string {
	var out []string
	for _, n := range v.Nodes {
		out = append(out, fmt.Sprintf("node %s %s %s %v", n.Node, n.State, n.Cause, n.Ranks))
	}

	for _, l := range v.Links {
		out = append(out, fmt.Sprintf("link %s %s", l.Group, l.State))
	}

	for _, f := range v.Findings {
		out = append(out, fmt.Sprintf("finding %s %v", f.Kind, f.Stages))
	}

	for _, e := range v.Events {
		out = append(out, fmt.Sprintf("event %s %s", e.Node, e.Kind))
	}

	slices.Sort(out)
	return append(out, fmt.Sprint(v.Decided))
}
