package main

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// weights make negative cases as many as positive ones: most scenarios have a culprit.
var weights = map[string]int{"healthy": 6, "gc-pauses": 2, "sequence-length": 2, "stage-imbalance": 2, "transient": 2}

// suite says which cases of scenarios and of families to run, and what beside them.
type suite struct {
	n        int    // cases a scenario, times its weight
	seed     uint64 // of the first case of every scenario; the next ones count up
	parallel int
	world    int // 0 = as drawn
	traces   []*simulate.Trace

	scenarios, families []string // those to run
	jobs                int      // of a family
	nodeHours           float64  // of healthy jobs; 0 = none
	through             int      // cases that go through files and store, too; 0 = none

	// As the command line has them.
	scenario, only, traceName, healthy, data, results string
	verbose, keepSeed                                 bool
}

// tasks lists the cases. Every fourth case of a scenario that can be replayed runs
// on a recorded job, which has its own number of ranks.
func (s *suite) tasks(scenarios []string) []task {
	var out []task
	for _, name := range scenarios {
		n := s.n
		if w := weights[name]; w > 1 && n > 1 {
			n *= w
		}

		for k := range n {
			t := task{scenario: name, seed: s.seed + uint64(k), world: s.world}
			if k%4 == 3 && len(s.traces) > 0 && simulate.Replayable(name) {
				t.trace, t.world = s.traces[k/4%len(s.traces)], 0
			}

			out = append(out, t)
		}
	}

	return out
}

// run judges the cases of scenarios or families, some at a time, and returns them by name, in the
// order of their seeds.
func (s *suite) run(ctx context.Context, scenarios []string, progress func(done, total int)) (map[string]tally, error) {
	tasks := s.tasks(scenarios)
	outcomes := make([]*outcome, len(tasks))
	err := each(ctx, len(tasks), s.parallel, progress, func(k int) (err error) {
		outcomes[k], err = tasks[k].judged()
		return err
	})
	if err != nil {
		return nil, err
	}

	out := map[string]tally{}
	for _, o := range outcomes {
		out[o.scenario] = append(out[o.scenario], o)
	}

	return out, nil
}

// each calls f with 0 to n-1, some at a time, until one fails; progress may be nil, and is called
// by one goroutine at a time.
func each(ctx context.Context, n, parallel int, progress func(done, total int), f func(k int) error) error {
	var mu sync.Mutex
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, parallel))
	for k := range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}

			if err := f(k); err != nil || progress == nil {
				return err
			}

			mu.Lock()
			defer mu.Unlock()
			done++
			progress(done, n)
			return nil
		})
	}

	return g.Wait()
}
